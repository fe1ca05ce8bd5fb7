package routes

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// node returns a node that was created so many seconds after others, with an internal address and pod networks.
func node(name string, age int, address string, networks ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(int64(1000+age), 0))}}
	n.Spec.PodCIDRs = networks
	for a := range strings.SplitSeq(address, ",") {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

func prefixes(all ...string) (out []netip.Prefix) {
	for _, text := range all {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

func TestPlan(t *testing.T) {
	for _, tt := range []struct {
		name   string
		nodes  []*corev1.Node
		want   []string
		faults []string
	}{
		{"alone", []*corev1.Node{node("self", 0, "192.0.2.1", "10.244.0.0/24")}, nil, nil},
		{"two", []*corev1.Node{node("self", 0, "192.0.2.1", "10.244.0.0/24"), node("a", 1, "192.0.2.2", "10.244.1.0/24")}, []string{"10.244.1.0/24 192.0.2.2"}, nil},
		{"no address yet", []*corev1.Node{node("a", 1, "", "10.244.1.0/24")}, nil, nil},
		{"no network yet", []*corev1.Node{node("a", 1, "192.0.2.2")}, nil, nil},
		{
			"both families",
			[]*corev1.Node{node("a", 1, "fd01::2,192.0.2.2", "10.244.1.0/24", "fd00:0:0:1::/64")},
			[]string{"10.244.1.0/24 192.0.2.2", "fd00:0:0:1::/64 fd01::2"},
			nil,
		},
		{
			"the older node has a network",
			[]*corev1.Node{node("young", 2, "192.0.2.3", "10.244.1.0/25"), node("old", 1, "192.0.2.2", "10.244.1.0/24")},
			[]string{"10.244.1.0/24 192.0.2.2"},
			[]string{"the pod network 10.244.1.0/25 of node young overlaps 10.244.1.0/24 of another node"},
		},
		{
			"its own network is safe",
			[]*corev1.Node{node("a", 1, "192.0.2.2", "10.244.0.0/25")},
			nil,
			[]string{"the pod network 10.244.0.0/25 of node a overlaps 10.244.0.0/24 of another node"},
		},
		{
			"outside of the cluster",
			[]*corev1.Node{node("a", 1, "192.0.2.2", "198.51.100.0/24")},
			nil,
			[]string{"the pod network 198.51.100.0/24 of node a is not within those of the cluster, [10.244.0.0/16 fd00::/48]"},
		},
		{"by a pod", []*corev1.Node{node("a", 1, "10.244.0.7", "10.244.1.0/24")}, nil, nil},
		{"by loopback", []*corev1.Node{node("a", 1, "127.0.0.1", "10.244.1.0/24")}, nil, nil},
	} {
		routes, faults := Plan(tt.nodes, "self", prefixes("10.244.0.0/16", "fd00::/48"), prefixes("10.244.0.0/24", "fd00::/64"))
		var got []string
		for _, r := range routes {
			if r.Via.IsValid() {
				got = append(got, r.To.String()+" "+r.Via.String())
			}
		}
		if !slices.Equal(got, tt.want) || len(routes) != len(got)+2 {
			t.Errorf("%s: the routes are %v, want %v and two that refuse", tt.name, routes, tt.want)
		}
		if !slices.Equal(faults, tt.faults) {
			t.Errorf("%s: the faults are %q, want %q", tt.name, faults, tt.faults)
		}
	}
	// A cluster whose only other node claims all of its pods.
	if routes, faults := Plan([]*corev1.Node{node("a", 1, "192.0.2.2", "10.244.0.0/16")}, "self", prefixes("10.244.0.0/16"), nil); len(routes) != 1 || len(faults) != 1 {
		t.Errorf("a node that claims all pods gets %v, %v", routes, faults)
	}
}
