//go:build !portable

package cluster

import (
	"context"
	"strings"
	"sync"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/hostfirewall"
)

// ownTables is the beginning of the names of nftables tables of all clusters.
const ownTables = "sampan-"

// firewall returns the part that reports which chains of the host drop the packets of pods. How other container runtimes and
// CNI plug-ins connect pods is not known.
func (c *cluster) firewall(api access) run.Stage {
	if !c.real() || c.foreign() || c.Settings.CNIConfDir != "" {
		return nil
	}
	ready := make(chan struct{})
	return run.Stage{{Name: "condition about the host's packet filter", Ready: ready, Run: func(ctx context.Context) error {
		return hostfirewall.Run(ctx, hostfirewall.Options{
			Client: api.node(c.Settings.NodeName), Node: c.Settings.NodeName, Link: c.Profile.Bridge(),
			Own:   func(table string) bool { return strings.HasPrefix(table, ownTables) },
			Ready: sync.OnceFunc(func() { close(ready) }), Log: c.Log,
		})
	}}}
}
