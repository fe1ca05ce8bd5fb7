package nft

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/proxy"
)

// The kernel remembers where the packets of a connection go, and asks our rules only for the
// first one of each. That is as it should be for TCP and SCTP, whose ends know when a
// connection is over. A flow of UDP is over when it is silent, so a client that asks
// for ever from the same port would for ever be sent to a backend that is gone.

// A forgetter finds flows of UDP that don't lead to what they should: by door, the backends that there
// are.
type forgetter struct {
	doors map[proxy.Door][]netip.AddrPort
	local map[netip.Addr]bool // the addresses of this node
}

// note adds the door of a change to those whose flows are to be looked at.
func (f *forgetter) note(was, is *proxy.Rule) {
	old, now := backendsOf(was), backendsOf(is)
	gone := slices.ContainsFunc(old, func(a netip.AddrPort) bool { return !slices.Contains(now, a) })
	if !gone && (len(old) > 0 || len(now) == 0) {
		return
	}
	door := is.Door
	if is.Port == 0 {
		door = was.Door
	}
	if door.Protocol != corev1.ProtocolUDP {
		return
	}
	if f.doors == nil {
		f.doors = map[proxy.Door][]netip.AddrPort{}
	}
	f.doors[door] = now
}

func backendsOf(r *proxy.Rule) []netip.AddrPort {
	if len(r.Inside) == 0 {
		return r.Backends
	}
	return slices.Concat(r.Backends, r.Inside)
}

// forget deletes those flows. It reads all flows of the families of the doors.
func (f *forgetter) forget() error {
	if len(f.doors) == 0 {
		return nil
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("reading the addresses of this node: %w", err)
	}
	f.local = map[netip.Addr]bool{}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok {
			f.local[address(n.IP)] = true
		}
	}
	for family, v6 := range map[netlink.InetFamily]bool{unix.AF_INET: false, unix.AF_INET6: true} {
		for d := range f.doors {
			if d.Address.Is6() != v6 {
				continue
			}
			_, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, f)
			if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) { // what came meanwhile saw the new rules
				return fmt.Errorf("forgetting flows of UDP to backends that are gone: %w", err)
			}
			break
		}
	}
	return nil
}

// MatchConntrackFlow says whether a flow is to be deleted.
func (f *forgetter) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	if flow.Forward.Protocol != unix.IPPROTO_UDP {
		return false
	}
	to, served := netip.AddrPortFrom(address(flow.Forward.DstIP), flow.Forward.DstPort), served(flow)
	door := proxy.Door{Address: to.Addr(), Protocol: corev1.ProtocolUDP, Port: to.Port()}
	backends, ours := f.doors[door]
	if !ours {
		door.Address = nowhere(to.Addr())
		// What is not ours passes through this node to the same port of somebody else.
		if backends, ours = f.doors[door]; !ours || !f.local[to.Addr()] {
			return false
		}
	}
	return !slices.Contains(backends, served)
}

// served is who answers in a flow.
func served(flow *netlink.ConntrackFlow) netip.AddrPort {
	return netip.AddrPortFrom(address(flow.Reverse.SrcIP), flow.Reverse.SrcPort)
}

