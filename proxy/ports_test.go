package proxy_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/proxy"
)

// service is web in default at 10.0.0.1, port http 80.
func service(change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.0.0.1",
			Ports:     []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
	if change != nil {
		change(s)
	}
	return s
}

// endpoint is one with the given conditions: r(eady), s(erving), t(erminating).
func endpoint(addr, conditions string) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{addr}}
	has := func(c rune) *bool {
		for _, x := range conditions {
			if x == c {
				return new(true)
			}
		}
		return new(false)
	}
	if conditions != "unset" {
		e.Conditions = discoveryv1.EndpointConditions{Ready: has('r'), Serving: has('s'), Terminating: has('t')}
	}
	return e
}

func slice(port string, number int32, es ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new(port), Port: new(number), Protocol: new(corev1.ProtocolTCP)}},
		Endpoints:   es,
	}
}

func addrs(as ...string) []netip.AddrPort {
	var r []netip.AddrPort
	for _, a := range as {
		r = append(r, netip.MustParseAddrPort(a))
	}
	return r
}

func TestPorts(t *testing.T) {
	port := func(change func(*proxy.Port)) proxy.Port {
		p := proxy.Port{
			PortID:    proxy.PortID{Service: types.NamespacedName{Namespace: "default", Name: "web"}, Port: "http", Protocol: corev1.ProtocolTCP},
			Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
			Number:    80,
		}
		change(&p)
		return p
	}
	tests := []struct {
		name   string
		svc    *corev1.Service
		slices []*discoveryv1.EndpointSlice
		want   []proxy.Port
	}{
		{"no service", nil, nil, nil},
		{"headless", service(func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }), nil, nil},
		{"no address yet", service(func(s *corev1.Service) { s.Spec.ClusterIP = "" }), nil, nil},
		{"an external name", service(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }), nil, nil},
		{"an address of another family", service(func(s *corev1.Service) { s.Spec.ClusterIP = "fd00::1" }), nil, nil},
		{"no endpoints", service(nil), nil, []proxy.Port{port(func(*proxy.Port) {})}},
		{
			"ready ones, sorted, each once, from several slices", service(nil),
			[]*discoveryv1.EndpointSlice{
				slice("http", 8080, endpoint("10.1.0.9", "rs"), endpoint("10.1.0.2", "rs")),
				slice("http", 8080, endpoint("10.1.0.2", "rs"), endpoint("10.1.0.5", "unset"), endpoint("10.1.0.6", "")),
			},
			[]proxy.Port{port(func(p *proxy.Port) { p.Backends = addrs("10.1.0.2:8080", "10.1.0.5:8080", "10.1.0.9:8080") })},
		},
		{
			"terminating ones rest while one is ready", service(nil),
			[]*discoveryv1.EndpointSlice{slice("http", 8080, endpoint("10.1.0.2", "st"), endpoint("10.1.0.3", "rs"))},
			[]proxy.Port{port(func(p *proxy.Port) { p.Backends = addrs("10.1.0.3:8080") })},
		},
		{
			"terminating ones serve when no other is left", service(nil),
			[]*discoveryv1.EndpointSlice{slice("http", 8080, endpoint("10.1.0.2", "st"), endpoint("10.1.0.3", "t"), endpoint("10.1.0.4", "s"))},
			[]proxy.Port{port(func(p *proxy.Port) { p.Backends = addrs("10.1.0.2:8080") })},
		},
		{
			"endpoints of another port are not ours", service(nil),
			[]*discoveryv1.EndpointSlice{slice("metrics", 9090, endpoint("10.1.0.2", "rs"))},
			[]proxy.Port{port(func(*proxy.Port) {})},
		},
		{
			"node port, external address, affinity",
			service(func(s *corev1.Service) {
				s.Spec.Ports[0].NodePort = 30080
				s.Spec.ExternalIPs = []string{"10.9.9.9", "10.0.0.1", "nonsense"}
				s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			}), nil,
			[]proxy.Port{port(func(p *proxy.Port) {
				p.NodePort = 30080
				p.Addresses = append(p.Addresses, netip.MustParseAddr("10.9.9.9"))
				p.Affinity = 3 * time.Hour
			})},
		},
		{
			"affinity with its timeout",
			service(func(s *corev1.Service) {
				s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
				s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(7))}}
			}), nil,
			[]proxy.Port{port(func(p *proxy.Port) { p.Affinity = 7 * time.Second })},
		},
		{"a protocol that is not carried", service(func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolSCTP }), nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := proxy.Ports(tt.svc, tt.slices)
			if d := cmp.Diff(tt.want, got, cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}), cmpopts.EquateEmpty()); d != "" {
				t.Errorf("Ports (-want +got):\n%s", d)
			}
		})
	}
}
