//go:build !portable

package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/node/criclient"
)

// makeNodeLink makes the link that has the node's addresses. Sampan's own runtime has them on the bridge of its pods; where
// the pods of another runtime are connected is known to its CNI plug-ins only. They reach these addresses by their default
// routes. Services are routed to the link, so that programs of a host without a default route reach them.
func (c *cluster) makeNodeLink() error {
	name := c.Profile.Bridge()
	link, err := netlink.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		// A bridge without ports: every kernel that runs pods supports bridges.
		link = &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}
		err = netlink.LinkAdd(link)
	}
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("making the link %s: %w", name, err)
	}
	for _, a := range c.bridge {
		if err := netlink.AddrReplace(link, single(a)); err != nil {
			return fmt.Errorf("adding the address %v to the link %s: %w", a, name, err)
		}
	}
	for _, n := range c.Settings.Services.All() {
		to := &net.IPNet{IP: n.Addr().AsSlice(), Mask: net.CIDRMask(n.Bits(), n.Addr().BitLen())}
		if err := netlink.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: to, Scope: netlink.SCOPE_LINK}); err != nil {
			return fmt.Errorf("route for %v on the link %s: %w", n, name, err)
		}
	}
	return nil
}

// single returns the netlink form of an address without its network, which CNI plug-ins route.
func single(a netip.Addr) *netlink.Addr {
	out := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}}
	if a.Is6() {
		out.Flags = unix.IFA_F_NODAD // detection of duplicates takes a second
		out.ValidLft, out.PreferedLft = math.MaxUint32, math.MaxUint32
	}
	return out
}

// stopLimit is the longest grace period that a container gets when its cluster is stopped.
const stopLimit = 30 * time.Second

// cleanForeign removes the node's containers from another program's runtime, and the node's link.
func cleanForeign(ctx context.Context, p local.Profile, endpoint string) error {
	err := criclient.CleanForeign(ctx, criclient.Cleanup{Endpoint: endpoint, Owner: p.Name, Cgroup: p.Cgroup()}, stopLimit)
	link, linkErr := netlink.LinkByName(p.Bridge())
	if linkErr == nil {
		linkErr = netlink.LinkDel(link)
	}
	if errors.As(linkErr, new(netlink.LinkNotFoundError)) || errors.Is(linkErr, unix.ENODEV) {
		linkErr = nil
	}
	return errors.Join(err, linkErr)
}
