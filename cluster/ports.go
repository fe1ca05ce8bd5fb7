package cluster

import (
	"cmp"
	"net/netip"
	"net/url"
	"slices"
	"strconv"

	"github.com/sampan-io/sampan/internal/reserved"
)

// ownPorts returns the ports on which this process listens on this host for others, and those of loopback that it connects
// to itself, which users must not take: host ports of pods answer at loopback, too. The arguments are the ports that the API
// server has on this host.
func (c *cluster) ownPorts(api ...int32) reserved.Ports {
	own := slices.Concat(reserved.TCP(kubeletPort), reserved.TCP(api...), c.namePorts(), c.proxyPorts())
	if c.kubelet != nil && c.kubelet.HealthzPort != nil {
		own = append(own, reserved.TCP(*c.kubelet.HealthzPort)...)
	}
	return append(own, reserved.TCP(loopbackPort(c.audit.Target()))...)
}

// loopbackPort returns the port of a URL if its host is a loopback address, otherwise 0.
func loopbackPort(text string) int32 {
	u, err := url.Parse(text)
	if err != nil {
		return 0
	}
	if a, err := netip.ParseAddr(u.Hostname()); u.Hostname() != "localhost" && (err != nil || !a.Unmap().IsLoopback()) {
		return 0
	}
	usual := "443"
	if u.Scheme == "http" {
		usual = "80"
	}
	n, err := strconv.ParseInt(cmp.Or(u.Port(), usual), 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}
