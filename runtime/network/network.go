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

	"github.com/sampan-io/sampan/internal/netdump"
)

// Options configures a [Network]. All but Log are required.
type Options struct {
	Bridge string // name of the bridge, at most 15 characters

	// PodCIDRs are the network of the pods, or one of each IP family; the first address of
	// each is the bridge's.
	PodCIDRs []netip.Prefix

	// ServiceCIDRs are those of the services, of the same families; none means no route
	// for services.
	ServiceCIDRs []netip.Prefix

	// ClusterCIDRs are the networks of the pods of the whole cluster, of the same families. Packets to pods of other nodes
	// keep the addresses of their pods. Empty means PodCIDRs.
	ClusterCIDRs []netip.Prefix

	// Alone is set if pods are connected in another way. The bridge has its addresses without their networks, which may belong to
	// the bridge of a CNI plug-in, and there is no table.
	Alone bool

	Table string       // name of the nftables table, in each family
	Log   *slog.Logger // nil means slog.Default
}

// A Network is safe for concurrent use.
type Network struct {
	opts     Options
	families []*family
	link     *netlink.Handle // bound to the network namespace that New was called in

	mu     sync.Mutex
	owner  map[netip.Addr]string // guarded by mu; pod ids
	bridge int                   // guarded by mu; its index; 0 before Up

	ports    map[string]*publication // guarded by mu; by pod id
	adopting bool                    // guarded by mu; until Settle, there may be pods that are not reserved yet
	stale    []lead                  // guarded by mu; of pods that went before Settle

	writing sync.Mutex // held while rules of host ports are written, so that the last word is the newest
}

// A family is what a network is in one IP family.
type family struct {
	pods     netip.Prefix
	cluster  netip.Prefix // of all pods of the cluster; contains pods
	services netip.Prefix // zero: there is no route for services
	gateway  netip.Addr
	cursor   netip.Addr // guarded by the network's mu; the address given last
}

func (f *family) is6() bool { return f.gateway.Is6() }

// An Attachment is a pod's place on the network.
type Attachment struct {
	Addresses []netip.Addr // one of each of [Options.PodCIDRs], in that order
	Link      string       // the host's end of the veth pair
	Bandwidth Bandwidth    // of its traffic, for [Network.Attach]
	Ports     []HostPort   // what leads to the pod from [Network.Publish] to [Network.Detach]
}

