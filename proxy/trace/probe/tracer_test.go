package probe

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/internal/nstest"
	"github.com/sampan-io/sampan/proxy"
	"github.com/sampan-io/sampan/proxy/trace"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// listen answers connections at an address, and hands over who connects.
func listen(t *testing.T, at string, then func(net.Conn)) <-chan netip.Addr {
	t.Helper()
	l, err := net.Listen("tcp", at)
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	who := make(chan netip.Addr, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			who <- netip.MustParseAddrPort(c.RemoteAddr().String()).Addr()
			then(c)
		}
	}()
	return who
}

func addressed(t *testing.T, link string, cidr string) {
	t.Helper()
	l, err := netlink.LinkByName(link)
	must(t, err)
	a, err := netlink.ParseAddr(cidr)
	must(t, err)
	must(t, netlink.AddrAdd(l, a))
	must(t, netlink.LinkSetUp(l))
}

func TestDiallingResults(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		addressed(t, "lo", "10.1.0.2/32")
		// What goes there vanishes.
		hole := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "hole"}, PeerName: "bottom"}
		must(t, netlink.LinkAdd(hole))
		must(t, netlink.LinkSetARPOff(hole))
		addressed(t, "hole", "10.2.0.1/24")
		addressed(t, "bottom", "10.3.0.1/24")
		listen(t, "10.1.0.2:80", func(net.Conn) {})
		broken := func(c net.Conn) {
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		}
		listen(t, "10.1.0.2:81", broken)
		echo, err := net.ListenPacket("udp", "10.1.0.2:53")
		must(t, err)
		defer echo.Close()
		go func() {
			b := make([]byte, 1)
			for {
				_, from, err := echo.ReadFrom(b)
				if err != nil {
					return
				}
				_, _ = echo.WriteTo([]byte("x"), from)
			}
		}()
		mute, err := net.ListenPacket("udp", "10.1.0.2:54")
		must(t, err)
		defer mute.Close()
		d := dialler{}
		for _, tt := range []struct {
			at       string
			protocol corev1.Protocol
			want     trace.Result
		}{
			{"10.1.0.2:80", corev1.ProtocolTCP, trace.Answered},
			{"10.1.0.2:9", corev1.ProtocolTCP, trace.Refused},
			{"192.0.2.1:80", corev1.ProtocolTCP, trace.NoRoute},
			{"[2001:db8::1]:80", corev1.ProtocolTCP, trace.NoRoute},
			{"10.2.0.2:80", corev1.ProtocolTCP, trace.TimedOut},
			{"10.1.0.2:53", corev1.ProtocolUDP, trace.Answered},
			{"10.1.0.2:54", corev1.ProtocolUDP, trace.Silent},
			{"10.1.0.2:9", corev1.ProtocolUDP, trace.Refused},
		} {
			got := d.dial(t.Context(), netip.MustParseAddrPort(tt.at), tt.protocol)
			if got.Result != tt.want || got.Seconds <= 0 {
				t.Errorf("%s/%s: %+v, want %s", tt.at, tt.protocol, got, tt.want)
			}
		}
		// A forwarder accepts the connection, and resets it if there is no backend.
		for _, tt := range []struct {
			at   string
			some bool
			want trace.Result
		}{{"10.1.0.2:81", false, trace.Closed}, {"10.1.0.2:80", true, trace.Answered}, {"10.1.0.2:9", false, trace.Refused}} {
			if got := d.frontend(t.Context(), netip.MustParseAddrPort(tt.at), corev1.ProtocolTCP, true, tt.some); got.Result != tt.want {
				t.Errorf("relayed %s: %+v, want %s", tt.at, got, tt.want)
			}
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if got := d.dial(over, netip.MustParseAddrPort("10.2.0.2:80"), corev1.ProtocolTCP); got.OK() || got.Seconds > 2 {
			t.Errorf("after the end: %+v, want it given up at once", got)
		}
	})
}

