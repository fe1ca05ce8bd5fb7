package announce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/netdump"
)

// Options configures an [Announcer]. Link is required.
type Options struct {
	Link string       // name of the link that has the addresses; other programs must not use it
	Log  *slog.Logger // nil means slog.Default
}

// An Announcer implements proxy.Announcer in the network namespace of the process. It needs
// CAP_NET_ADMIN and CAP_NET_RAW.
type Announcer struct{ opts Options }

// New returns an announcer without addresses.
func New(o Options) (*Announcer, error) {
	if o.Link == "" || len(o.Link) >= unix.IFNAMSIZ {
		return nil, fmt.Errorf("announce: Options.Link is %q, want 1 to %d bytes", o.Link, unix.IFNAMSIZ-1)
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Announcer{o}, nil
}

// Announce implements proxy.Announcer.
func (a *Announcer) Announce(ctx context.Context, all []netip.Addr) error {
	if len(all) == 0 {
		return Remove(a.opts.Link)
	}
	h, err := look(a.opts.Link)
	if err != nil {
		return err
	}
	if h.own == nil {
		// A bridge without ports: every kernel that runs pods supports bridges.
		l := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: a.opts.Link}}
		if err := netlink.LinkAdd(l); err != nil {
			return fmt.Errorf("making the link %s: %w", a.opts.Link, err)
		}
		h.own = l
	}
	if err := netlink.LinkSetUp(h.own); err != nil {
		return fmt.Errorf("setting up the link %s: %w", a.opts.Link, err)
	}
	var errs []error
	for _, p := range h.places {
		if p.link == h.own.Attrs().Index && single(p.net) && !slices.Contains(all, p.net.Addr()) {
			errs = append(errs, h.remove(p.net.Addr()))
		}
	}
	for _, addr := range all {
		mine, others := h.has(addr)
		switch {
		case others && !mine: // announce-A1
			a.opts.Log.DebugContext(ctx, "this host has the address of a load balancer already", "address", addr)
		case !mine:
			if err := h.add(addr); err != nil {
				errs = append(errs, err)
				continue
			}
			links := h.neighbours(addr)
			a.opts.Log.InfoContext(ctx, "the address of a load balancer is announced", "address", addr, "links", len(links))
			if err := h.notify(addr); err != nil {
				a.opts.Log.WarnContext(ctx, "cannot announce the address of a load balancer to neighbours", "address", addr, "err", err)
			}
		}
	}
	return errors.Join(errs...)
}

// Remind implements proxy.Announcer.
func (a *Announcer) Remind(_ context.Context, of []netip.Addr) error {
	if len(of) == 0 {
		return nil
	}
	h, err := look(a.opts.Link)
	if err != nil || h.own == nil {
		return err
	}
	var errs []error
	for _, addr := range of {
		if mine, _ := h.has(addr); mine {
			errs = append(errs, h.notify(addr))
		}
	}
	return errors.Join(errs...)
}

// notify announces to all neighbours that this host has an address.
func (h *host) notify(addr netip.Addr) error {
	var errs []error
	for _, l := range h.neighbours(addr) {
		if err := notify(l, addr); err != nil {
			errs = append(errs, fmt.Errorf("on link %s: %w", l.Attrs().Name, err))
		}
	}
	return errors.Join(errs...)
}

// Remove removes a link with all its addresses. It is not an error if there is none.
func Remove(link string) error {
	h, err := look(link)
	if err != nil || h.own == nil {
		return err
	}
	var errs []error
	for _, p := range h.places {
		if p.link == h.own.Attrs().Index && single(p.net) {
			errs = append(errs, h.remove(p.net.Addr()))
		}
	}
	if err := netlink.LinkDel(h.own); err != nil && !errors.Is(err, unix.ENODEV) {
		errs = append(errs, fmt.Errorf("removing the link %s: %w", link, err))
	}
	return errors.Join(errs...)
}

// A host is the links and addresses of this host.
type host struct {
	own    netlink.Link // nil if it does not exist
	links  []netlink.Link
	places []place
}

// A place is an address on a link.
type place struct {
	link int
	net  netip.Prefix
}

func single(n netip.Prefix) bool { return n.Bits() == n.Addr().BitLen() }

func look(own string) (*host, error) {
	links, err := netdump.Whole(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("listing the links of this host: %w", err)
	}
	addrs, err := netdump.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("listing the addresses of this host: %w", err)
	}
	h := &host{links: links}
	for _, l := range links {
		if l.Attrs().Name == own {
			h.own = l
		}
	}
	for _, a := range addrs {
		ip, ok := netip.AddrFromSlice(a.IP)
		if !ok {
			continue
		}
		ip = ip.Unmap()
		bits, _ := a.Mask.Size()
		h.places = append(h.places, place{a.LinkIndex, netip.PrefixFrom(ip, bits)})
	}
	return h, nil
}

// has reports whether an address is on the announcer's link, and whether it is on others.
func (h *host) has(addr netip.Addr) (mine, others bool) {
	for _, p := range h.places {
		if p.net.Addr() == addr {
			if p.link == h.own.Attrs().Index {
				mine = true
			} else {
				others = true
			}
		}
	}
	return mine, others
}

// neighbours returns the links in whose networks an address is.
func (h *host) neighbours(addr netip.Addr) []netlink.Link {
	var links []netlink.Link
	for _, l := range h.links {
		at := l.Attrs()
		if at.Flags&net.FlagUp != 0 && at.Flags&net.FlagLoopback == 0 && len(at.HardwareAddr) == 6 && slices.ContainsFunc(h.places, func(p place) bool {
			return p.link == at.Index && !single(p.net) && p.net.Contains(addr)
		}) {
			links = append(links, l)
		}
	}
	return links
}

// address returns the netlink form of an address, without duplicate address detection, which would
// take a second in which the address does not work. An IPv6 address is deprecated, so that this
// host does not choose it as a source address (announce-A4): it is on the same link as the host's
// own addresses.
func address(addr netip.Addr) *netlink.Addr {
	a := &netlink.Addr{IPNet: &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}}
	if addr.Is6() {
		a.Flags = unix.IFA_F_NODAD
		a.ValidLft, a.PreferedLft = math.MaxUint32, 0 // valid for ever, preferred never
	}
	return a
}

func (h *host) add(addr netip.Addr) error {
	links := []netlink.Link{h.own}
	if addr.Is6() {
		links = append(links, h.neighbours(addr)...)
	}
	for _, l := range links {
		if err := netlink.AddrAdd(l, address(addr)); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("adding %v to %s: %w", addr, l.Attrs().Name, err)
		}
	}
	return nil
}

// remove removes an address from the other links where it was added, and then from the announcer's
// link.
func (h *host) remove(addr netip.Addr) error {
	for _, l := range append(slices.DeleteFunc(slices.Clone(h.links), func(l netlink.Link) bool { return l.Attrs().Index == h.own.Attrs().Index }), h.own) {
		if !slices.Contains(h.places, place{l.Attrs().Index, netip.PrefixFrom(addr, addr.BitLen())}) {
			continue
		}
		if err := netlink.AddrDel(l, address(addr)); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("removing %v from %s: %w", addr, l.Attrs().Name, err)
		}
	}
	return nil
}