// New checks the options. It changes nothing yet.
func New(opts Options) (*Network, error) {
	var errs []error
	if opts.Bridge == "" || len(opts.Bridge) >= unix.IFNAMSIZ || strings.ContainsAny(opts.Bridge, "/ ") {
		errs = append(errs, fmt.Errorf("bridge name %q: want 1 to %d characters without blanks and slashes", opts.Bridge, unix.IFNAMSIZ-1))
	}
	families, err := familiesOf(opts)
	errs = append(errs, err)
	if opts.Table == "" {
		errs = append(errs, errors.New("the nftables table has no name"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	link, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	return &Network{opts: opts, families: families, link: link, owner: map[netip.Addr]string{}, ports: map[string]*publication{}, adopting: true}, nil
}

// familiesOf brings together what belongs to each IP family.
func familiesOf(opts Options) ([]*family, error) {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	var families []*family
	find := func(n netip.Prefix) *family {
		for _, f := range families {
			if f.pods.Addr().Is4() == n.Addr().Is4() {
				return f
			}
		}
		return nil
	}
	for _, n := range opts.PodCIDRs {
		switch {
		case !n.IsValid() || n.Addr().Is4In6() || n.Bits() > n.Addr().BitLen()-3:
			fault("pod network %v: want a network with room for at least eight addresses", n)
		case find(n) != nil:
			fault("pod network %v: there is one of this IP family already", n)
		default:
			first := n.Masked().Addr().Next()
			families = append(families, &family{pods: n.Masked(), cluster: n.Masked(), gateway: first, cursor: first})
		}
	}
	if len(opts.PodCIDRs) == 0 {
		fault("pod network is empty: want at least one")
	}
	for _, n := range opts.ClusterCIDRs {
		f := find(n)
		if !n.IsValid() || f == nil || n.Bits() > f.pods.Bits() || !n.Contains(f.pods.Addr()) {
			fault("cluster network %v: want one that contains a pod network", n)
			continue
		}
		f.cluster = n.Masked()
	}
	for _, n := range opts.ServiceCIDRs {
		f := find(n)
		switch {
		case !n.IsValid() || f == nil:
			fault("service network %v: want one of the IP family of a pod network", n)
		case f.services.IsValid():
			fault("service network %v: there is one of this IP family already", n)
		case f.pods.Overlaps(n):
			fault("service network %v and pod network %v overlap", n, f.pods)
		default:
			f.services = n.Masked()
		}
	}
	return families, errors.Join(errs...)
}

// Gateways are the bridge's own addresses, one of each family.
func (n *Network) Gateways() []netip.Addr {
	var all []netip.Addr
	for _, f := range n.families {
		all = append(all, f.gateway)
	}
	return all
}

// Up makes the bridge and what belongs to it, as far as it isn't there. It returns
// what the surroundings lack, in sentences for an administrator.
func (n *Network) Up() ([]string, error) {
	if n.six() {
		if err := IPv6(); err != nil {
			return nil, err
		}
	}
	loadBridged(context.Background()) //nolint:forbidigo // it is bounded, and Up blocks for it
	var lacks []string
	err := locked(func() error {
		lack, err := n.upBridge()
		if err != nil {
			return fmt.Errorf("bridge %s: %w", n.opts.Bridge, err)
		}
		if lack != "" {
			lacks = append(lacks, lack)
		}
		return n.enableForwarding()
	})
	if err != nil {
		return nil, err
	}
	for _, f := range n.families {
		if n.opts.Alone {
			break
		}
		if err := n.upTable(f); err != nil {
			return nil, fmt.Errorf("nftables table %s: %w", n.opts.Table, err)
		}
		lacks = append(lacks, n.foreignDrops(f)...)
	}
	if said := hidesBridged(); said != "" {
		lacks = append(lacks, said)
	}
	return lacks, nil
}

// hardware derives a link address from an IP address, in the range for local
// administration.
func hardware(a netip.Addr) net.HardwareAddr {
	ip := a.AsSlice()
	return append(net.HardwareAddr{0x0a, 0x58}, ip[len(ip)-4:]...)
}

// upBridge makes the bridge. Without it there is no network; lack is what goes without.
func (n *Network) upBridge() (lack string, err error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = n.opts.Bridge
	attrs.HardwareAddr = hardware(n.families[0].gateway) // N3: without it the smallest of the ports' would be taken
	attrs.Flags = net.FlagUp
	if attrs.Alias, err = n.alias(); err != nil {
		return "", err
	}
	err = n.link.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return "", err
	}
	link, err := n.link.LinkByName(n.opts.Bridge)
	if err != nil {
		return "", err
	}
	if link.Type() != "bridge" {
		return "", fmt.Errorf("a link of this name exists and is a %s; remove it or choose another name", link.Type())
	}
	if !n.claims(link) { // another program has removed it
		if err := n.link.LinkSetAlias(link, attrs.Alias); err != nil {
			return "", fmt.Errorf("alias: %w", err)
		}
	}
	if err := showBridged(link, n.six()); err != nil {
		return "", err
	}
	switch err := n.settleBridge(); {
	case err != nil && n.six():
		return "", err
	case err != nil:
		lack = fmt.Sprintf("this host may take a pod's word for it that it is a router of IPv6, if it hears routers at all: switching that off for the bridge %s: %v", n.opts.Bridge, err)
	}
	if err := n.link.LinkSetUp(link); err != nil {
		return "", err
	}
	for _, f := range n.families {
		own := f.address(f.gateway)
		if n.opts.Alone {
			own.Mask = net.CIDRMask(f.gateway.BitLen(), f.gateway.BitLen())
		}
		if err := n.link.AddrReplace(link, own); err != nil {
			return "", fmt.Errorf("address %v: %w", f.gateway, err)
		}
		if !f.services.IsValid() {
			continue
		}
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(f.services), Scope: netlink.SCOPE_LINK}
		if err := n.link.RouteReplace(route); err != nil { // N2
			return "", fmt.Errorf("route for %v: %w", f.services, err)
		}
	}
	n.mu.Lock()
	n.bridge = link.Attrs().Index
	n.mu.Unlock()
	return lack, nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// address is an address of the family for a link. It belongs to this pod only (N1), so
// duplicate address detection is off: for an IPv6 address it would take a second, in which
// the address can't be used (N7).
func (f *family) address(a netip.Addr) *netlink.Addr {
	out := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(a, f.pods.Bits()))}
	if f.is6() {
		out.Flags = unix.IFA_F_NODAD
	}
	return out
}

// Reserve marks the addresses and host ports of a pod that was found after a restart as used.
// When all have been reserved, [Network.Settle] must be called.
func (n *Network) Reserve(id string, at Attachment) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range at.Addresses {
		f := n.familyOf(a)
		if f == nil {
			return fmt.Errorf("address %v of pod %s is not in the pod network %v", a, id, n.opts.PodCIDRs)
		}
		if other, taken := n.owner[a]; taken && other != id {
			return fmt.Errorf("address %v of pod %s belongs to pod %s", a, id, other)
		}
	}
	if err := n.claim(id, at, true); err != nil {
		// A version before this one led host ports nowhere and let two pods have one.
		n.opts.Log.Warn("host ports of a running pod can't be restored", "pod", id, "err", err)
	}
	for _, a := range at.Addresses {
		n.owner[a] = id
		if f := n.familyOf(a); f.cursor.Less(a) {
			f.cursor = a
		}
	}
	return nil
}

