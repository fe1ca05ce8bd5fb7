package proxy_test

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sampan-io/sampan/proxy"
)

// FuzzPlan has addresses and annotations that users with write access to Services and
// EndpointSlices can choose. No rule leads from or to an address that means this host or a link,
// and invalid settings are reported.
func FuzzPlan(f *testing.F) {
	f.Add("10.244.0.3", "192.0.2.80", "192.0.2.81", "userspace", "v2", "true", "100", "198.51.100.0/24")
	f.Add("10.96.0.2", "10.96.0.3", "fd00:96::3", "kernel", "v1", "false", "1", "")
	f.Add("127.0.0.1", "127.0.0.1", "::ffff:127.0.0.1", "kernel", "v3", "yes", "-1", "0.0.0.0/0,::/0")
	f.Add("fe80::1%eth0", "::1", "0.0.0.0", "", "", "", "", "x")
	f.Add("0x7f.1", "2130706433", "127.1", "USERSPACE", "1", "TRUE", "1e9", "::ffff:10.0.0.0/104")
	f.Fuzz(func(t *testing.T, backend, external, ingress, mode, protocol, keep, limit, sources string) {
		svc := service(func(s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeLoadBalancer
			s.Spec.ClusterIPs = []string{"10.96.0.1", "fd00:96::1"}
			s.Spec.ExternalIPs = []string{external}
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: ingress}}
			s.Annotations = map[string]string{
				proxy.ModeAnnotation: mode, proxy.ProxyProtocolAnnotation: protocol, proxy.KeepClientAnnotation: keep,
				proxy.MaxConnectionsAnnotation: limit, corev1.AnnotationLoadBalancerSourceRangesKey: sources,
			}
		})
		four, six := slice("http", 8080, endpoint(backend, "rs")), slice("http", 8080, endpoint(backend, "rs"))
		six.AddressType = discoveryv1.AddressTypeIPv6
		p := proxy.NewPlan(svc, []*discoveryv1.EndpointSlice{four, six}, proxy.Here{Node: "n1", Services: serviceNetworks})
		inServices := func(a netip.Addr) bool { return serviceNetworks[0].Contains(a) || serviceNetworks[1].Contains(a) }
		faults := map[string]bool{}
		for _, fault := range p.Faults {
			if fault.Reason == "" || fault.Message == "" {
				t.Errorf("a fault without words: %+v", fault)
			}
			faults[fault.Reason] = true
		}
		if mode != "userspace" && mode != "kernel" && !faults["InvalidAnnotation"] {
			t.Errorf("the mode %q is no fault", mode)
		}
		for _, r := range p.Rules {
			if refusedAddress(r.Address) || inServices(r.Address) && !slices.Contains(svc.Spec.ClusterIPs, r.Address.String()) {
				t.Errorf("a rule for %v", r.Frontend)
			}
			for _, b := range r.Backends {
				if refusedAddress(b.Addr()) || inServices(b.Addr()) || b.Addr().Is6() != r.Address.Is6() {
					t.Errorf("%v leads to %v", r.Frontend, b)
				}
			}
			for _, n := range r.Sources {
				if n != n.Masked() || n.Addr().Is6() != r.Address.Is6() {
					t.Errorf("%v lets %v in", r.Frontend, n)
				}
			}
		}
		for _, pool := range p.Pools {
			if pool.MaxConnections < 0 || pool.ProxyProtocol < 0 || pool.ProxyProtocol > 2 {
				t.Errorf("a pool is %+v", pool)
			}
		}
		if a, err := netip.ParseAddr(external); err == nil && !refusedAddress(a) && !inServices(a) && len(p.Rules) < 3 {
			t.Errorf("nothing for the external IP %v", a)
		}
	})
}
