// Package hostaddresses follows the addresses of this host and of its routers, without polling.
package hostaddresses

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

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
	return follower[netlink.AddrUpdate]{
		subscribe: netlink.AddrSubscribe,
		concerns: func(u *netlink.AddrUpdate) bool {
			a, ok := netip.AddrFromSlice(u.LinkAddress.IP)
			return ok && counts(a.Unmap())
		},
		read: func() ([]netip.Addr, error) { return Read(but) },
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
	return follower[netlink.RouteUpdate]{
		subscribe: netlink.RouteSubscribe,
		concerns:  func(u *netlink.RouteUpdate) bool { return isDefault(&u.Route) },
		read:      ReadGateways,
	}.run(ctx, set)
}

// A follower reads a list when it starts and after each update that concerns it.
type follower[U any] struct {
	subscribe func(updates chan<- U, done <-chan struct{}) error // closes updates when done is closed, or after updates were lost
	concerns  func(*U) bool
	read      func() ([]netip.Addr, error)
}

// run calls set at once, and whenever the list has changed, until ctx is cancelled.
func (f follower[U]) run(ctx context.Context, set func([]netip.Addr)) error {
	var last []netip.Addr
	first := true
	changed := func(now []netip.Addr) {
		if first || !slices.Equal(now, last) {
			first, last = false, now
			set(now)
		}
	}
	for {
		// The kernel ends a subscription of which updates were lost; the next one begins with a new list.
		if err := f.once(ctx, changed); err != nil || !run.Pause(ctx, pause) {
			return err
		}
	}
}

// pause is the time between two subscriptions. Updates are lost when thousands come at once, which takes a while.
const pause = 100 * time.Millisecond

// once calls set at once and after changes, until ctx is cancelled or updates were lost.
func (f follower[U]) once(ctx context.Context, set func([]netip.Addr)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	updates, changed := make(chan U, 64), run.NewBell()
	if err := f.subscribe(updates, ctx.Done()); err != nil {
		return fmt.Errorf("following the addresses and routes of this host: %w", err)
	}
	g := run.NewGroup(context.WithoutCancel(ctx), 0) // it ends when updates is closed
	g.Go(func(context.Context) {
		defer close(changed)
		for u := range updates {
			if !f.concerns(&u) {
				continue
			}
			changed.Ring()
		}
	})
	for more := true; more; {
		now, err := f.read()
		if err != nil {
			return err
		}
		set(now)
		select {
		case <-ctx.Done():
			return nil
		case _, more = <-changed:
		}
	}
	return nil
}
