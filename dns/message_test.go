package dns

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/dns/zone"
)

// quiet returns a server that is complete and is not run: its workers are asked directly.
func quiet(t testing.TB) *Server {
	t.Helper()
	sockets, err := Listen(t.Context(), &net.ListenConfig{}, netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sockets.Close() })
	nobody, err := Upstream(None)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{Client: clienttest.New(t), Sockets: sockets, Upstream: nobody, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	close(s.complete)
	return s
}

func put(s *Server, svc *corev1.Service, slices ...*discoveryv1.EndpointSlice) {
	var endpoints []*zone.Endpoints
	for _, e := range slices {
		endpoints = append(endpoints, zone.NewEndpoints(e))
	}
	s.zone.Put(svc.Namespace, svc.Name, zone.NewService(svc), endpoints)
}

func fill(s *Server) {
	http, port := "http", int32(80)
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "shop", Name: name} }
	ports := []corev1.ServicePort{{Name: http, Port: port}}
	put(s, &corev1.Service{ObjectMeta: meta("web"), Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.7", ClusterIPs: []string{"10.96.0.7", "fd00::7"}, Ports: ports}})
	put(s, &corev1.Service{ObjectMeta: meta("out"), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}})
	slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &http, Port: &port}}}
	for i := range 100 {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.1.0.%d", i+1)}})
	}
	put(s, &corev1.Service{ObjectMeta: meta("db"), Spec: corev1.ServiceSpec{ClusterIP: "None"}}, slice)
	s.zone.PutNamespace("shop")
}

// FuzzMessage checks that whatever comes, an answer is a message, to that question, and no
// longer than it may be.
func FuzzMessage(f *testing.F) {
	for _, name := range []string{"web.shop.svc.cluster.local.", "db.shop.svc.cluster.local.", "_http._tcp.db.shop.svc.cluster.local.", "out.shop.svc.cluster.local.", "example.com.", "7.0.96.10.in-addr.arpa.", "."} {
		for _, kind := range []uint16{dns.TypeA, dns.TypeSRV, dns.TypePTR, dns.TypeANY, dns.TypeHINFO} {
			m := new(dns.Msg).SetQuestion(name, kind)
			plain, _ := m.Pack()
			f.Add(plain, false)
			m.SetEdns0(4096, true)
			long, _ := m.Pack()
			f.Add(long, true)
		}
	}
	f.Add([]byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01"), false) // a name that points to itself
	s := quiet(f)
	fill(s)
	workers := []*worker{newWorker(s, overUDP), newWorker(s, overTCP)}
	f.Fuzz(func(t *testing.T, packet []byte, tcp bool) {
		w, room := workers[0], maxUDP
		if tcp {
			w, room = workers[1], dns.MaxMsgSize
		}
		packet = packet[:min(len(packet), maxQuery)]
		sent := slices.Clone(packet)
		reply, more := w.answer(packet)
		if more {
			reply = w.ask(t.Context(), packet)
			s.upstream.Release()
		}
		if !slices.Equal(sent, packet) {
			t.Fatal("the question was changed")
		}
		if reply == nil {
			if len(packet) >= 12 && packet[2]&0x80 == 0 {
				t.Fatal("a question has no answer")
			}
			return
		}
		var asked, answered dns.Msg
		if err := answered.Unpack(reply); err != nil {
			t.Fatalf("the answer %x does not parse: %v", reply, err)
		}
		if reply[0] != packet[0] || reply[1] != packet[1] || !answered.Response || len(reply) > room {
			t.Fatalf("%d bytes, ID %x%x of a question %x: %v", len(reply), reply[0], reply[1], packet[:2], &answered)
		}
		if asked.Unpack(packet) != nil || len(asked.Question) != 1 || asked.Opcode != dns.OpcodeQuery {
			if answered.Rcode == dns.RcodeSuccess {
				t.Fatalf("an answer to what is no question: %v", &answered)
			}
			return
		}
		if len(answered.Question) != 1 || answered.Question[0] != asked.Question[0] {
			t.Fatalf("asked %v, answered %v", asked.Question, answered.Question)
		}
		size := dns.MinMsgSize
		if opt := asked.IsEdns0(); opt != nil {
			size = max(size, int(opt.UDPSize()))
		}
		if !tcp && len(reply) > size {
			t.Fatalf("%d bytes to who takes %d", len(reply), size)
		}
		if tcp && answered.Truncated {
			t.Fatalf("cut, over TCP: %v", &answered)
		}
		if answered.Rcode != dns.RcodeSuccess && answered.Rcode != dns.RcodeNameError {
			return
		}
		if (asked.IsEdns0() == nil) != (answered.IsEdns0() == nil) {
			t.Fatalf("EDNS in the question: %v, in the answer: %v", asked.IsEdns0(), answered.IsEdns0())
		}
		if len(answered.Answer) > 0 && answered.Answer[0].Header().Name != asked.Question[0].Name {
			t.Fatalf("asked for %v, told of %v", asked.Question[0], answered.Answer[0])
		}
		if answered.Authoritative && len(answered.Answer) == 0 && !answered.Truncated && len(answered.Ns) != 1 {
			t.Fatalf("nothing, and no SOA: %v", &answered)
		}
	})
}

// FuzzEndpoints checks that whatever an EndpointSlice holds, there are valid messages about
// it, with addresses that another host can have.
func FuzzEndpoints(f *testing.F) {
	f.Add("10.1.0.1", "db-0", "http", int32(80), "IPv4")
	f.Add("127.0.0.1", "a.b", "a b", int32(0), "IPv4")
	f.Add("::ffff:10.0.0.1", "\\000", "\xff", int32(-1), "IPv6")
	f.Add("fe80::1%lo", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "", int32(70000), "IPv6")
	s := quiet(f)
	w := newWorker(s, overTCP)
	f.Fuzz(func(t *testing.T, address, hostname, port string, number int32, family string) {
		slice := &discoveryv1.EndpointSlice{
			AddressType: discoveryv1.AddressType(family),
			Ports:       []discoveryv1.EndpointPort{{Name: &port, Port: &number}},
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address, "10.9.9.9"}, Hostname: &hostname}},
		}
		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}, Spec: corev1.ServiceSpec{ClusterIP: "None"}}
		put(s, svc, slice)
		for _, q := range []dns.Question{
			{Name: "db.shop.svc.cluster.local.", Qtype: dns.TypeA, Qclass: dns.ClassINET},
			{Name: "db.shop.svc.cluster.local.", Qtype: dns.TypeAAAA, Qclass: dns.ClassINET},
			{Name: "_http._tcp.db.shop.svc.cluster.local.", Qtype: dns.TypeSRV, Qclass: dns.ClassINET},
			{Name: "9.9.9.10.in-addr.arpa.", Qtype: dns.TypePTR, Qclass: dns.ClassINET},
		} {
			packed, err := (&dns.Msg{MsgHdr: dns.MsgHdr{Id: 7, RecursionDesired: true}, Question: []dns.Question{q}}).Pack()
			if err != nil {
				t.Fatal(err)
			}
			reply, more := w.answer(packed)
			if more {
				s.upstream.Release()
				continue
			}
			var m dns.Msg
			if err := m.Unpack(reply); err != nil || m.Rcode == dns.RcodeServerFailure {
				t.Fatalf("%v: %x, %v", q, reply, err)
			}
			for _, rr := range slices.Concat(m.Answer, m.Extra) {
				var ip net.IP
				switch rr := rr.(type) {
				case *dns.A:
					ip = rr.A
				case *dns.AAAA:
					ip = rr.AAAA
				default:
					continue
				}
				if a, ok := netip.AddrFromSlice(ip); !ok || a.Unmap().IsLoopback() || a.IsLinkLocalUnicast() || a.IsUnspecified() || a.IsMulticast() {
					t.Fatalf("%v leads to %v", q, rr)
				}
			}
		}
	})
}

