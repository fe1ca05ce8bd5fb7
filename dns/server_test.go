package dns_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	wire "github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/dns"
	"github.com/sampan-io/sampan/internal/leaktest"
	"github.com/sampan-io/sampan/internal/run"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A cluster is a name server under test, and the API server and the resolver that it has.
type cluster struct {
	testing.TB
	api *clienttest.Server
	at  netip.AddrPort
	web string
	dns *dns.Server

	shared bool // it reads the caches of others
}

// open runs a name server until the test ends. Upstream is the list of its resolvers.
func open(t testing.TB, upstream string, objs ...client.Object) *cluster {
	t.Helper()
	h := &cluster{TB: t, api: clienttest.New(t, objs...)}
	h.start(upstream)
	select {
	case <-h.dns.Ready():
	case <-time.After(time.Minute):
		t.Fatal("the name server is not ready")
	}
	return h
}

func (h *cluster) start(upstream string) {
	h.Helper()
	sockets, err := dns.Listen(h.Context(), &net.ListenConfig{}, netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		h.Fatal(err)
	}
	h.at = sockets.Addr()
	if upstream == "itself" {
		upstream = h.at.String()
	}
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		h.Fatal(err)
	}
	h.web = "http://" + web.Addr().String()
	ask, err := dns.Upstream(upstream)
	if err != nil {
		h.Fatal(err)
	}
	o := dns.Options{
		Client: h.api, Sockets: sockets, Upstream: ask, Web: []net.Listener{web},
		Networks: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}, Version: "v0", Log: slog.New(slog.NewTextHandler(h.Output(), nil)),
	}
	group := run.NewGroup(h.Context(), 0)
	if h.shared {
		o.Client, o.Caches = nil, cache.NewShared(h.api, o.Log)
	}
	if h.dns, err = dns.New(o); err != nil {
		h.Fatal(err)
	}
	if h.shared {
		group.Go(func(ctx context.Context) { _ = o.Caches.Run(ctx) })
	}
	group.Go(func(ctx context.Context) {
		if err := h.dns.Run(ctx); err != nil {
			h.Error(err)
		}
	})
	h.Cleanup(group.Stop)
}

// patience is far more than anything here takes.
const patience = time.Minute

// send sends a message over "udp" or "tcp" and returns the answer.
func (h *cluster) send(network string, m *wire.Msg) *wire.Msg {
	h.Helper()
	c := wire.Client{Net: network, Timeout: patience, UDPSize: wire.MaxMsgSize}
	r, _, err := c.Exchange(m, h.at.String())
	if err != nil {
		h.Fatalf("%s %v: %v", network, m.Question, err)
	}
	return r
}

func question(name string, kind uint16) *wire.Msg {
	m := new(wire.Msg).SetQuestion(name, kind)
	m.SetEdns0(wire.DefaultMsgSize, false)
	return m
}

// describe prints an answer: its code, its records, and its error text.
func describe(m *wire.Msg) string {
	lines := []string{wire.RcodeToString[m.Rcode]}
	if m.Rcode == wire.RcodeBadVers {
		lines[0] = "BADVERS" // a code with two names
	}
	for _, rr := range m.Answer {
		lines = append(lines, strings.Join(strings.Fields(rr.String())[3:], " "))
	}
	if m.Truncated {
		lines = append(lines, "truncated")
	}
	if o := m.IsEdns0(); o != nil {
		for _, e := range o.Option {
			if why, ok := e.(*wire.EDNS0_EDE); ok {
				lines = append(lines, "because "+why.ExtraText)
			}
		}
	}
	return strings.Join(lines, "; ")
}

func (h *cluster) want(name string, kind uint16, want string) {
	h.Helper()
	if got := describe(h.send("udp", question(name, kind))); got != want {
		h.Errorf("%s %s: %s, want %s", wire.TypeToString[kind], name, got, want)
	}
}

// until asks until the answer is as wanted.
func (h *cluster) until(name string, kind uint16, want string) {
	h.Helper()
	for began := time.Now(); ; {
		got := describe(h.send("udp", question(name, kind)))
		if got == want {
			return
		}
		if time.Since(began) > patience {
			h.Fatalf("%s %s: %s, want %s", wire.TypeToString[kind], name, got, want)
		}
	}
}

