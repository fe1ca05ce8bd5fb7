package reserved_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/reserved"
)

var (
	own = slices.Concat(reserved.TCP(53, 6443, 9153, 10250, 0), reserved.UDP(53))
	all = reserved.Addresses{
		Nodes:   addresses("10.0.0.1", "10.0.0.2", "2001:db8::2"),
		Servers: addresses("10.0.9.9"),
		Host:    addresses("10.0.0.1", "192.0.2.10", "2001:db8::10"),
		Pods:    []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/56")},

		Resolvers: addresses("192.0.2.53"),
		Gateways:  addresses("192.0.2.1", "2001:db8::1"),
	}
)

func addresses(texts ...string) (as []netip.Addr) {
	for _, text := range texts {
		as = append(as, netip.MustParseAddr(text))
	}
	return as
}

func TestPorts(t *testing.T) {
	for _, c := range []struct {
		protocol corev1.Protocol
		number   int32
		want     bool
	}{
		{corev1.ProtocolUDP, 53, true},
		{corev1.ProtocolTCP, 53, true},
		{corev1.ProtocolSCTP, 53, false},
		{"", 10250, true},
		{corev1.ProtocolUDP, 10250, false},
		{corev1.ProtocolTCP, 9153, true},
		{corev1.ProtocolTCP, 0, false},
		{corev1.ProtocolTCP, 80, false},
	} {
		if got := own.Has(c.protocol, c.number); got != c.want {
			t.Errorf("port %d/%s: reserved is %v, want %v", c.number, c.protocol, got, c.want)
		}
	}
}

func TestAddresses(t *testing.T) {
	const (
		tcp = "this host, whose port 10250/TCP is one of the cluster's own servers"
		udp = "this host, whose port 53/UDP is one of the cluster's own servers"
	)
	for _, c := range []struct {
		ip                      string
		port                    int32
		protocol                corev1.Protocol
		wantExternal, wantValue string
	}{
		{"10.0.0.1", 80, "", "a node", "a node"},    // this node
		{"10.0.0.2", 80, "", "a node", "a node"},    // another node
		{"2001:db8::2", 80, "", "a node", "a node"}, // of the other family
		{"10.0.9.9", 443, "", "the API server", "the API server"},
		{"10.244.0.1", 53, corev1.ProtocolUDP, "the pod network", "the pod network"}, // the address of a bridge
		{"10.244.7.9", 80, "", "the pod network", "the pod network"},
		{"fd00:244:0:7::9", 80, "", "the pod network", "the pod network"},
		{"192.0.2.10", 80, "", "this host", ""}, // such as one of kube-vip
		{"192.0.2.10", 10250, "", "this host", tcp},
		{"192.0.2.10", 10250, corev1.ProtocolUDP, "this host", ""},
		{"2001:db8::10", 53, corev1.ProtocolUDP, "this host", udp},
		{"192.0.2.11", 10250, "", "", ""},
		{"192.0.2.53", 53, corev1.ProtocolUDP, "a name server of this host", "a name server of this host"},
		{"192.0.2.53", 80, "", "a name server of this host", "a name server of this host"},
		{"2001:db8::1", 80, "", "a gateway of this host", "a gateway of this host"},
		{"::ffff:10.0.0.1", 80, "", "", ""}, // other checks refuse it
		{"198.51.100.7", 53, corev1.ProtocolUDP, "", ""},
	} {
		ip := netip.MustParseAddr(c.ip)
		if got := all.External(ip); got != c.wantExternal {
			t.Errorf("external IP %s belongs to %q, want %q", ip, got, c.wantExternal)
		}
		if got := all.Balanced(ip, own, c.protocol, c.port); got != c.wantValue {
			t.Errorf("load balancer address %s, port %d/%s, belongs to %q, want %q", ip, c.port, c.protocol, got, c.wantValue)
		}
	}
	if got := (reserved.Addresses{}).External(netip.MustParseAddr("10.0.0.1")); got != "" {
		t.Errorf("without addresses, 10.0.0.1 belongs to %q", got)
	}
}

// Nodes may share an address: that of one that goes stays reserved for the other.
func TestReplace(t *testing.T) {
	one := addresses("10.0.0.1", "10.0.0.2")
	two := reserved.Replace(one, nil, addresses("10.0.0.2", "10.0.0.0"))
	if want := addresses("10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.2"); !slices.Equal(two, want) {
		t.Errorf("got %v, want %v", two, want)
	}
	three := reserved.Replace(two, addresses("10.0.0.2", "10.0.0.7"), nil)
	if want := addresses("10.0.0.0", "10.0.0.1", "10.0.0.2"); !slices.Equal(three, want) {
		t.Errorf("got %v, want %v", three, want)
	}
	if want := addresses("10.0.0.1", "10.0.0.2"); !slices.Equal(one, want) {
		t.Errorf("the argument became %v", one)
	}
}

func TestAddNetworks(t *testing.T) {
	var list []netip.Prefix
	for _, c := range []struct{ add, want string }{
		{"10.244.1.0/24", "[10.244.1.0/24]"},
		{"10.244.0.0/24", "[10.244.0.0/24 10.244.1.0/24]"},
		{"fd00:1::/64", "[10.244.0.0/24 10.244.1.0/24 fd00:1::/64]"},
		{"10.244.1.128/25", "[10.244.0.0/24 10.244.1.0/24 fd00:1::/64]"},
		{"10.244.0.0/16", "[10.244.0.0/16 fd00:1::/64]"},
		{"10.245.3.7/24", "[10.244.0.0/16 10.245.3.0/24 fd00:1::/64]"},
	} {
		list = reserved.AddNetworks(list, netip.MustParsePrefix(c.add))
		if got := fmt.Sprint(list); got != c.want {
			t.Errorf("after %s: %s, want %s", c.add, got, c.want)
		}
	}
	a := reserved.Addresses{Pods: list}
	for ip, want := range map[string]bool{"10.243.255.255": false, "10.244.0.0": true, "10.244.255.255": true, "10.245.2.255": false, "10.245.3.9": true, "fd00:1::9": true, "fd00:2::": false, "1.1.1.1": false} {
		if got := a.External(netip.MustParseAddr(ip)) != ""; got != want {
			t.Errorf("%s is refused: %v, want %v", ip, got, want)
		}
	}
}
