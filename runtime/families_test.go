package runtime_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/runtime/runtimetest"
)

// ips returns the addresses in the CRI status of a pod, the primary one first.
func (n *node) ips(k *runtimetest.Kit, pod string) []string {
	n.t.Helper()
	st, err := n.runtime.PodSandboxStatus(k.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: pod})
	if err != nil {
		n.t.Fatal(err)
	}
	net := st.GetStatus().GetNetwork()
	all := []string{net.GetIp()}
	for _, more := range net.GetAdditionalIps() {
		all = append(all, more.GetIp())
	}
	return all
}

// What an unmodified kubelet hears of a pod's addresses, and what pods of both families
// can do, over the death of the runtime.
func TestPodsHaveAddressesOfEachFamily(t *testing.T) {
	for _, tt := range []struct{ name, pods, services string }{
		{"IPv4 first", "10.99.0.0/24,fd99::/64", "10.98.0.0/24,fd98::/112"},
		{"IPv6 first", "fd99::/64,10.99.0.0/24", "fd98::/112,10.98.0.0/24"},
		{"IPv6 alone", "fd99::/64", "fd98::/112"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			n.flag("--pod-cidr", tt.pods)
			n.flag("--service-cidr", tt.services)
			n.start().withDemo()
			k := n.kit()
			networks := strings.Split(tt.pods, ",")
			server := k.Pod(k.PodConfig("server"))
			web, _ := k.ContainerIn(server, k.PodConfig("server"), k.ContainerConfig("web", "serve"))
			ips := n.ips(k, server)
			if len(ips) != len(networks) {
				t.Fatalf("the pod has the addresses %v, want one of each of %v", ips, networks)
			}
			for {
				if _, _, code := k.Exec(web, "get", "http://localhost/healthz"); code == 0 {
					break
				}
				if st := k.Status(web); st.GetState() != cri.ContainerState_CONTAINER_RUNNING {
					t.Fatalf("the web server ended: %v", st)
				}
			}
			client := k.Pod(k.PodConfig("client"))
			for i, ip := range ips {
				if !netip.MustParsePrefix(networks[i]).Contains(netip.MustParseAddr(ip)) {
					t.Errorf("address %d is %s, want one of %s", i, ip, networks[i])
				}
				host := netip.AddrPortFrom(netip.MustParseAddr(ip), 80)
				out := k.OutputOf(client, k.PodConfig("client"), k.ContainerConfig("get"+string(rune('a'+i)), "get", "http://"+host.String()+"/"))
				if !strings.Contains(out, "pod server") {
					t.Errorf("at %s the other pod answers %q", host, out)
				}
				if hosts, _, _ := k.Exec(web, "read", "/etc/hosts"); !strings.Contains(hosts, ip+"\tserver\n") {
					t.Errorf("/etc/hosts of the pod does not name %s:\n%s", ip, hosts)
				}
			}
			if info := n.info(); info.GetPodCidr() != tt.pods || info.GetServiceCidr() != tt.services {
				t.Errorf("the runtime says that it has the networks %s and %s", info.GetPodCidr(), info.GetServiceCidr())
			}
			// As an upstream kubelet does with the networks of its node.
			for cidr, fine := range map[string]bool{tt.pods: true, "10.1.0.0/24": false} {
				_, err := n.runtime.UpdateRuntimeConfig(k.Context(), &cri.UpdateRuntimeConfigRequest{RuntimeConfig: &cri.RuntimeConfig{NetworkConfig: &cri.NetworkConfig{PodCidr: cidr}}})
				if (err == nil) != fine {
					t.Errorf("a pod network of %s: %v", cidr, err)
				}
			}
			n.kill()
			n.start()
			k = n.kit()
			if again := n.ips(k, server); !slices.Equal(again, ips) {
				t.Errorf("after a restart of the runtime the addresses are %v, before %v", again, ips)
			}
			for _, ip := range n.ips(k, k.Pod(k.PodConfig("later"))) {
				if slices.Contains(ips, ip) {
					t.Errorf("%s was given to a second pod", ip)
				}
			}
		})
	}
}