func service(name, ip string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec:       corev1.ServiceSpec{ClusterIP: ip, ClusterIPs: []string{ip}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}
}

func endpoints(name string, from, n int) *discoveryv1.EndpointSlice {
	e := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint(name, "-", from), Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	http, port := "http", int32(8080)
	e.Ports = []discoveryv1.EndpointPort{{Name: &http, Port: &port}}
	for i := range n {
		host := fmt.Sprint(name, "-", from+i)
		e.Endpoints = append(e.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.1.%d.%d", (from+i)/250, 1+(from+i)%250)}, Hostname: &host})
	}
	return e
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func TestNamesFollowTheCluster(t *testing.T) {
	for name, shared := range map[string]bool{"alone": false, "with the caches of others": true} {
		t.Run(name, func(t *testing.T) { namesFollowTheCluster(t, shared) })
	}
}

func namesFollowTheCluster(t *testing.T, shared bool) {
	api := clienttest.New(t, namespace("shop"), service("web", "10.96.0.7"), service("db", "None"), endpoints("db", 0, 1))
	h := &cluster{TB: t, api: api, shared: shared}
	h.start(dns.None)
	<-h.dns.Ready()
	h.want("web.shop.svc.cluster.local.", wire.TypeA, "NOERROR; A 10.96.0.7")
	h.want("db-0.db.shop.svc.cluster.local.", wire.TypeA, "NOERROR; A 10.1.0.1")
	h.want("api.shop.svc.cluster.local.", wire.TypeA, "NXDOMAIN")

	h.api.Set(t, service("api", "10.96.0.8"))
	h.until("api.shop.svc.cluster.local.", wire.TypeA, "NOERROR; A 10.96.0.8")
	h.api.Set(t, endpoints("db", 1, 1))
	h.until("db-1.db.shop.svc.cluster.local.", wire.TypeA, "NOERROR; A 10.1.0.2")
	h.api.Remove(t, endpoints("db", 0, 1))
	h.until("db-0.db.shop.svc.cluster.local.", wire.TypeA, "NXDOMAIN")
	h.api.Remove(t, service("web", ""))
	h.until("web.shop.svc.cluster.local.", wire.TypeA, "NXDOMAIN")
	// Endpoints may be there before their service is.
	h.api.Set(t, endpoints("early", 7, 1))
	h.api.Set(t, service("early", "None"))
	h.until("early-7.early.shop.svc.cluster.local.", wire.TypeA, "NOERROR; A 10.1.0.8")
	// Behind a Service with an address of its own those with hostnames have names, also
	// in the slices that the controllers make.
	h.api.Set(t, service("front", "10.96.0.30"))
	h.until("front.shop.svc.cluster.local.", wire.TypeA, "NOERROR; A 10.96.0.30")
	slice := endpoints("front", 3, 2)
	slice.Labels[discoveryv1.LabelManagedBy] = "endpointslice-controller.k8s.io"
	h.api.Set(t, slice)
	h.until("front-3.front.shop.svc.cluster.local.", wire.TypeA, "NOERROR; A 10.1.0.4")
	slice = slice.DeepCopy()
	slice.Endpoints[0].Hostname, slice.Endpoints[1].Hostname = nil, nil
	h.api.Set(t, slice)
	h.until("front-3.front.shop.svc.cluster.local.", wire.TypeA, "NXDOMAIN")
	h.api.Set(t, namespace("empty"))
	h.until("empty.svc.cluster.local.", wire.TypeA, "NOERROR")
	h.api.Remove(t, namespace("empty"))
	h.until("empty.svc.cluster.local.", wire.TypeA, "NXDOMAIN")

	// The API server may be unreachable for a while and come back without its history.
	h.api.Forget()
	h.api.BreakWatches(errors.New("gone"))
	h.api.Set(t, service("after", "10.96.0.9"))
	h.until("after.shop.svc.cluster.local.", wire.TypeA, "NOERROR; A 10.96.0.9")
}

// TestMessages asks in ways that are not what a resolver of a pod does.
func TestMessages(t *testing.T) {
	h := open(t, dns.None, namespace("shop"), service("web", "10.96.0.7"))
	const web = "wEB.shop.svc.cluster.local."
	tests := []struct {
		name   string
		change func(*wire.Msg)
		want   string
	}{
		{"as usual", func(*wire.Msg) {}, "NOERROR; A 10.96.0.7"},
		{"class CHAOS", func(m *wire.Msg) {
			m.Question[0] = wire.Question{Name: "version.bind.", Qtype: wire.TypeTXT, Qclass: wire.ClassCHAOS}
		}, "REFUSED; because only class IN is answered"},
		{"everything", func(m *wire.Msg) { m.Question[0].Qtype = wire.TypeANY }, `NOERROR; HINFO "RFC8482" ""`},
		{"everything elsewhere", func(m *wire.Msg) {
			m.Question[0] = wire.Question{Name: "example.com.", Qtype: wire.TypeANY, Qclass: wire.ClassINET}
		}, `NOERROR; HINFO "RFC8482" ""`},
		{"the zone", func(m *wire.Msg) { m.Question[0].Qtype = wire.TypeAXFR }, "REFUSED; because zones are not transferred"},
		{"an unknown type", func(m *wire.Msg) { m.Question[0].Qtype = 65280 }, "NOERROR"},
		{"a type that is none", func(m *wire.Msg) { m.Question[0].Qtype = wire.TypeOPT }, "FORMERR"},
		{"no question", func(m *wire.Msg) { m.Question = nil }, "FORMERR"},
		{"two questions", func(m *wire.Msg) { m.Question = append(m.Question, m.Question[0]) }, "FORMERR"},
		{"an update", func(m *wire.Msg) { m.Opcode = wire.OpcodeUpdate }, "NOTIMP"},
		{"EDNS of the future", func(m *wire.Msg) { m.IsEdns0().SetVersion(7) }, "BADVERS"},
		{"EDNS twice", func(m *wire.Msg) { m.Extra = append(m.Extra, m.Extra[0]) }, "FORMERR"},
		{"no EDNS, outside", func(m *wire.Msg) { m.Extra = nil; m.Question[0].Name = "example.com." }, "SERVFAIL"},
		{"outside", func(m *wire.Msg) { m.Question[0].Name = "example.com." }, "SERVFAIL; because names outside of the cluster are not resolved here (--cluster-dns-upstream=none)"},
		{"outside, no recursion", func(m *wire.Msg) { m.Question[0].Name = "example.com."; m.RecursionDesired = false }, "REFUSED; because not a name of this cluster, and recursion is not desired"},
	}
	for _, network := range []string{"udp", "tcp"} {
		for _, tt := range tests {
			t.Run(network+" "+tt.name, func(t *testing.T) {
				m := question(web, wire.TypeA)
				tt.change(m)
				r := h.send(network, m)
				if got := describe(r); got != tt.want {
					t.Errorf("%s, want %s", got, tt.want)
				}
				if r.Id != m.Id || !r.Response || r.Opcode != m.Opcode || len(m.Question) == 1 && (len(r.Question) != 1 || r.Question[0] != m.Question[0]) {
					t.Errorf("%v is no answer to %v", r, m)
				}
				if (r.IsEdns0() != nil) != (m.IsEdns0() != nil) && tt.name != "EDNS twice" {
					t.Errorf("EDNS in the question: %v, in the answer: %v", m.IsEdns0(), r.IsEdns0())
				}
			})
		}
	}
	for _, rr := range h.send("udp", question(web, wire.TypeA)).Answer {
		if rr.Header().Name != web {
			t.Errorf("the answer is about %s, want %s as it was asked", rr.Header().Name, web)
		}
	}
}

// TestInvalidQuestionsGetNoAnswer sends packets that are none, and then a question on the
// same socket: the first answer is to that.
func TestInvalidQuestionsGetNoAnswer(t *testing.T) {
	h := open(t, dns.None, service("web", "10.96.0.7"))
	c, err := net.Dial("udp", h.at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	answer := question("web.shop.svc.cluster.local.", wire.TypeA)
	answer.Response = true
	packed, _ := answer.Pack()
	for _, p := range [][]byte{{}, {1}, make([]byte, 11), packed} {
		if _, err := c.Write(p); err != nil {
			t.Fatal(err)
		}
	}
	m := question("web.shop.svc.cluster.local.", wire.TypeA)
	conn := &wire.Conn{Conn: c, UDPSize: wire.DefaultMsgSize}
	_ = c.SetDeadline(time.Now().Add(patience))
	if err := conn.WriteMsg(m); err != nil {
		t.Fatal(err)
	}
	if r, err := conn.ReadMsg(); err != nil || r.Id != m.Id {
		t.Errorf("answer %v, %v, want one to question %d", r, err, m.Id)
	}
}

// TestLongAnswers asks for a headless service with so many endpoints that an answer over
// UDP has no room for them.
func TestLongAnswers(t *testing.T) {
	const n = 200
	h := open(t, dns.None, service("db", "None"), endpoints("db", 0, n/2), endpoints("db", n/2, n/2))
	for _, tt := range []struct {
		kind      uint16
		name      string
		edns      uint16
		room      int
		all       int
		truncated bool
	}{
		{wire.TypeA, "db.shop.svc.cluster.local.", 0, 512, n, true},
		{wire.TypeA, "db.shop.svc.cluster.local.", 100, 512, n, true},
		{wire.TypeA, "db.shop.svc.cluster.local.", 800, 800, n, true},
		{wire.TypeA, "db.shop.svc.cluster.local.", 65535, 1232, n, true},
		{wire.TypeSRV, "_http._tcp.db.shop.svc.cluster.local.", 4096, 1232, n, true},
		{wire.TypeA, "db-7.db.shop.svc.cluster.local.", 0, 512, 1, false},
	} {
		m := new(wire.Msg).SetQuestion(tt.name, tt.kind)
		if tt.edns > 0 {
			m.SetEdns0(tt.edns, false)
		}
		r := h.send("udp", m)
		r.Compress = true
		if packed, err := r.Pack(); err != nil || len(packed) > tt.room || r.Truncated != tt.truncated || !tt.truncated && len(r.Answer) != tt.all {
			t.Errorf("%s with %d bytes: %d records in %d bytes, truncated %t, %v", tt.name, tt.edns, len(r.Answer), len(packed), r.Truncated, err)
		}
		if r := h.send("tcp", m); len(r.Answer) != tt.all || r.Truncated {
			t.Errorf("%s over TCP: %d records, truncated %t, want all %d", tt.name, len(r.Answer), r.Truncated, tt.all)
		}
	}
	// What was not asked for goes without a word.
	one := open(t, dns.None, service("db", "None"), endpoints("db", 0, 8))
	m := new(wire.Msg).SetQuestion("_http._tcp.db.shop.svc.cluster.local.", wire.TypeSRV)
	if r := one.send("udp", m); r.Truncated || len(r.Answer) != 8 || len(r.Extra) != 0 {
		t.Errorf("%d records and %d more, truncated %t, want 8 and none", len(r.Answer), len(r.Extra), r.Truncated)
	}
	if r := one.send("tcp", m); len(r.Answer) != 8 || len(r.Extra) != 8 {
		t.Errorf("over TCP %d records and %d more, want 8 and 8", len(r.Answer), len(r.Extra))
	}
}

// TestAConnectionMayAskAgain asks twice over one connection, the second time before the
// first answer is read.
func TestAConnectionMayAskAgain(t *testing.T) {
	h := open(t, dns.None, service("web", "10.96.0.7"))
	c, err := net.Dial("tcp", h.at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	conn := &wire.Conn{Conn: c}
	for range 2 {
		if err := conn.WriteMsg(question("web.shop.svc.cluster.local.", wire.TypeA)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if r, err := conn.ReadMsg(); err != nil || describe(r) != "NOERROR; A 10.96.0.7" {
			t.Fatalf("%v, %v", r, err)
		}
	}
	// Half a message, and then nothing: the other end is not held up by it.
	if _, err := c.Write(binary.BigEndian.AppendUint16(nil, 500)); err != nil {
		t.Fatal(err)
	}
	h.want("web.shop.svc.cluster.local.", wire.TypeA, "NOERROR; A 10.96.0.7")
}

// TestOneQuestionDoesNotWaitForAnother asks over one connection for a name that others
// have to be asked for, and then for one of the cluster.
func TestOneQuestionDoesNotWaitForAnother(t *testing.T) {
	release := make(chan struct{})
	up := resolve(t, func(w wire.ResponseWriter, m *wire.Msg) {
		<-release
		reply(w, m, wire.RcodeSuccess, m.Question[0].Name+" 300 IN A 192.0.2.80")
	})
	h := open(t, up.at, service("web", "10.96.0.7"))
	c, err := net.Dial("tcp", h.at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	conn := &wire.Conn{Conn: c}
	for _, name := range []string{"slow.example.", "web.shop.svc.cluster.local."} {
		if err := conn.WriteMsg(question(name, wire.TypeA)); err != nil {
			t.Fatal(err)
		}
	}
	// Who says no more still wants the answers.
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"NOERROR; A 10.96.0.7", "NOERROR; A 192.0.2.80"} {
		if r, err := conn.ReadMsg(); err != nil || describe(r) != want {
			t.Fatalf("answer %d: %v, %v, want %s", i, r, err, want)
		}
		if i == 0 {
			close(release)
		}
	}
	if r, err := conn.ReadMsg(); err == nil {
		t.Errorf("and then %v", r)
	}
}

// TestNobodyKeepsTheOthersOut has one client open all connections that there may be, and
// some more.
func TestNobodyKeepsTheOthersOut(t *testing.T) {
	h := open(t, dns.None, service("web", "10.96.0.7"))
	dial := func(from string) *wire.Conn {
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).Dial("tcp", h.at.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(patience))
		return &wire.Conn{Conn: c}
	}
	ask := func(c *wire.Conn) error {
		if err := c.WriteMsg(question("web.shop.svc.cluster.local.", wire.TypeA)); err != nil {
			return err
		}
		r, err := c.ReadMsg()
		if err == nil && describe(r) != "NOERROR; A 10.96.0.7" {
			err = fmt.Errorf("%v", r)
		}
		return err
	}
	polite := dial("127.0.0.2")
	if err := ask(polite); err != nil {
		t.Fatal(err)
	}
	var greedy []*wire.Conn
	for range 200 {
		greedy = append(greedy, dial("127.0.0.3"))
	}
	if err := ask(dial("127.0.0.4")); err != nil {
		t.Errorf("who comes late: %v", err)
	}
	if err := ask(polite); err != nil {
		t.Errorf("who was there before: %v", err)
	}
	if err := ask(greedy[len(greedy)-1]); err != nil {
		t.Errorf("the last of many: %v", err)
	}
	if err := ask(greedy[0]); err == nil {
		t.Error("the first of many is still open")
	}
	if _, text := h.get("/metrics"); !strings.Contains(text, "sampan_dns_connections_closed_total 74\n") {
		t.Errorf("/metrics does not tell of 74 that were closed (202 less 128)")
	}
}

// TestNoDenialBeforeTheZoneIsComplete starts a server whose API server does not answer.
func TestNoDenialBeforeTheZoneIsComplete(t *testing.T) {
	h := &cluster{TB: t, api: clienttest.New(t, service("web", "10.96.0.7"))}
	away := atomic.Bool{}
	away.Store(true)
	h.api.Intercept(func(r clienttest.Request) error {
		if away.Load() {
			return errors.New("not there")
		}
		return nil
	})
	h.start(dns.None)
	h.want("web.shop.svc.cluster.local.", wire.TypeA, "SERVFAIL; because the cluster's names are not known yet: the API server has not been reached")
	if code, _ := h.get("/ready"); code != http.StatusServiceUnavailable {
		t.Errorf("/ready says %d, want 503", code)
	}
	away.Store(false)
	h.until("web.shop.svc.cluster.local.", wire.TypeA, "NOERROR; A 10.96.0.7")
	if code, _ := h.get("/ready"); code != http.StatusOK {
		t.Errorf("/ready says %d, want 200", code)
	}
}

func (h *cluster) get(path string) (int, string) {
	h.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := c.Get(h.web + path)
	if err != nil {
		h.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		h.Fatal(err)
	}
	return r.StatusCode, string(body)
}

func TestMetrics(t *testing.T) {
	up := resolve(t, func(w wire.ResponseWriter, m *wire.Msg) {
		reply(w, m, wire.RcodeSuccess, m.Question[0].Name+" 300 IN A 192.0.2.80")
	})
	h := open(t, up.at, service("web", "10.96.0.7"))
	h.want("web.shop.svc.cluster.local.", wire.TypeA, "NOERROR; A 10.96.0.7")
	for range 3 {
		h.want("example.com.", wire.TypeA, "NOERROR; A 192.0.2.80")
	}
	_, text := h.get("/metrics")
	server := `server="dns://` + h.at.String() + `"`
	for _, line := range []string{
		`coredns_build_info{goversion="` + runtime.Version() + `",revision="",version="sampan v0"} 1`,
		`coredns_dns_requests_total{family="1",proto="udp",` + server + `,type="A",zone="cluster.local."} 1`,
		`coredns_dns_requests_total{family="1",proto="udp",` + server + `,type="A",zone="."} 3`,
		`coredns_dns_responses_total{rcode="NOERROR",` + server + `,zone="."} 3`,
		`coredns_dns_do_requests_total{` + server + `,zone="cluster.local."} 0`,
		`coredns_dns_request_duration_seconds_count{` + server + `,zone="cluster.local."} 1`,
		`coredns_dns_request_size_bytes_count{proto="udp",` + server + `,zone="cluster.local."} 1`,
		`coredns_dns_response_size_bytes_count{proto="udp",` + server + `,zone="."} 3`,
		`coredns_cache_hits_total{` + server + `,type="success"} 2`,
		`coredns_cache_entries{` + server + `,type="success"} 1`,
		`coredns_cache_entries{` + server + `,type="denial"} 0`,
		`coredns_cache_misses_total{` + server + `} 1`,
		`coredns_forward_requests_total{` + server + `,to="` + up.at + `"} 1`,
		`coredns_forward_responses_total{rcode="NOERROR",` + server + `,to="` + up.at + `"} 1`,
		`coredns_forward_request_duration_seconds_count{` + server + `,to="` + up.at + `"} 1`,
		`coredns_forward_outstanding{` + server + `} 0`,
		`sampan_dns_services 1`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("/metrics has no line %s", line)
		}
	}
	for _, name := range []string{"process_resident_memory_bytes ", "process_cpu_seconds_total ", "go_goroutines "} {
		if !strings.Contains(text, "\n"+name) {
			t.Errorf("/metrics has no %s", name)
		}
	}
	if code, body := h.get("/health"); code != 200 || body != "OK" {
		t.Errorf("/health says %d %s", code, body)
	}
}

// TestServerStopsAtAnyTime cancels servers before they have started and just after.
func TestServerStopsAtAnyTime(t *testing.T) {
	for i := range 20 {
		h := &cluster{TB: t, api: clienttest.New(t)}
		sockets, err := dns.Listen(t.Context(), &net.ListenConfig{}, netip.MustParseAddrPort("127.0.0.1:0"))
		if err != nil {
			t.Fatal(err)
		}
		web, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		nobody, _ := dns.Upstream(dns.None)
		s, err := dns.New(dns.Options{Client: h.api, Sockets: sockets, Upstream: nobody, Web: []net.Listener{web}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		group := run.NewGroup(t.Context(), 0)
		group.Go(func(context.Context) {
			if i%2 == 1 {
				<-s.Ready()
			}
			cancel()
		})
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
		cancel()
		group.Stop()
		for _, at := range []string{sockets.Addr().String(), web.Addr().String()} {
			if l, err := net.Listen("tcp", at); err != nil {
				t.Errorf("%s is still open: %v", at, err)
			} else {
				_ = l.Close()
			}
		}
	}
}

func TestListen(t *testing.T) {
	for _, at := range []string{"0.0.0.0:0", "[::]:0", "224.0.0.1:0"} {
		if s, err := dns.Listen(t.Context(), &net.ListenConfig{}, netip.MustParseAddrPort(at)); err == nil {
			t.Errorf("listens on %v, want a refusal", s.Addr())
			_ = s.Close()
		}
	}
	for text, want := range map[string]string{
		"192.0.2.1": "192.0.2.1:53", " 192.0.2.1:99": "192.0.2.1:99", "2001:db8::1": "[2001:db8::1]:53", "[2001:db8::1]:7": "[2001:db8::1]:7",
		"0.0.0.0": "", "": "", "example.com": "", "192.0.2.1:": "", "192.0.2.1:99999": "",
	} {
		got, err := dns.ParseAddress(text)
		if (err == nil) != (want != "") || err == nil && got.String() != want {
			t.Errorf("ParseAddress(%q) = %v, %v, want %q", text, got, err, want)
		}
	}
	if _, err := dns.Upstream("192.0.2.1,what"); err == nil || !strings.Contains(err.Error(), `"what"`) {
		t.Errorf("Upstream = %v, want an error about what is wrong", err)
	}
}
