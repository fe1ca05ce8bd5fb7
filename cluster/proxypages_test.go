package cluster

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/internal/reserved"
	"github.com/sampan-io/sampan/internal/run"
)

// TestTakenPortsAreWarnings has the ports of the pages taken by other programs: the node runs, and its state says so.
func TestTakenPortsAreWarnings(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().String()
	c := &cluster{Options: Options{Settings: local.Settings{ProxyHealth: taken, ProxyMetrics: taken}, Log: slog.New(slog.DiscardHandler)}}
	g := run.NewGroup(t.Context(), 0)
	defer g.Stop()
	for _, task := range c.proxyPages(nil, false) {
		g.Go(func(ctx context.Context) { _ = task.Run(ctx) })
		<-task.Ready
	}
	want := []string{"the health of the service proxy is not served: listen tcp " + taken, "the metrics of the service proxy are not served: listen tcp " + taken}
	got := c.warnings.list()
	if len(got) != len(want) {
		t.Fatalf("got %q", got)
	}
	for i, w := range want {
		if !strings.HasPrefix(got[i], w) || !strings.Contains(got[i], "or kube-proxy, may have the port; pass another address with --") {
			t.Errorf("got %q, want %q…", got[i], w)
		}
	}
}

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
