package test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/test/hosts"
)

// secretPort is that of servers which only their own host is to reach.
const secretPort = 9999

// TestHostileEndpointsAreNotReached has EndpointSlices that no API server should store, with addresses
// that mean another host to each host: no client reaches a server there through a Service.
func TestHostileEndpointsAreNotReached(t *testing.T) {
	w := newServicesWorld(t)
	w.withStandIn()
	victim := w.Nodes[0]
	linkLocal := netip.MustParsePrefix("169.254.10.1/16")
	if err := victim.Address("eth1", linkLocal); err != nil {
		t.Fatal(err)
	}
	secret, err := victim.Serve(secretPort)
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()

	targets := [2][]string{
		{"127.0.0.1", "127.8.8.8", "0.0.0.0", linkLocal.Addr().String(), "224.0.0.1", "255.255.255.255", "10.96.0.77", "::1"},
		{"::1", "::", "::ffff:127.0.0.1", "::ffff:169.254.10.1", "fe80::1", "ff02::1", "fd96::77", "127.0.0.1"},
	}
	n := 0
	type attempt struct {
		svc *service
		f   int
	}
	var attempts []attempt
	for f := range 2 {
		for _, target := range targets[f] {
			for _, userspace := range []bool{false, true} {
				n++
				svc := &service{name: fmt.Sprintf("hostile-%d", n), number: n, userspace: userspace}
				o, slice := svc.object(w.World, 2), svc.slice(w.World, f)
				w.post(o)
				for i := range slice.Ports {
					slice.Ports[i].Port = new(int32(secretPort))
				}
				slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{target}, NodeName: &victim.Name}}
				w.postSlice(slice)
				attempts = append(attempts, attempt{svc, f})
			}
		}
	}
	good := &service{name: "good", number: 200, members: members("pod1a", "pod2a")}
	w.create(good)
	w.startProxies()
	w.caughtUp()
	for _, a := range attempts {
		for _, from := range []*hosts.Host{victim.Pods[2], victim.Host, w.Client} {
			for _, network := range []string{"tcp", "udp"} {
				got, err := from.Ask(network, netip.AddrPortFrom(a.svc.clusterIP(a.f), servicePort), patient)
				if !errors.Is(err, hosts.ErrRefused) {
					w.wrong(1, "%s: %s asks over %s: %v, %v, want that it is refused", a.svc.name, from.Name, network, got, err)
				}
			}
		}
	}
	if n := secret.Connections.Load(); n > 0 {
		t.Errorf("%d connections were made to a server that only its host is to reach", n)
	}
	w.matrix([]service{*good})
}

// TestServicesDontTakeWhatIsTheHosts has Services at addresses that every host has for itself.
func TestServicesDontTakeWhatIsTheHosts(t *testing.T) {
	w := newServicesWorld(t)
	w.withStandIn()
	victim := w.Nodes[0]
	secret, err := victim.Serve(secretPort)
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	for i, userspace := range []bool{false, true} {
		svc := &service{name: fmt.Sprintf("taker-%d", i), number: i + 1, userspace: userspace, external: true, nodePort: true, members: members("pod1a")}
		o := svc.object(w.World, 2)
		o.Spec.ExternalIPs = []string{"127.0.0.1", "::1", "0.0.0.0", "::", "169.254.10.1", "fe80::1"}
		for j := range o.Spec.Ports {
			o.Spec.Ports[j].Port, o.Spec.Ports[j].NodePort = secretPort, 0
		}
		w.post(o)
		for f := range 2 {
			w.postSlice(svc.slice(w.World, f))
		}
	}
	w.startProxies()
	w.caughtUp()
	for _, own := range []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback(), victim.IP[0], victim.IP[1]} {
		for _, network := range []string{"tcp", "udp"} {
			if got, err := victim.Ask(network, netip.AddrPortFrom(own, secretPort), patient); err != nil || got.Server != victim.Name {
				w.wrong(1, "%s asks itself at %s over %s: %v, %v", victim.Name, own, network, got, err)
			}
		}
	}
}

// TestServicesThatLeadToThemselves has relayed Services whose endpoint is their own node port. The forwarder is
// not to talk to itself until it has no more descriptors.
func TestServicesThatLeadToThemselves(t *testing.T) {
	w := newServicesWorld(t)
	w.withStandIn()
	good := &service{name: "good", number: 100, userspace: true, nodePort: true, members: members("pod1a", "pod2a")}
	w.create(good)
	svc := &service{name: "loop", number: 1, userspace: true, nodePort: true}
	w.post(svc.object(w.World, 2))
	for f := range 2 {
		slice := svc.slice(w.World, f)
		for i := range slice.Ports {
			slice.Ports[i].Port = new(int32(svc.nodePorts()))
		}
		slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{w.Nodes[0].IP[f].String()}}}
		w.postSlice(slice)
	}
	w.startProxies()
	w.caughtUp()
	for f := range 2 {
		for _, network := range []string{"tcp", "udp"} {
			c, err := w.Client.Dial(network, netip.AddrPortFrom(w.Nodes[0].IP[f], svc.nodePorts()), patient)
			if err != nil {
				continue // refused, which is what it deserves
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(silence))
			if got, err := hosts.Who(c); err == nil {
				t.Errorf("%v answered at a Service that has nobody", got)
			}
			const many = 100 // descriptors: the proxy has some, a loop has thousands
			open, err := os.ReadDir(filepath.Join("/proc", fmt.Sprint(w.proxies[0].PID), "fd"))
			if err != nil || len(open) > many {
				w.wrong(1, "after one connection over %s to a Service that leads to itself the proxy has %d descriptors, %v", network, len(open), err)
			}
		}
	}
	w.matrix([]service{*good})
}

// post creates a Service as it is given.
func (s *servicesWorld) post(o *corev1.Service) {
	s.t.Helper()
	if _, err := s.cs.CoreV1().Services(o.Namespace).Create(s.t.Context(), o, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *servicesWorld) postSlice(o *discoveryv1.EndpointSlice) {
	s.t.Helper()
	if _, err := s.cs.DiscoveryV1().EndpointSlices(o.Namespace).Create(s.t.Context(), o, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}
