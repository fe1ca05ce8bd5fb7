package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Options configures a [Network]. All but Log are required.
type Options struct {
	Bridge      string       // name of the bridge, at most 15 characters
	PodCIDR     netip.Prefix // its first address is the bridge's
	ServiceCIDR netip.Prefix // zero means no route for services
	Table       string       // name of the nftables table
	Log         *slog.Logger // nil means slog.Default
}

// A Network is safe for concurrent use.
type Network struct {
	opts    Options
	gateway netip.Addr
	link    *netlink.Handle // bound to the network namespace that New was called in

	mu     sync.Mutex
	owner  map[netip.Addr]string // guarded by mu; pod ids
	cursor netip.Addr            // guarded by mu; the address given last
	bridge int                   // guarded by mu; its index; 0 before Up
}

// An Attachment is a pod's place on the network.
type Attachment struct {
	Address netip.Addr
	Link    string // the host's end of the veth pair
}

// New checks the options. It changes nothing yet.
func New(opts Options) (*Network, error) {
	var errs []error
	if opts.Bridge == "" || len(opts.Bridge) >= unix.IFNAMSIZ || strings.ContainsAny(opts.Bridge, "/ ") {
		errs = append(errs, fmt.Errorf("bridge name %q: want 1 to %d characters without blanks and slashes", opts.Bridge, unix.IFNAMSIZ-1))
	}
	if !opts.PodCIDR.IsValid() || !opts.PodCIDR.Addr().Is4() || opts.PodCIDR.Bits() > 29 {
		errs = append(errs, fmt.Errorf("pod network %v: want an IPv4 network with a prefix of at most 29 bits", opts.PodCIDR))
	}
	if opts.ServiceCIDR.IsValid() {
		if !opts.ServiceCIDR.Addr().Is4() {
			errs = append(errs, fmt.Errorf("service network %v: want an IPv4 network", opts.ServiceCIDR))
		}
		if opts.ServiceCIDR.Overlaps(opts.PodCIDR) {
			errs = append(errs, fmt.Errorf("service network %v and pod network %v overlap", opts.ServiceCIDR, opts.PodCIDR))
		}
	}
	if opts.Table == "" {
		errs = append(errs, errors.New("the nftables table has no name"))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("network: %w", errors.Join(errs...))
	}
	opts.PodCIDR = opts.PodCIDR.Masked()
	if opts.ServiceCIDR.IsValid() {
		opts.ServiceCIDR = opts.ServiceCIDR.Masked()
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	link, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	first := opts.PodCIDR.Addr().Next()
	return &Network{opts: opts, gateway: first, cursor: first, link: link, owner: map[netip.Addr]string{}}, nil
}

// Gateway is the bridge's own address.
func (n *Network) Gateway() netip.Addr { return n.gateway }

// Up makes the bridge and what belongs to it, as far as it isn't there. It returns
// what the surroundings lack, in sentences for an administrator.
func (n *Network) Up() ([]string, error) {
	loadBridged(context.Background()) //nolint:forbidigo // it is bounded, and Up blocks for it
	err := locked(func() error {
		if err := n.upBridge(); err != nil {
			return fmt.Errorf("bridge %s: %w", n.opts.Bridge, err)
		}
		return enableForwarding()
	})
	if err != nil {
		return nil, err
	}
	if err := n.upTable(); err != nil {
		return nil, fmt.Errorf("nftables table %s: %w", n.opts.Table, err)
	}
	lacks := n.foreignDrops()
	if said := hidesBridged(); said != "" {
		lacks = append(lacks, said)
	}
	return lacks, nil
}

// hardware derives a link address from an IP address, in the range that anybody
// may use.
func hardware(a netip.Addr) net.HardwareAddr {
	ip := a.As4()
	return net.HardwareAddr{0x0a, 0x58, ip[0], ip[1], ip[2], ip[3]}
}

func (n *Network) upBridge() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = n.opts.Bridge
	attrs.HardwareAddr = hardware(n.gateway) // N3: without it the smallest of the ports' would be taken
	attrs.Flags = net.FlagUp
	var err error
	if attrs.Alias, err = n.alias(); err != nil {
		return err
	}
	err = n.link.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	link, err := n.link.LinkByName(n.opts.Bridge)
	if err != nil {
		return err
	}
	if link.Type() != "bridge" {
		return fmt.Errorf("a link of this name exists and is a %s; remove it or choose another name", link.Type())
	}
	if _, ok := claimed(link); !ok { // somebody has taken it off
		if err := n.link.LinkSetAlias(link, attrs.Alias); err != nil {
			return fmt.Errorf("alias: %w", err)
		}
	}
	if err := showBridged(link); err != nil {
		return err
	}
	if err := n.link.LinkSetUp(link); err != nil {
		return err
	}
	addr := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(n.gateway, n.opts.PodCIDR.Bits()))}
	if err := n.link.AddrReplace(link, addr); err != nil {
		return fmt.Errorf("address %v: %w", addr, err)
	}
	if n.opts.ServiceCIDR.IsValid() {
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(n.opts.ServiceCIDR), Scope: netlink.SCOPE_LINK}
		if err := n.link.RouteReplace(route); err != nil { // N2
			return fmt.Errorf("route for %v: %w", n.opts.ServiceCIDR, err)
		}
	}
	n.mu.Lock()
	n.bridge = link.Attrs().Index
	n.mu.Unlock()
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// Reserve says that a pod which was found after a restart has this address.
func (n *Network) Reserve(id string, a Attachment) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if other, taken := n.owner[a.Address]; taken && other != id {
		return fmt.Errorf("address %v of pod %s belongs to pod %s", a.Address, id, other)
	}
	if !n.opts.PodCIDR.Contains(a.Address) {
		return fmt.Errorf("address %v of pod %s is not in the pod network %v", a.Address, id, n.opts.PodCIDR)
	}
	n.owner[a.Address] = id
	if n.cursor.Less(a.Address) {
		n.cursor = a.Address
	}
	return nil
}

