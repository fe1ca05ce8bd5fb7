//go:build !portable

package cluster

import (
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/routes"
)

// routes returns the part that keeps the routes to the pods of other nodes, if they can join. CNI plug-ins and other
// container runtimes connect pods in their own way.
func (c *cluster) routes(caches *cache.Shared) run.Stage {
	if len(c.Settings.Advertised()) == 0 || c.foreign() || c.Settings.CNIConfDir != "" {
		return nil
	}
	k := routes.New(routes.Options{Caches: caches, Node: c.Settings.NodeName, Pods: c.Settings.Pods.All(), Own: c.networks, Log: c.Log})
	return run.Stage{{Name: "routes to other nodes", Run: k.Run, Ready: k.Ready()}}
}