// TestFromAPodConnectionsComeFromItsNetwork checks who the server sees, and that no thread of this
// process stays in the pod's network.
func TestFromAPodConnectionsComeFromItsNetwork(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		runtime.LockOSThread()
		home, err := netns.Get()
		must(t, err)
		pod, err := netns.New() // and enters it
		must(t, err)
		must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "node", PeerNamespace: netlink.NsFd(int(home))}))
		addressed(t, "eth0", "10.1.0.9/24")
		must(t, netns.Set(home))
		addressed(t, "node", "10.1.0.1/24")
		runtime.UnlockOSThread()
		who := listen(t, "10.1.0.1:80", func(net.Conn) {})

		path := filepath.Join("/proc/self/fd", netNumber(pod))
		d := dialler{namespace: path}
		for range 20 {
			if got := d.dial(t.Context(), netip.MustParseAddrPort("10.1.0.1:80"), corev1.ProtocolTCP); got.Result != trace.Answered {
				t.Fatalf("from the pod: %+v", got)
			}
			if from := <-who; from.String() != "10.1.0.9" {
				t.Fatalf("the server sees %v, want the pod's 10.1.0.9", from)
			}
			if got := (&dialler{}).dial(t.Context(), netip.MustParseAddrPort("10.1.0.1:80"), corev1.ProtocolTCP); got.Result != trace.Answered {
				t.Fatalf("from the node: %+v", got)
			}
			if from := <-who; from.String() != "10.1.0.1" {
				t.Fatalf("the server sees %v, want the node's 10.1.0.1", from)
			}
		}
		if got := (&dialler{namespace: "/none"}).dial(t.Context(), netip.MustParseAddrPort("10.1.0.1:80"), corev1.ProtocolTCP); got.Result != trace.Failed || !strings.Contains(got.Error, "network namespace of the pod") {
			t.Errorf("from a namespace that is none: %+v", got)
		}
	})
}

func netNumber(ns netns.NsHandle) string {
	n := []byte{}
	for v := int(ns); v > 0; v /= 10 {
		n = append([]byte{byte('0' + v%10)}, n...)
	}
	return string(n)
}

// asked asks a tracer.
func asked(t *testing.T, tr *Tracer, query string) (int, string, *trace.NodeReport) {
	t.Helper()
	w := httptest.NewRecorder()
	tr.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, trace.AgentPath+"?"+query, nil))
	text := w.Body.String()
	if w.Code != http.StatusOK {
		return w.Code, text, nil
	}
	s, err := trace.ReadNodeReport(strings.NewReader(text))
	must(t, err)
	return w.Code, text, s
}

type looked struct{ err error }

func (l looked) Lookup(_ context.Context, d proxy.Frontend, client netip.Addr) (proxy.Seen, error) {
	return proxy.Seen{Found: true, Backends: []netip.AddrPort{netip.AddrPortFrom(d.Address, 1)}, Bound: netip.AddrPortFrom(client, 2)}, l.err
}

