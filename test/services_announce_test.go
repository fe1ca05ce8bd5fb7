package test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/test/hosts"
)

// TestAddressesOfLoadBalancersAreAnnounced runs a cluster with a real node on a node of the world. Whoever is
// on its link reaches a Service at an address that the cluster gives away, without a route to it.
func TestAddressesOfLoadBalancersAreAnnounced(t *testing.T) {
	w := newServicesWorld(t)
	const pool = "192.168.7.200-192.168.7.203"
	a, err := w.StartCluster(sampanProgram, t.TempDir(), 1,
		"--service-network="+hosts.Services[0].String(), "--pod-network=10.77.0.0/16", "--load-balancer-addresses="+pool)
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop := func() {
		if !stopped {
			if stopped = true; a.Process().Stop() != nil {
				t.Errorf("stopping the cluster: %v\n%s", a.Process().Err(), a.Process().Said())
			}
		}
	}
	t.Cleanup(stop)
	w.api, w.cs, w.families = a, clientset(t, a.Config), 1
	svc := &service{name: "announced", number: 1, nodePort: true, balanced: true, members: members("pod1a", "pod1b")}
	o := svc.object(w.World, 1)
	w.post(o)
	w.postSlice(svc.slice(w.World, 0))
	var at netip.Addr
	for began := time.Now(); !at.IsValid(); {
		o, err := w.cs.CoreV1().Services(o.Namespace).Get(t.Context(), o.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if in := o.Status.LoadBalancer.Ingress; len(in) > 0 {
			at = netip.MustParseAddr(in[0].IP)
		} else if time.Since(began) > time.Minute {
			t.Fatal("the Service has been given no address within a minute")
		}
	}
	door := netip.AddrPortFrom(at, servicePort)
	for _, from := range []*hosts.Host{w.Client, w.Far, w.Nodes[1].Host, w.Nodes[0].Host, w.Nodes[0].Pods[2], w.Nodes[2].Pods[0]} {
		for _, network := range []string{"tcp", "udp"} {
			var got hosts.Answer
			for began := time.Now(); time.Since(began) < time.Minute; { // it is announced in a moment
				if got, err = from.Ask(network, door, silence); err == nil {
					break
				}
			}
			if err != nil || !strings.HasPrefix(got.Server, "pod1") {
				w.wrong(1, "%s asks %s over %s: %v, %v", from.Name, door, network, got, err)
			}
		}
	}
	stop()
	if got, err := w.Client.Ask("tcp", door, silence); !errors.Is(err, hosts.ErrSilent) && !errors.Is(err, hosts.ErrUnreachable) {
		t.Errorf("after the cluster has ended %s is still answered for: %v, %v", at, got, err)
	}
}
