package node

import (
	"errors"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/sampan-io/sampan/node/dra"
	"github.com/sampan-io/sampan/node/pluginregistry"
)

// openPlugins prepares the node for drivers of volumes (CSI) and of devices (DRA).
func (n *Node) openPlugins() error {
	if !n.files.MakeDrivers() {
		return nil
	}
	n.plugins.claims = dra.New(dra.Options{
		Root: n.files.Root(), Claim: n.resourceClaim, Wipe: n.wipeSlices, Registered: n.driverRegistered, Changed: n.nudge, Log: n.log,
	})
	n.plugins.registry = pluginregistry.New(pluginregistry.Options{
		Sockets: pluginregistry.Sockets(n.files.Root()), Log: n.log,
		Handlers: map[string]pluginregistry.Handler{registration.CSIPlugin: n.files.Plugins(), registration.DRAPlugin: n.plugins.claims},
	})
	n.metrics.Serve(n.files.DriverMetrics())
	n.metrics.Serve(n.plugins.claims.Metrics())
	n.metrics.Serve(n.plugins.registry.Metrics())
	return errors.Join(n.plugins.registry.Open(), n.files.OpenDrivers(), n.plugins.claims.Open())
}

// driverRegistered has pods try again that may wait for a driver.
func (n *Node) driverRegistered() {
	for _, w := range n.allWorkers() {
		w.post(func() {
			if m := &w.view.Memory; m.Setup.Reason == failedMount || m.Setup.Reason == failedPrepare {
				m.Setup.Retry = m.Setup.At
			}
		})
	}
}
