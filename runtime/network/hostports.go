package network

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/sorting"
)

// A HostPort is a port of this host that leads to a pod.
type HostPort struct {
	Protocol uint8          // unix.IPPROTO_TCP, IPPROTO_UDP or IPPROTO_SCTP
	Host     netip.AddrPort // an unspecified address means all of the host's, of its IP family
	Pod      uint16         // the port at the pod's address of the same IP family
}

func (p HostPort) String() string {
	name := map[uint8]string{unix.IPPROTO_TCP: "TCP", unix.IPPROTO_UDP: "UDP", unix.IPPROTO_SCTP: "SCTP"}[p.Protocol]
	if p.Host.Addr().IsUnspecified() {
		return fmt.Sprintf("%d/%s", p.Host.Port(), name)
	}
	return fmt.Sprintf("%s/%s", p.Host, name)
}

// meets reports whether a packet can match both, by the rule of the scheduler.
func (p HostPort) meets(other HostPort) bool {
	a, b := p.Host.Addr(), other.Host.Addr()
	return p.Protocol == other.Protocol && p.Host.Port() == other.Host.Port() && a.Is4() == b.Is4() &&
		(a == b || a.IsUnspecified() || b.IsUnspecified())
}

// A TakenError is the error for a port of the host that another pod has.
type TakenError struct {
	Port HostPort // as it was asked for
	Pod  string   // the id of the other one
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("host port %v is already used by pod sandbox %s", e.Port, e.Pod)
}

// An OwnError is the error for a port of the host at which the container runtime itself serves.
type OwnError struct {
	Port HostPort // as it was asked for
}

func (e *OwnError) Error() string {
	return fmt.Sprintf("host port %v is a port of the container runtime itself", e.Port)
}

// CheckOwn returns an [OwnError] for the first of the ports that is this port of TCP, at whatever address of the host:
// connections to what the runtime itself serves there would get to the pod. 0 is no port.
func CheckOwn(ports []HostPort, own uint16) error {
	for _, p := range ports {
		if own != 0 && p.Protocol == unix.IPPROTO_TCP && p.Host.Port() == own {
			return &OwnError{p}
		}
	}
	return nil
}

// A publication is what host ports lead to a pod.
type publication struct {
	at      Attachment
	open    bool // it is among the rules that are written
	written bool // its rules are there, or may be
}

// A lead is a host port and the address that packets to it get instead.
type lead struct {
	HostPort
	to netip.AddrPort
}

// leads returns the leads of a pod. A port of an IP family in which the pod has no address has none.
func (a Attachment) leads() (all []lead) {
	for _, p := range a.Ports {
		for _, address := range a.Addresses {
			if address.Is4() == p.Host.Addr().Is4() {
				all = append(all, lead{p, netip.AddrPortFrom(address, p.Pod)})
			}
		}
	}
	return all
}

// claim takes the ports for a pod, all or none. The caller holds mu.
func (n *Network) claim(id string, at Attachment, open bool) error {
	own := at.leads()
	if len(own) == 0 {
		return nil
	}
	asked := map[uint16][]lead{}
	for _, l := range own {
		asked[l.Host.Port()] = append(asked[l.Host.Port()], l)
	}
	for _, other := range slices.Sorted(maps.Keys(n.ports)) {
		if other == id {
			continue
		}
		for _, o := range n.ports[other].at.leads() {
			for _, l := range asked[o.Host.Port()] {
				if l.meets(o.HostPort) {
					return &TakenError{l.HostPort, other}
				}
			}
		}
	}
	n.ports[id] = &publication{at: at, open: open, written: open}
	return nil
}

// Publish directs the host ports that were reserved for a pod to it: new connections, and
// UDP packets, also of flows that began before. It is called on a thread that is in the
// host's namespace. After an error the ports are still reserved, and the rules that are written for other pods do not
// have them.
func (n *Network) Publish(id string) error {
	n.mu.Lock()
	p := n.ports[id]
	n.mu.Unlock()
	if p == nil {
		return nil
	}
	if err := n.open(p); err != nil {
		return err
	}
	n.forgetFlows(unpublished(p.at.leads()))
	return nil
}

// open writes the rules with those of p. After an error they are written without it from then on: or those of all pods would
// fail with it.
func (n *Network) open(p *publication) error {
	n.writing.Lock()
	defer n.writing.Unlock()
	n.mu.Lock()
	p.open, p.written = true, true
	n.mu.Unlock()
	err := n.writeOpen()
	if err != nil {
		n.mu.Lock()
		p.open = false
		n.mu.Unlock()
	}
	return err
}

// withdraw undoes Publish. It may be repeated.
func (n *Network) withdraw(id string, at Attachment) error {
	n.mu.Lock()
	p := n.ports[id]
	if n.adopting {
		// The owners of the other entries of the table are not known yet.
		n.stale = append(n.stale, at.leads()...)
	}
	was := p != nil && p.written
	if was {
		p.open = false // and still claimed; an error leaves written, so that the next try does it again
	}
	n.mu.Unlock()
	if was {
		if err := n.writePorts(); err != nil {
			return err
		}
		n.forgetFlows(published(p.at.leads()))
	}
	n.disclaim(id)
	return nil
}