func address(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// nowhere is the address of a door that is a node port.
func nowhere(like netip.Addr) netip.Addr {
	if like.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// A parting is a server that was taken out: connections that came to a door before
// may still stand in its queue.
type parting struct {
	door    proxy.Door
	backend netip.AddrPort
	at      time.Time
}

// young is for how long a connection may stand in a queue before we no longer wait for it.
const young = time.Second

// partings returns the servers of TCP that a change takes out.
func partings(was, is *proxy.Rule, now time.Time) (all []parting) {
	if was.Protocol != corev1.ProtocolTCP || was.Relayed {
		return nil
	}
	stay := backendsOf(is)
	for _, a := range backendsOf(was) {
		if !slices.Contains(stay, a) {
			all = append(all, parting{was.Door, a, now})
		}
	}
	return all
}

// part notes servers that were taken out, and forgets those that are back or were taken out long ago.
func (k *Kernel) part(gone []parting, changes []proxy.Change, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.parted = slices.DeleteFunc(k.parted, func(p parting) bool {
		return now.Sub(p.at) > young || slices.ContainsFunc(changes, func(c proxy.Change) bool {
			return c.Is.Door == p.door && slices.Contains(backendsOf(&c.Is), p.backend)
		})
	})
	k.parted = append(k.parted, gone...)
}

// Settle implements [proxy.Kernel]. It waits until each connection that was made to a server before it was taken
// out has been answered by that, and so accepted, or has ended, or is a second old.
//
// Nothing tells when that is so, so it looks a few times, for a second at most, and
// only if a server of TCP was taken out.
func (k *Kernel) Settle(ctx context.Context) {
	waiting := k.waiting()
	if len(waiting) == 0 {
		return
	}
	// Packets that found the old rules may be under way to where they are remembered. This
	// waits for them: it returns when all that was being done by every processor is done.
	_, _, _ = unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0)
	const first, longest, share = 5 * time.Millisecond, 100 * time.Millisecond, 5
	for pause := first; ; pause = min(2*pause, longest) {
		start := time.Now()
		waiting = slices.DeleteFunc(waiting, func(p parting) bool { return start.Sub(p.at) > young })
		if len(waiting) == 0 {
			return
		}
		queued, err := queues(waiting)
		if err == nil {
			waiting = slices.DeleteFunc(waiting, func(p parting) bool { return !queued[p] })
		}
		if len(waiting) == 0 {
			return
		}
		// With very many connections looking takes long: most of the time is not for that.
		if !run.Pause(ctx, max(pause, share*time.Since(start))) {
			return
		}
	}
}

const membarrierGlobal = 1 // MEMBARRIER_CMD_GLOBAL

func (k *Kernel) waiting() []parting {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.parted)
}

// queues finds, among servers that were taken out, those in whose queues a connection may stand.
func queues(of []parting) (map[parting]bool, error) {
	counted := accounting() == "1"
	queued := map[parting]bool{}
	for family, v6 := range map[netlink.InetFamily]bool{unix.AF_INET: false, unix.AF_INET6: true} {
		if !slices.ContainsFunc(of, func(p parting) bool { return p.door.Address.Is6() == v6 }) {
			continue
		}
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
		if err != nil {
			return nil, fmt.Errorf("reading connections: %w", err)
		}
		for _, flow := range flows {
			if flow.Forward.Protocol != unix.IPPROTO_TCP || !mayQueue(flow, counted) {
				continue
			}
			to, server := address(flow.Forward.DstIP), served(flow)
			for _, p := range of {
				if p.backend == server && p.door.Port == flow.Forward.DstPort && (p.door.Address == to || p.door.Address.IsUnspecified()) {
					queued[p] = true
				}
			}
		}
	}
	return queued, nil
}

// mayQueue reports whether the server of a connection may not have accepted it yet: all that has
// come from its host is what a kernel sends on its own.
func mayQueue(flow *netlink.ConntrackFlow, counted bool) bool {
	const lastAck = 6 // TCP_CONNTRACK_LAST_ACK, and behind it what has ended
	if tcp, ok := flow.ProtoInfo.(*netlink.ProtoInfoTCP); ok && tcp.State >= lastAck && tcp.State <= 8 {
		return false
	}
	if flow.Forward.Packets == 0 {
		return !counted // it was made before packets were counted
	}
	// A packet without data has no more than this: the one that opens a connection has 40 bytes of TCP.
	bare := uint64(20 + 40)
	if address(flow.Forward.DstIP).Is6() {
		bare = 40 + 40
	}
	return flow.Reverse.Bytes <= bare*flow.Reverse.Packets
}

// Whether packets of connections are counted is a setting of the network namespace.
const accountingFile = "/proc/sys/net/netfilter/nf_conntrack_acct"

// accountingWasOff is the chain that says that it was off before we came: it is there as
// long as we are, over the death of every process, and not over a start of the machine.
const accountingWasOff = "nf_conntrack_acct-was-0"

// accounting returns the setting, or "" if it can't be read.
func accounting() string {
	b, _ := os.ReadFile(accountingFile)
	return strings.TrimSpace(string(b))
}

// setAccounting is tried only: without it [Kernel.Settle] waits longer.
func setAccounting(to string) { _ = os.WriteFile(accountingFile, []byte(to), 0) }
