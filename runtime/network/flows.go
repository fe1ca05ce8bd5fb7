package network

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/netdump"
)

// The kernel remembers the destination of a flow, and a flow of UDP ends only after it was silent for a
// while. A client that keeps sending from one port would keep sending to the pod that had the host port
// when it began.

// A flowFilter selects the UDP flows to remove from the kernel. It matches the port that the
// client sends to.
type flowFilter struct {
	byPort map[uint16][]lead
	match  func(l lead, flow *netlink.ConntrackFlow) bool
}

func filterOf(leads []lead, match func(lead, *netlink.ConntrackFlow) bool) *flowFilter {
	f := &flowFilter{byPort: map[uint16][]lead{}, match: match}
	for _, l := range leads {
		if l.Protocol == unix.IPPROTO_UDP {
			f.byPort[l.Host.Port()] = append(f.byPort[l.Host.Port()], l)
		}
	}
	return f
}

// published are flows that go to a pod by its host ports.
func published(leads []lead) *flowFilter {
	return filterOf(leads, func(l lead, flow *netlink.ConntrackFlow) bool {
		return addrOf(flow.Reverse.SrcIP) == l.to.Addr() && flow.Reverse.SrcPort == l.to.Port()
	})
}

// unpublished are flows to host ports that go to the host itself, from before the ports led anywhere.
func unpublished(leads []lead) *flowFilter {
	var local map[netip.Addr]bool
	return filterOf(leads, func(l lead, flow *netlink.ConntrackFlow) bool {
		to := addrOf(flow.Forward.DstIP)
		if to != addrOf(flow.Reverse.SrcIP) || to.Is4() != l.to.Addr().Is4() {
			return false
		}
		if !l.Host.Addr().IsUnspecified() {
			return to == l.Host.Addr()
		}
		if local == nil {
			local = localAddresses()
		}
		return local[to] || to.IsLoopback()
	})
}

// localAddresses returns the addresses of this host that the kernel lists.
func localAddresses() map[netip.Addr]bool {
	all := map[netip.Addr]bool{}
	addresses, _ := net.InterfaceAddrs()
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok {
			all[addrOf(n.IP)] = true
		}
	}
	return all
}

func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// MatchConntrackFlow implements [netlink.CustomConntrackFilter].
func (f *flowFilter) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	if flow.Forward.Protocol != unix.IPPROTO_UDP {
		return false
	}
	for _, l := range f.byPort[flow.Forward.DstPort] {
		if f.match(l, flow) {
			return true
		}
	}
	return false
}

// forgetFlows removes flows from the kernel, after the rules were changed: the next packet follows the new
// rules. A failure is only logged.
func (n *Network) forgetFlows(f *flowFilter) {
	if len(f.byPort) == 0 {
		return
	}
	// Packets that found the rules of before are under way to where that is remembered.
	const global = 1 // MEMBARRIER_CMD_GLOBAL
	_, _, _ = unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0)
	for _, family := range n.families {
		if err := forgetFamily(family, f); err != nil {
			n.opts.Log.Warn("UDP clients that keep sending to a host port may get no answer", "err", err)
		}
	}
}

func forgetFamily(f *family, filter netlink.CustomConntrackFilter) error {
	var inet netlink.InetFamily = unix.AF_INET
	if f.is6() {
		inet = unix.AF_INET6
	}
	_, err := netdump.Whole(func() (uint, error) { return netlink.ConntrackDeleteFilters(netlink.ConntrackTable, inet, filter) })
	if err != nil {
		return fmt.Errorf("forgetting flows of UDP to host ports: %w", err)
	}
	return nil
}

// A podFilter finds flows of UDP that rules have led to pods.
type podFilter struct{ pods netip.Prefix }

// MatchConntrackFlow implements [netlink.CustomConntrackFilter].
func (f podFilter) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	at := addrOf(flow.Reverse.SrcIP)
	return flow.Forward.Protocol == unix.IPPROTO_UDP && f.pods.Contains(at) && at != addrOf(flow.Forward.DstIP)
}

// forgetPods removes all flows to pods from the kernel, when there are no more pods.
func (n *Network) forgetPods() {
	for _, f := range n.families {
		if err := forgetFamily(f, podFilter{f.pods}); err != nil {
			n.opts.Log.Warn("UDP flows to deleted pods may remain for a while", "err", err)
		}
	}
}
