package cluster

import (
	"slices"

	"github.com/sampan-io/sampan/internal/reserved"
)

// ownPorts returns the ports on which this process listens on this host for others, which users must not take. The
// arguments are the ports that the API server has on this host.
func (c *cluster) ownPorts(api ...int32) reserved.Ports {
	own := slices.Concat(reserved.TCP(kubeletPort), reserved.TCP(api...), c.namePorts(), c.proxyPorts())
	if c.kubelet != nil && c.kubelet.HealthzPort != nil {
		own = append(own, reserved.TCP(*c.kubelet.HealthzPort)...)
	}
	return own
}