func (n *Network) disclaim(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.ports, id)
}

// Settle must be called when all pods from before the start have been reserved. It removes
// the rules of ports of the host that lead to other pods (N8).
func (n *Network) Settle() error {
	n.mu.Lock()
	n.adopting = false
	stale := n.stale
	n.stale = nil
	n.mu.Unlock()
	if n.opts.Alone {
		return nil
	}
	if err := n.writePorts(); err != nil {
		return err
	}
	n.forgetFlows(published(stale))
	return nil
}

// Restore adds the rules of [Network.Up] and of host ports again, in case another program has removed any.
func (n *Network) Restore() error {
	if n.opts.Alone {
		return nil
	}
	n.mu.Lock()
	adopting := n.adopting
	n.mu.Unlock()
	if !adopting {
		return n.writePorts()
	}
	for _, f := range n.families {
		if err := n.upTable(f); err != nil {
			return fmt.Errorf("nftables table %s: %w", n.opts.Table, err)
		}
	}
	return nil
}

// writePorts replaces the rules by those for the current pods, in one transaction.
func (n *Network) writePorts() error {
	n.writing.Lock()
	defer n.writing.Unlock()
	return n.writeOpen()
}

// writeOpen is writePorts. The caller holds writing.
func (n *Network) writeOpen() error {
	n.mu.Lock()
	var all []lead
	for _, p := range n.ports {
		if p.open {
			all = append(all, p.at.leads()...)
		}
	}
	n.mu.Unlock()
	sorting.Slice(all, func(a, b lead) int { return cmp.Or(a.Host.Compare(b.Host), cmp.Compare(a.Protocol, b.Protocol)) })
	c, err := nftables.New(nftables.WithSockOptions(largeBuffers))
	if err != nil {
		return err
	}
	for _, f := range n.families {
		n.addTable(c, f)
		for _, m := range n.portSets(f) {
			c.FlushSet(m)
		}
		if err := n.addLeads(c, f, all); err != nil {
			return err
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("rules of host ports, in the nftables table %s: %w", n.opts.Table, err)
	}
	return n.letLoopbackOut(slices.ContainsFunc(all, lead.atLoopback))
}

// largeBuffers lets one transaction have the host ports of all pods. An entry takes at most 100 bytes, so there is room
// for 600,000. The kernel takes memory only for what is sent. Without the right to it, the limits of the system remain.
func largeBuffers(c *netlink.Conn) error {
	const size = 64 << 20
	return errors.Join(c.SetWriteBuffer(size), c.SetReadBuffer(size))
}

func (l lead) atLoopback() bool {
	a := l.Host.Addr()
	return a.Is4() && (a.IsUnspecified() || a.IsLoopback())
}

// letLoopbackOut lets connections from 127.0.0.1 to a host port leave by the bridge, where they get
// its address, and answers come back. An earlier rule drops packets that a pod itself
// sends to or from a loopback address (N9).
func (n *Network) letLoopbackOut(on bool) error {
	value := "0"
	if on {
		value = "1"
	}
	file := "/proc/sys/net/ipv4/conf/" + n.opts.Bridge + "/route_localnet"
	now, err := os.ReadFile(file)
	if err != nil || strings.TrimSpace(string(now)) == value {
		return nil // a bridge that is gone lets nothing out
	}
	if err := os.WriteFile(file, []byte(value), 0); err != nil && on {
		n.opts.Log.Warn("host ports do not answer at 127.0.0.1", "err", err)
	}
	return nil
}

// elements are the keys and values of a family's leads, by the names of maps and sets.
func elements(f *family, all []lead) map[string][]nftables.SetElement {
	out := map[string][]nftables.SetElement{}
	pods := map[netip.Addr]bool{}
	for _, l := range all {
		if l.to.Addr().Is6() != f.is6() {
			continue
		}
		to := slices.Concat(l.to.Addr().AsSlice(), portData(l.to.Port()))
		key, in := slices.Concat([]byte{l.Protocol, 0, 0, 0}, portData(l.Host.Port())), portsAnywhere
		if a := l.Host.Addr(); !a.IsUnspecified() {
			key, in = slices.Concat([]byte{l.Protocol, 0, 0, 0}, a.AsSlice(), portData(l.Host.Port())), portsAt
		}
		out[in] = append(out[in], nftables.SetElement{Key: key, Val: to})
		if a := l.to.Addr(); !pods[a] {
			pods[a] = true
			out[hairpins] = append(out[hairpins], nftables.SetElement{Key: slices.Concat(a.AsSlice(), a.AsSlice())})
		}
	}
	return out
}

// addLeads puts elements into a family's maps and sets.
func (n *Network) addLeads(c *nftables.Conn, f *family, all []lead) error {
	elements := elements(f, all)
	for _, set := range n.portSets(f) {
		const most = 400 // in a message, whose list has 64 KiB; one takes at most 100 bytes
		for some := range slices.Chunk(elements[set.Name], most) {
			if err := c.SetAddElements(set, some); err != nil {
				return err
			}
		}
	}
	return nil
}

// portData is a port as the kernel has it in a concatenation.
func portData(p uint16) []byte { return []byte{byte(p >> 8), byte(p), 0, 0} }