func TestOnlyServiceAddressesAreDialled(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		for _, a := range []string{"10.1.0.1/32", "10.1.0.2/32", "10.1.0.3/32"} {
			addressed(t, "lo", a)
		}
		frontend := listen(t, "10.1.0.1:80", func(net.Conn) {})
		first := listen(t, "10.1.0.2:8080", func(net.Conn) {})
		other := listen(t, "10.1.0.3:8080", func(net.Conn) {})
		svc := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec:       corev1.ServiceSpec{ClusterIP: "10.1.0.1", ClusterIPs: []string{"10.1.0.1"}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
		}
		endpoints := []*discoveryv1.EndpointSlice{{
			AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}},
			Endpoints: []discoveryv1.Endpoint{
				{Addresses: []string{"10.1.0.2"}},
				{Addresses: []string{"10.1.0.3"}, Conditions: discoveryv1.EndpointConditions{Ready: new(false)}},
				{Addresses: []string{"127.0.0.1"}},
			},
		}}
		o := Options{
			Services: func(name types.NamespacedName) (*corev1.Service, []*discoveryv1.EndpointSlice, proxy.Here, bool) {
				here := proxy.Here{Node: "n1", Addresses: []netip.Addr{netip.MustParseAddr("10.1.0.1")}}
				return svc, endpoints, here, name.Name == "web"
			},
			Kernel: looked{},
		}
		tr, err := New(o)
		must(t, err)
		_, text, s := asked(t, tr, "namespace=default&service=web&target=web")
		if s == nil || !s.Known || s.Node != "n1" || len(s.Frontends) != 1 {
			t.Fatalf("answer %s", text)
		}
		d := s.Frontends[0]
		if d.Frontend == nil || d.Frontend.Result != trace.Answered || len(d.Endpoints) != 1 || d.Endpoints[0].At.String() != "10.1.0.2:8080" || d.Endpoints[0].Answer.Result != trace.Answered {
			t.Errorf("seen %+v, want that the frontend and 10.1.0.2 answer", d)
		}
		if d.Kernel == nil || d.Kernel.Bound.Addr().String() != "10.1.0.1" {
			t.Errorf("the kernel has %+v for the node's address", d.Kernel)
		}
		<-frontend
		<-first
		// Other targets are not addresses of the Service: nothing is dialled.
		for _, target := range []string{"10.1.0.3:8080", "10.1.0.1:81", "127.0.0.1:80", "10.1.0.2:8080"} {
			if _, text, s := asked(t, tr, "namespace=default&service=web&target="+target); s == nil || len(s.Frontends) > 0 {
				t.Errorf("%s: %s", target, text)
			}
		}
		if _, text, s := asked(t, tr, "namespace=default&service=other&target=10.1.0.1:80"); s == nil || s.Known || len(s.Frontends) > 0 {
			t.Errorf("of a Service that is not known: %s", text)
		}
		if len(frontend)+len(first)+len(other) > 0 {
			t.Errorf("%d, %d and %d more connections were made", len(frontend), len(first), len(other))
		}

		o.Kernel = looked{errors.New("permission denied")}
		tr, err = New(o)
		must(t, err)
		if _, text, s := asked(t, tr, "namespace=default&service=web&target=web"); s == nil || s.Frontends[0].Kernel != nil || !slices.ContainsFunc(s.Frontends[0].Faults, func(f string) bool { return strings.Contains(f, "permission denied") }) {
			t.Errorf("a kernel that can't be read: %s", text)
		}
	})
}

func TestBadQuestionsAreRefused(t *testing.T) {
	tr, err := New(Options{Services: func(types.NamespacedName) (*corev1.Service, []*discoveryv1.EndpointSlice, proxy.Here, bool) {
		t.Error("a Service was looked for")
		return nil, nil, proxy.Here{}, false
	}, Pod: func(context.Context, types.NamespacedName) (Pod, error) {
		return Pod{}, errors.New("pod default/none does not run on this node")
	}})
	must(t, err)
	for query, want := range map[string]struct {
		code int
		text string
	}{
		"":                              {400, "namespace and service are missing"},
		"namespace=default&service=web": {400, "parameter target"},
		"namespace=default&service=web&target=10.0.0.1:99999":                         {400, "parameter target"},
		"namespace=default&service=web&target=web&target=api":                         {400, `parameter \"target\"`},
		"namespace=default&service=web&target=web&dial=10.0.0.1":                      {400, `parameter \"dial\"`},
		"namespace=default&service=web&target=web&fromPod=a":                          {400, "both of fromNamespace and fromPod"},
		"namespace=default&service=web&target=web&fromNamespace=default&fromPod=none": {422, "does not run on this node"},
	} {
		if code, text, _ := asked(t, tr, query); code != want.code || !strings.Contains(text, want.text) || !strings.Contains(text, `"kind":"Status"`) {
			t.Errorf("%q: %d %s, want %d with %q", query, code, text, want.code, want.text)
		}
	}
	for range maxQuestions {
		tr.slots <- struct{}{}
	}
	if code, text, _ := asked(t, tr, "namespace=default&service=web&target=web"); code != http.StatusTooManyRequests {
		t.Errorf("when it is busy: %d %s", code, text)
	}
	if _, err := New(Options{}); err == nil {
		t.Error("New without Services succeeds")
	}
}
