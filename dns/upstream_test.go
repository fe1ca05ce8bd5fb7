package dns_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	wire "github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/internal/run"
)

// A resolver answers for whatever it is asked, or as the test says.
type resolver struct {
	at    string
	asked atomic.Int32
}

func resolve(t testing.TB, answer func(w wire.ResponseWriter, m *wire.Msg)) *resolver {
	t.Helper()
	var p net.PacketConn
	var l net.Listener
	for try := 0; l == nil; try++ {
		var err error
		if p, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		if l, err = net.Listen("tcp", p.LocalAddr().String()); err != nil { // taken by another process
			_ = p.Close()
			if try == 10 {
				t.Fatal(err)
			}
		}
	}
	r := &resolver{at: p.LocalAddr().String()}
	handler := wire.HandlerFunc(func(w wire.ResponseWriter, m *wire.Msg) {
		if m.Question[0].Qtype != wire.TypeHINFO { // probes
			r.asked.Add(1)
		}
		answer(w, m)
	})
	servers := []*wire.Server{{PacketConn: p, Handler: handler}, {Listener: l, Handler: handler}}
	group := run.NewGroup(t.Context(), 0)
	for _, s := range servers {
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		group.Go(func(context.Context) { _ = s.ActivateAndServe() })
		<-started
	}
	t.Cleanup(func() {
		for _, s := range servers {
			_ = s.Shutdown()
		}
		group.Stop()
	})
	return r
}

// reply answers with records.
func reply(w wire.ResponseWriter, m *wire.Msg, rcode int, records ...string) {
	r := new(wire.Msg).SetRcode(m, rcode)
	for _, text := range records {
		rr, err := wire.NewRR(text)
		if err != nil {
			panic(err)
		}
		if rr.Header().Rrtype == wire.TypeSOA && m.Question[0].Qtype != wire.TypeSOA {
			r.Ns = append(r.Ns, rr)
		} else {
			r.Answer = append(r.Answer, rr)
		}
	}
	_ = w.WriteMsg(r)
}

func TestOtherNamesAreAskedFor(t *testing.T) {
	up := resolve(t, func(w wire.ResponseWriter, m *wire.Msg) {
		switch m.Question[0].Name {
		case "www.example.com.":
			reply(w, m, wire.RcodeSuccess, "www.example.com. 300 IN A 192.0.2.80")
		case "gone.example.com.":
			reply(w, m, wire.RcodeNameError, "example.com. 60 IN SOA ns. m. 1 2 3 4 60")
		case "long.example.com.":
			if w.LocalAddr().Network() == "udp" {
				r := new(wire.Msg).SetReply(m)
				r.Truncated = true
				_ = w.WriteMsg(r)
				return
			}
			var all []string
			for i := range 100 {
				all = append(all, fmt.Sprintf("long.example.com. 300 IN A 192.0.2.%d", i))
			}
			reply(w, m, wire.RcodeSuccess, all...)
		default:
			reply(w, m, wire.RcodeServerFailure)
		}
	})
	ext := func(name, target string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: target}}
	}
	h := open(t, up.at, namespace("shop"), ext("out", "www.example.com"), ext("nowhere", "gone.example.com"), ext("broken", "broken.example.com"))
	h.want("www.example.com.", wire.TypeA, "NOERROR; A 192.0.2.80")
	h.want("gone.example.com.", wire.TypeA, "NXDOMAIN")
	h.want("broken.example.com.", wire.TypeA, "SERVFAIL")
	// Each client gets the letter case of its question, even from the cache.
	before := up.asked.Load()
	r := h.send("udp", question("WWW.example.COM.", wire.TypeA))
	if len(r.Answer) != 1 || r.Answer[0].Header().Name != "WWW.example.COM." || r.Question[0].Name != "WWW.example.COM." {
		t.Errorf("%v, want the name as it was asked", r)
	}
	if r.Authoritative || !r.RecursionAvailable {
		t.Errorf("%v, want no authority", r)
	}
	// Names of the cluster that are none never leave.
	h.want("nothing.shop.svc.cluster.local.", wire.TypeA, "NXDOMAIN")
	h.want("9.0.96.10.in-addr.arpa.", wire.TypePTR, "NXDOMAIN")
	if now := up.asked.Load(); now != before {
		t.Errorf("the resolver was asked %d times more, want none", now-before)
	}
	// Over UDP what does not fit is cut, over TCP it is whole.
	if r := h.send("udp", question("long.example.com.", wire.TypeA)); !r.Truncated {
		t.Errorf("%d records over UDP, want them cut", len(r.Answer))
	}
	if r := h.send("tcp", question("long.example.com.", wire.TypeA)); r.Truncated || len(r.Answer) != 100 {
		t.Errorf("%d records over TCP, want 100", len(r.Answer))
	}
	// External names are followed to where the resolver says they lead.
	h.want("out.shop.svc.cluster.local.", wire.TypeA, "NOERROR; CNAME www.example.com.; A 192.0.2.80")
	h.want("nowhere.shop.svc.cluster.local.", wire.TypeA, "NXDOMAIN; CNAME gone.example.com.")
	h.want("broken.shop.svc.cluster.local.", wire.TypeA, "SERVFAIL; CNAME broken.example.com.")
}

