// Package hostaddresses follows the addresses of this host and of its routers, without polling.
package hostaddresses

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	mdnetlink "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/netdump"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/sorting"
)

// Read returns the addresses on links of this network namespace, ascending, without duplicates, without those of loopback
// and link-local ones, and without those of the link but. That link need not exist.
func Read(but string) ([]netip.Addr, error) {
	index := -1
	link, err := netlink.LinkByName(but)
	switch {
	case err == nil:
		index = link.Attrs().Index
	case !errors.As(err, new(netlink.LinkNotFoundError)):
		return nil, fmt.Errorf("reading the link %s: %w", but, err)
	}
	all, err := netdump.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("reading the addresses of this host: %w", err)
	}
	var found []netip.Addr
	for i := range all {
		if a, ok := netip.AddrFromSlice(all[i].IP); ok && all[i].LinkIndex != index && counts(a.Unmap()) {
			found = append(found, a.Unmap())
		}
	}
	sorting.Slice(found, netip.Addr.Compare)
	return slices.Compact(found), nil
}

func counts(a netip.Addr) bool { return !a.IsLoopback() && !a.IsLinkLocalUnicast() }

// Follow calls set with what [Read] returns, at once and whenever it has changed, until ctx is cancelled. It returns an
// error if the addresses cannot be read or followed. Link-local addresses, which come and go with each pod, cause no work.
func Follow(ctx context.Context, but string, set func([]netip.Addr)) error {
	return follower{
		groups:   []uint32{unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR},
		concerns: concernsAddress,
		read:     func() ([]netip.Addr, error) { return Read(but) },
	}.run(ctx, set)
}

// ReadGateways returns the addresses of the routers of the default routes of this network namespace, in all of its routing
// tables, ascending, without duplicates, and without link-local ones.
func ReadGateways() ([]netip.Addr, error) {
	routes, err := netdump.Whole(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("reading the routes of this host: %w", err)
	}
	var found []netip.Addr
	add := func(ip net.IP) {
		if a, ok := netip.AddrFromSlice(ip); ok && counts(a.Unmap()) {
			found = append(found, a.Unmap())
		}
	}
	for i := range routes {
		r := &routes[i]
		if !isDefault(r) {
			continue
		}
		add(r.Gw)
		if via, ok := r.Via.(*netlink.Via); ok {
			add(via.Addr)
		}
		for _, hop := range r.MultiPath {
			add(hop.Gw)
			if via, ok := hop.Via.(*netlink.Via); ok {
				add(via.Addr)
			}
		}
	}
	sorting.Slice(found, netip.Addr.Compare)
	return slices.Compact(found), nil
}

func isDefault(r *netlink.Route) bool {
	if r.Dst == nil {
		return true
	}
	ones, _ := r.Dst.Mask.Size()
	return ones == 0
}

// FollowGateways is [Follow] for what [ReadGateways] returns. Routes that are not default routes cause no work.
func FollowGateways(ctx context.Context, set func([]netip.Addr)) error {
	return follower{
		groups:   []uint32{unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE},
		concerns: concernsGateway,
		read:     ReadGateways,
	}.run(ctx, set)
}

// concernsAddress reports whether a message is about an address that counts: a struct ifaddrmsg and attributes,
// rtnetlink(7).
func concernsAddress(m mdnetlink.Message) bool {
	if len(m.Data) < unix.SizeofIfAddrmsg {
		return false
	}
	attributes, err := mdnetlink.NewAttributeDecoder(m.Data[unix.SizeofIfAddrmsg:])
	if err != nil {
		return true
	}
	concerned := false
	for attributes.Next() {
		// A link to one peer has both: its own address, and that of the peer.
		if t := attributes.Type(); t == unix.IFA_LOCAL || t == unix.IFA_ADDRESS {
			a, ok := netip.AddrFromSlice(attributes.Bytes())
			concerned = concerned || ok && counts(a.Unmap())
		}
	}
	return concerned || attributes.Err() != nil
}

// concernsGateway reports whether a message is about a default route: a struct rtmsg, whose second byte is the length
// of the prefix of the destination, rtnetlink(7).
func concernsGateway(m mdnetlink.Message) bool {
	return len(m.Data) >= unix.SizeofRtMsg && m.Data[1] == 0
}

// A follower reads a list when it starts and after each message that concerns it. The library with links and routes
// follows them as well, with 64 KiB of stack for each of them.
type follower struct {
	groups   []uint32 // of the kernel's messages (RTNLGRP_*)
	concerns func(mdnetlink.Message) bool
	read     func() ([]netip.Addr, error)
}

// run calls set at once, and whenever the list has changed, until ctx is cancelled.
func (f follower) run(ctx context.Context, set func([]netip.Addr)) error {
	var last []netip.Addr
	first := true
	changed := func(now []netip.Addr) {
		if first || !slices.Equal(now, last) {
			first, last = false, now
			set(now)
		}
	}
	conn, err := mdnetlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return fmt.Errorf("following the addresses and routes of this host: %w", err)
	}
	g := run.NewGroup(ctx, 0)
	defer g.Wait()
	defer func() { _ = conn.Close() }() // ends the Receive
	for _, group := range f.groups {
		if err := conn.JoinGroup(group); err != nil {
			return fmt.Errorf("following the addresses and routes of this host: %w", err)
		}
	}
	bell, failed := run.NewBell(), make(chan error, 1)
	g.Go(func(ctx context.Context) { failed <- f.receive(ctx, conn, bell) })
	for {
		now, err := f.read()
		if err != nil {
			return err
		}
		changed(now)
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-bell:
		}
	}
}

// pause is the time after lost messages until the list is read. Messages are lost when thousands come at once, which
// takes a while.
const pause = 100 * time.Millisecond

// receive rings the bell after messages that concern the list, until ctx is cancelled or the socket is closed.
func (f follower) receive(ctx context.Context, conn *mdnetlink.Conn, bell run.Bell) error {
	for {
		messages, err := conn.Receive()
		switch {
		case ctx.Err() != nil || errors.Is(err, os.ErrClosed):
			return nil
		case errors.Is(err, unix.ENOBUFS): // messages were lost
			if !run.Pause(ctx, pause) {
				return nil
			}
			bell.Ring()
		case err != nil:
			return fmt.Errorf("following the addresses and routes of this host: %w", err)
		case slices.ContainsFunc(messages, f.concerns):
			bell.Ring()
		}
	}
}
