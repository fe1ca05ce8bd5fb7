package hosts_test

import (
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/sampan-io/sampan/test/hosts"
)

// TestEverybodyReachesEveryPod looks at the network itself: all that is found with it
// later stands on this.
func TestEverybodyReachesEveryPod(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for network namespaces")
	}
	w, err := hosts.New(2)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	const port = 8080
	from := []*hosts.Host{w.Client, w.Far}
	for _, n := range w.Nodes {
		from = append(append(from, n.Host), n.Pods...)
	}
	for _, n := range w.Nodes {
		for _, p := range n.Pods {
			s, err := p.Serve(port)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for _, h := range from {
				for f := range 2 {
					for _, network := range []string{"tcp", "udp"} {
						got, err := h.Ask(network, netip.AddrPortFrom(p.IP[f], port), 10*time.Second)
						if err != nil || got.Server != p.Name {
							t.Errorf("%s asks %s over %s at %s: %v, %v", h.Name, p.Name, network, p.IP[f], got, err)
						}
					}
				}
			}
		}
	}
	for f, nowhere := range []string{"203.0.113.1", "2001:db8::1"} {
		for _, h := range []*hosts.Host{w.Nodes[0].Pods[0], w.Nodes[1].Host, w.Far} {
			if got, err := h.Ask("tcp", netip.AddrPortFrom(netip.MustParseAddr(nowhere), port), 10*time.Second); !errors.Is(err, hosts.ErrUnreachable) {
				t.Errorf("%s asks %s: %v, %v, want that it is unreachable (family %d)", h.Name, nowhere, got, err, f)
			}
		}
	}
}
