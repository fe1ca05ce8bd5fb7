package nodes_test

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Pods have an address of each network, which stay their own when the agent comes back.
func TestPodsHaveAddressesOfEachNetwork(t *testing.T) {
	for name, networks := range map[string][]string{
		"IPv4 first": {"10.0.0.0/16", "fd01::/56"}, "IPv6 first": {"fd01::/56", "10.0.0.0/16"}, "IPv6": {"fd01::/56"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, "")
				r.networks = networks
				stop := r.start()
				cidrs := r.node("n-1").Spec.PodCIDRs
				if len(cidrs) != len(networks) || r.node("n-1").Spec.PodCIDR != cidrs[0] {
					t.Fatalf("the node has the networks %v", cidrs)
				}
				owner := map[string]string{}
				look := func(pod string) []corev1.PodIP {
					t.Helper()
					time.Sleep(time.Second)
					synctest.Wait()
					s := r.pod(pod).Status
					if len(s.PodIPs) != len(networks) || s.PodIPs[0].IP != s.PodIP {
						t.Fatalf("pod %s has the addresses %s, %v", pod, s.PodIP, s.PodIPs)
					}
					for i, ip := range s.PodIPs {
						if other := owner[ip.IP]; other != "" && other != pod {
							t.Errorf("%s and %s have the address %s", pod, other, ip.IP)
						}
						if owner[ip.IP] = pod; !netip.MustParsePrefix(cidrs[i]).Contains(netip.MustParseAddr(ip.IP)) {
							t.Errorf("pod %s has the address %s, want one of %s", pod, ip.IP, cidrs[i])
						}
					}
					return s.PodIPs
				}
				for _, pod := range []string{"a", "b", "c"} {
					r.create(newPod(pod, "n-1"))
					look(pod)
				}
				stop()
				stop = r.start()
				defer stop()
				for _, pod := range []string{"d", "a", "b", "c"} {
					if pod == "d" {
						r.create(newPod(pod, "n-1"))
					}
					look(pod)
				}
			})
		})
	}
}