// TestQuestionsAllocate pins what a question costs, from packet to packet.
func TestQuestionsAllocate(t *testing.T) {
	s := quiet(t)
	fill(s)
	w := newWorker(s, overUDP)
	for _, tt := range []struct {
		name string
		kind uint16
		edns bool
		most float64
	}{
		{"web.shop.svc.cluster.local.", dns.TypeA, false, 5},
		{"web.shop.svc.cluster.local.", dns.TypeA, true, 8},
		{"none.shop.svc.cluster.local.", dns.TypeA, false, 7},
		{"_http._tcp.web.shop.svc.cluster.local.", dns.TypeSRV, false, 9},
	} {
		m := new(dns.Msg).SetQuestion(tt.name, tt.kind)
		if tt.edns {
			m.SetEdns0(1232, false)
		}
		packed, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		if got := testing.AllocsPerRun(1000, func() { w.answer(packed) }); got > tt.most {
			t.Errorf("%s %s, EDNS %t: %v allocations, want at most %v", dns.TypeToString[tt.kind], tt.name, tt.edns, got, tt.most)
		} else {
			t.Logf("%s %s, EDNS %t: %v allocations", dns.TypeToString[tt.kind], tt.name, tt.edns, got)
		}
	}
}

// BenchmarkQuestion measures a question about a service, from packet to packet, beside
// what the library takes to read it and to write the answer.
func BenchmarkQuestion(b *testing.B) {
	s := quiet(b)
	fill(s)
	m := new(dns.Msg).SetQuestion("web.shop.svc.cluster.local.", dns.TypeA)
	packed, err := m.Pack()
	if err != nil {
		b.Fatal(err)
	}
	b.Run("answer", func(b *testing.B) {
		w := newWorker(s, overUDP)
		b.ReportAllocs()
		for b.Loop() {
			w.answer(packed)
		}
	})
	b.Run("floor", func(b *testing.B) {
		var in, out dns.Msg
		buffer := make([]byte, 512)
		a := &dns.A{Hdr: dns.RR_Header{Name: "web.shop.svc.cluster.local.", Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 5}, A: net.IP{10, 96, 0, 7}}
		b.ReportAllocs()
		for b.Loop() {
			if err := in.Unpack(packed); err != nil {
				b.Fatal(err)
			}
			out.SetReply(&in)
			out.Answer = append(out.Answer[:0], a)
			out.Compress = true
			if _, err := out.PackBuffer(buffer); err != nil {
				b.Fatal(err)
			}
		}
	})
}