// take finds an address that nobody has. It goes round, so that one that has just
// become free isn't given again at once.
func (n *Network) take(id string) (netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for a := n.cursor.Next(); ; a = a.Next() {
		if !n.opts.PodCIDR.Contains(a) || !n.opts.PodCIDR.Contains(a.Next()) { // past the end, or the broadcast address
			a = n.gateway
		}
		if _, taken := n.owner[a]; !taken && a != n.gateway {
			n.owner[a], n.cursor = id, a
			return a, nil
		}
		if a == n.cursor {
			return netip.Addr{}, fmt.Errorf("the pod network %v is full: all of its %d addresses are taken", n.opts.PodCIDR, len(n.owner))
		}
	}
}

func (n *Network) release(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for a, owner := range n.owner {
		if owner == id {
			delete(n.owner, a)
		}
	}
}

// linkName is the host's end of a pod's pair. Pod ids are random, so 13 digits of
// them are as good as all.
func linkName(id string) string { return "sp" + id[:min(13, len(id))] }

// Reservation takes an address for the pod; [Network.Attach] or [Network.Detach]
// must follow.
func (n *Network) Reservation(id string) (Attachment, error) {
	a, err := n.take(id)
	if err != nil {
		return Attachment{}, err
	}
	return Attachment{Address: a, Link: linkName(id)}, nil
}

// Attach gives the calling thread's network namespace the address of a: it is
// called on a thread that is in the pod's namespace, and makes eth0, the way to
// the bridge and the loopback device.
func (n *Network) Attach(a Attachment) error {
	n.mu.Lock()
	bridge := n.bridge
	n.mu.Unlock()
	if bridge == 0 {
		return errors.New("the network is not up")
	}
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer here.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = a.Link
	attrs.Flags = net.FlagUp
	attrs.MasterIndex = bridge
	err = n.link.LinkAdd(&netlink.Veth{
		LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(here.Fd()), PeerHardwareAddr: hardware(a.Address),
	})
	if err != nil {
		return fmt.Errorf("veth pair %s: %w", a.Link, err)
	}
	if err := n.reflect(a.Link); err != nil {
		return err
	}
	inside, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer inside.Close()
	const lo = 1 // the index of every namespace's loopback device
	if err := inside.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: lo}}); err != nil {
		return fmt.Errorf("lo: %w", err)
	}
	eth0, err := inside.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("eth0: %w", err)
	}
	if err := inside.AddrAdd(eth0, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(a.Address, n.opts.PodCIDR.Bits()))}); err != nil {
		return fmt.Errorf("address %v of eth0: %w", a.Address, err)
	}
	if err := inside.LinkSetUp(eth0); err != nil {
		return fmt.Errorf("eth0: %w", err)
	}
	if err := inside.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: n.gateway.AsSlice()}); err != nil {
		return fmt.Errorf("default route by %v: %w", n.gateway, err)
	}
	return nil
}

// reflect lets a pod reach itself over its port of the bridge, through a service (N6).
func (n *Network) reflect(name string) error {
	port, err := n.link.LinkByName(name)
	if err == nil {
		err = n.link.LinkSetHairpin(port, true)
	}
	if err != nil {
		return fmt.Errorf("hairpin mode of %s: %w", name, err)
	}
	return nil
}

// Loopback brings up the loopback device of the calling thread's network namespace.
func Loopback() error {
	return netlink.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: 1}})
}

// Detach removes the pod's pair and frees its address. What isn't there is no error.
func (n *Network) Detach(id string, a Attachment) error {
	if a.Link != "" {
		link, err := n.link.LinkByName(a.Link)
		if err == nil {
			err = n.link.LinkDel(link)
		}
		var missing netlink.LinkNotFoundError
		if err != nil && !errors.As(err, &missing) && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("removing veth pair %s: %w", a.Link, err)
		}
	}
	n.release(id)
	return nil
}

// Down removes all that Up and Attach have made, in this process or in one before,
// and puts ip_forward back if nobody else needs it. It goes on after a fault and
// reports all of them.
func (n *Network) Down() error {
	err := locked(func() error { return errors.Join(n.downTable(), n.downBridge()) })
	n.mu.Lock()
	clear(n.owner)
	n.bridge = 0
	n.mu.Unlock()
	return err
}

func (n *Network) downBridge() error {
	var errs []error
	bridge, err := n.link.LinkByName(n.opts.Bridge)
	var missing netlink.LinkNotFoundError
	switch {
	case err == nil && bridge.Type() == "bridge":
		links, err := n.link.LinkList()
		errs = append(errs, err)
		for _, l := range links {
			if l.Attrs().MasterIndex == bridge.Attrs().Index && l.Type() == "veth" {
				if err := n.link.LinkDel(l); err != nil && !errors.Is(err, unix.ENODEV) {
					errs = append(errs, fmt.Errorf("removing %s: %w", l.Attrs().Name, err))
				}
			}
		}
		errs = append(errs, n.restoreForwarding(bridge))
		if err := n.link.LinkDel(bridge); err != nil { // its route goes with it
			errs = append(errs, fmt.Errorf("removing bridge %s: %w", n.opts.Bridge, err))
		}
	case err != nil && !errors.As(err, &missing):
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Close gives back the netlink socket.
func (n *Network) Close() { n.link.Close() }