// familyOf returns the family in whose pod network an address is, or nil.
func (n *Network) familyOf(a netip.Addr) *family {
	for _, f := range n.families {
		if f.pods.Contains(a) {
			return f
		}
	}
	return nil
}

// take returns a free address of a family. It goes round, so that an address that was just
// released isn't given out again at once. The caller holds mu.
func (n *Network) take(f *family, id string) (netip.Addr, error) {
	for a := f.cursor.Next(); ; a = a.Next() {
		if !f.pods.Contains(a) || !f.pods.Contains(a.Next()) { // past the end, or the broadcast address
			a = f.gateway
		}
		if _, taken := n.owner[a]; !taken && a != f.gateway {
			n.owner[a], f.cursor = id, a
			return a, nil
		}
		if a == f.cursor {
			return netip.Addr{}, fmt.Errorf("the pod network %v is full: all of its addresses are taken", f.pods)
		}
	}
}

func (n *Network) release(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forget(id)
}

// forget is release. The caller holds mu.
func (n *Network) forget(id string) {
	for a, owner := range n.owner {
		if owner == id {
			delete(n.owner, a)
		}
	}
}

// linkName is the host's end of a pod's pair. Pod ids are random, so 13 digits of
// them are as good as all.
func linkName(id string) string { return "sp" + id[:min(13, len(id))] }

// Reservation takes an address of each family and ports of the host for the pod; [Network.Attach] and
// [Network.Publish], or [Network.Detach] must follow. Where another pod has a port it takes nothing, and
// the error is a [TakenError].
func (n *Network) Reservation(id string, ports []HostPort) (Attachment, error) {
	at := Attachment{Link: linkName(id), Ports: ports}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range n.families {
		a, err := n.take(f, id)
		if err != nil {
			n.forget(id)
			return Attachment{}, err
		}
		at.Addresses = append(at.Addresses, a)
	}
	if err := n.claim(id, at, false); err != nil {
		n.forget(id)
		return Attachment{}, err
	}
	return at, nil
}

// Attach gives the calling thread's network namespace the addresses of a: it is
// called on a thread that is in the pod's namespace, and makes eth0, the way to
// the bridge and the loopback device.
func (n *Network) Attach(a Attachment) error {
	n.mu.Lock()
	bridge := n.bridge
	n.mu.Unlock()
	if bridge == 0 {
		return errors.New("the network is not up")
	}
	if len(a.Addresses) != len(n.families) {
		return fmt.Errorf("a pod needs %d addresses and has %v", len(n.families), a.Addresses)
	}
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer here.Close()
	if n.six() {
		if err := settlePod(); err != nil {
			return err
		}
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = a.Link
	attrs.Flags = net.FlagUp
	attrs.MasterIndex = bridge
	err = n.link.LinkAdd(&netlink.Veth{
		LinkAttrs: attrs, PeerName: podInterface, PeerNamespace: netlink.NsFd(here.Fd()), PeerHardwareAddr: hardware(a.Addresses[0]),
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
	if err := upLoopback(inside); err != nil {
		return err
	}
	eth0, err := inside.LinkByName(podInterface)
	if err != nil {
		return fmt.Errorf("eth0: %w", err)
	}
	for i, f := range n.families {
		if err := inside.AddrAdd(eth0, f.address(a.Addresses[i])); err != nil {
			return fmt.Errorf("address %v of eth0: %w", a.Addresses[i], err)
		}
	}
	if err := n.shape(a, inside, eth0); err != nil {
		return err
	}
	if err := inside.LinkSetUp(eth0); err != nil {
		return fmt.Errorf("eth0: %w", err)
	}
	for _, f := range n.families {
		if err := inside.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: f.gateway.AsSlice()}); err != nil {
			return fmt.Errorf("default route by %v: %w", f.gateway, err)
		}
	}
	return nil
}

// UpLoopback starts the loopback device of the network namespace of the thread.
func UpLoopback() error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	return upLoopback(h)
}

func upLoopback(h *netlink.Handle) error {
	const lo = 1 // the index of every namespace's loopback device
	if err := h.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: lo}}); err != nil {
		return fmt.Errorf("lo: %w", err)
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

// Detach removes the pod's pair and frees its addresses and ports. It is no error if they do not exist.
func (n *Network) Detach(id string, a Attachment) error {
	if err := n.withdraw(id, a); err != nil {
		return err
	}
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

// Down removes everything that Up and Attach have created, in this process or in an
// earlier one, and restores settings that no other bridge needs. It goes on after an
// error and reports all of them.
func (n *Network) Down() error {
	err := locked(func() error {
		var errs []error
		for _, f := range n.families {
			errs = append(errs, n.downTable(f))
		}
		return errors.Join(append(errs, n.downBridge())...)
	})
	n.forgetPods()
	n.mu.Lock()
	clear(n.owner)
	clear(n.ports)
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
		links, err := netdump.Whole(n.link.LinkList)
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
