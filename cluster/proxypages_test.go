package cluster

import (
	"slices"
	"testing"

	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/internal/reserved"
)

// The ports of a node's own servers, with their protocols, include those of the service proxy's pages.
func TestOwnPorts(t *testing.T) {
	for _, c := range []struct {
		health, metrics string
		want            reserved.Ports
	}{
		{"", "", reserved.TCP(10250, 6443, 10256, 10249)},
		{"192.0.2.1:9000", "[::1]:9001", reserved.TCP(10250, 6443, 9000, 9001)},
		{local.NoAddress, local.NoAddress, reserved.TCP(10250, 6443)},
	} {
		one := &cluster{Options: Options{Settings: local.Settings{ProxyHealth: c.health, ProxyMetrics: c.metrics}}}
		if got := one.ownPorts(6443); !slices.Equal(got, c.want) {
			t.Errorf("health %q, metrics %q: %v, want %v", c.health, c.metrics, got, c.want)
		}
	}
}