// TestResolversWithFaults has resolvers that are old, or behind routers that are.
func TestResolversWithFaults(t *testing.T) {
	const record = " 300 IN A 192.0.2.80"
	up := resolve(t, func(w wire.ResponseWriter, m *wire.Msg) {
		name, over := m.Question[0].Name, w.LocalAddr().Network()
		r := new(wire.Msg).SetReply(m)
		switch {
		case name == "bare.example." && m.IsEdns0() != nil: // a header, and nothing else
			r.Rcode, r.Question = wire.RcodeNotImplemented, nil
		case name == "shut.example." && over == "tcp":
			_ = w.Close()
			return
		case name == "shut.example.", name == "torn.example." && over == "udp":
			a, _ := wire.NewRR(name + record)
			r.Answer, r.Truncated = []wire.RR{a, a}, true
			packed, err := r.Pack()
			if err != nil {
				panic(err)
			}
			if name == "torn.example." {
				packed = packed[:len(packed)-3]
			}
			_, _ = w.Write(packed)
			return
		case name == "signed.example.":
			a, _ := wire.NewRR(name + record)
			r.Answer, r.AuthenticatedData = []wire.RR{a}, m.AuthenticatedData
		default:
			a, _ := wire.NewRR(name + record)
			r.Answer = []wire.RR{a}
		}
		_ = w.WriteMsg(r)
	})
	h := open(t, up.at)
	h.want("bare.example.", wire.TypeA, "NOERROR; A 192.0.2.80")
	h.want("torn.example.", wire.TypeA, "NOERROR; A 192.0.2.80")
	for range 2 { // it is not kept
		h.want("shut.example.", wire.TypeA, "NOERROR; A 192.0.2.80; A 192.0.2.80; truncated")
	}
	// The AD bit is only for clients that ask for it.
	for _, asks := range []bool{true, false} {
		m := question("signed.example.", wire.TypeA)
		m.AuthenticatedData = asks
		if r := h.send("udp", m); r.AuthenticatedData != asks {
			t.Errorf("asked with AD %t, answered %v", asks, r)
		}
	}
	m := question("signed.example.", wire.TypeA)
	m.IsEdns0().SetDo()
	if r := h.send("udp", m); !r.AuthenticatedData {
		t.Errorf("asked with DO, answered %v", r)
	}
}

// TestNobodyIsAskedWithoutNeed follows an alias only if that is wanted.
func TestNobodyIsAskedWithoutNeed(t *testing.T) {
	up := resolve(t, func(w wire.ResponseWriter, m *wire.Msg) {
		reply(w, m, wire.RcodeSuccess, m.Question[0].Name+" 300 IN A 192.0.2.80")
	})
	h := open(t, up.at, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "out"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "www.example.com"}})
	m := question("out.shop.svc.cluster.local.", wire.TypeA)
	m.RecursionDesired = false
	if got := describe(h.send("udp", m)); got != "NOERROR; CNAME www.example.com." || up.asked.Load() != 0 {
		t.Errorf("%s, and the resolver was asked %d times, want the alias alone", got, up.asked.Load())
	}
	h.want("out.shop.svc.cluster.local.", wire.TypeA, "NOERROR; CNAME www.example.com.; A 192.0.2.80")
}

// TestAResolverThatAsksUsIsFound gives the server a resolver that passes on what it is
// asked to the server.
func TestAResolverThatAsksUsIsFound(t *testing.T) {
	var us atomic.Value // our address, once it is known
	up := resolve(t, func(w wire.ResponseWriter, m *wire.Msg) {
		if r, err := wire.Exchange(m, us.Load().(string)); err == nil {
			_ = w.WriteMsg(r)
		}
	})
	h := open(t, up.at)
	us.Store(h.at.String())
	got := describe(h.send("udp", question("www.example.com.", wire.TypeA)))
	if !strings.HasPrefix(got, "SERVFAIL") {
		t.Errorf("%s, want SERVFAIL", got)
	}
	h.until("other.example.com.", wire.TypeA, "SERVFAIL; because the upstream resolver "+up.at+" forwards to this server (a loop); name another one with --cluster-dns-upstream")
}

func TestItselfIsNotAsked(t *testing.T) {
	h := open(t, "itself")
	h.want("www.example.com.", wire.TypeA, "SERVFAIL; because the only upstream resolver is this server itself; name another one with --cluster-dns-upstream")
}
