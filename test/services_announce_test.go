package test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/test/hosts"
)

// TestAddressesOfLoadBalancersAreAnnounced runs a cluster with a real node on a node of the world. Hosts on
// its link reach a Service at its load balancer address, without a route to it.
func TestAddressesOfLoadBalancersAreAnnounced(t *testing.T) {
	w := newServicesWorld(t)
	const pool = "192.168.7.200-192.168.7.203"
	stop := w.withCluster("--service-network="+hosts.Services[0].String(), "--pod-network=10.77.0.0/16", "--load-balancer-addresses="+pool)
	w.families = 1
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
	target := netip.AddrPortFrom(at, servicePort)
	for _, from := range []*hosts.Host{w.Client, w.Far, w.Nodes[1].Host, w.Nodes[0].Host, w.Nodes[0].Pods[2], w.Nodes[2].Pods[0]} {
		for _, network := range []string{"tcp", "udp"} {
			var got hosts.Answer
			var err error
			for began := time.Now(); time.Since(began) < time.Minute; { // it is announced in a moment
				if got, err = from.Ask(network, target, silence); err == nil {
					break
				}
			}
			if err != nil || !strings.HasPrefix(got.Server, "pod1") {
				w.wrong(1, "%s asks %s over %s: %v, %v", from.Name, target, network, got, err)
			}
		}
	}
	stop()
	if got, err := w.Client.Ask("tcp", target, silence); !errors.Is(err, hosts.ErrSilent) && !errors.Is(err, hosts.ErrUnreachable) {
		t.Errorf("after the cluster has ended %s is still answered for: %v, %v", at, got, err)
	}
}

// TestOneNodeOfThreeAnnouncesAnAddress has a proxy on each node that announces addresses. Each address is at one
// of them, and a client finds it again where it goes when a node is not Ready any more or its proxy is stopped.
func TestOneNodeOfThreeAnnouncesAnAddress(t *testing.T) {
	w := newServicesWorld(t)
	w.withStandIn()
	ready := func(node string, is corev1.ConditionStatus) {
		t.Helper()
		n, err := w.cs.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		if err == nil {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: is}}
			_, err = w.cs.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range w.Nodes {
		ready(n.Name, corev1.ConditionTrue)
	}
	const services = 6
	var all []netip.Addr
	for i := range services {
		svc := &service{name: fmt.Sprintf("announced-%d", i), number: i + 1, nodePort: true, balanced: true, userspace: i%2 == 1, members: members("pod1a", "pod2a", "pod3a")}
		o := svc.object(w.World, 2)
		for _, wire := range []string{"192.168.7.0/24", "fd07::/64"} {
			a := hosts.At(netip.MustParsePrefix(wire), 200+i)
			all = append(all, a)
			o.Status.LoadBalancer.Ingress = append(o.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a.String()})
		}
		w.post(o)
		for f := range 2 {
			w.postSlice(svc.slice(w.World, f))
		}
	}
	w.startProxies("--announce-load-balancers")
	w.caughtUp()

	// where blocks until each address is at exactly one node, and that is one of these; the client reaches it there.
	where := func(nodes ...int) map[netip.Addr]string {
		t.Helper()
		var who map[netip.Addr]string
		for began := time.Now(); ; {
			who = map[netip.Addr]string{}
			good := true
			for i, n := range w.Nodes {
				out, _ := n.Output("ip", "-o", "addr", "show", "dev", "spl")
				for _, a := range all {
					if strings.Contains(out, " "+a.String()+"/") {
						good = good && who[a] == "" && slices.Contains(nodes, i+1)
						who[a] = n.Name
					}
				}
			}
			if good && len(who) == len(all) {
				break
			}
			if time.Since(began) > time.Minute {
				t.Fatalf("after a minute addresses are at %v, want each at one of %v", who, nodes)
			}
			<-time.After(20 * time.Millisecond)
		}
		for _, a := range all {
			for _, network := range []string{"tcp", "udp"} {
				if got, err := w.Client.Ask(network, netip.AddrPortFrom(a, servicePort), patient); err != nil || !strings.HasSuffix(got.Server, "a") {
					w.wrong(1, "the client asks %s, which is at %s, over %s: %v, %v", a, who[a], network, got, err)
				}
			}
		}
		return who
	}
	before := where(1, 2, 3)
	stays := func(now map[netip.Addr]string, gone string) {
		t.Helper()
		for a, node := range before {
			if node != gone && now[a] != node {
				t.Errorf("%s has gone, and %s moved from %s to %s", gone, a, node, now[a])
			}
		}
	}
	ready("node2", corev1.ConditionUnknown)
	stays(where(1, 3), "node2")
	ready("node2", corev1.ConditionTrue)
	stays(where(1, 2, 3), "")
	if err := w.proxies[2].Stop(); err != nil {
		t.Errorf("stopping a proxy: %v\n%s", err, w.proxies[2].Said())
	}
	stays(where(1, 2), "node3")
	for i := range 2 {
		_ = w.proxies[i].Stop()
		if out, err := w.Nodes[i].Output("ip", "-o", "link", "show", "dev", "spl"); err == nil {
			t.Errorf("%s still has the link: %s", w.Nodes[i].Name, out)
		}
	}
}
