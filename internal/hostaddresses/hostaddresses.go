// Package hostaddresses follows the addresses of this host, without polling.
package hostaddresses

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

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
		if err := follow(ctx, but, changed); err != nil || !run.Pause(ctx, pause) {
			return err
		}
	}
}

// pause is the time between two subscriptions. Updates are lost when thousands come at once, which takes a while.
const pause = 100 * time.Millisecond

// follow calls set at once and after changes, until ctx is cancelled or updates were lost.
func follow(ctx context.Context, but string, set func([]netip.Addr)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	updates, changed := make(chan netlink.AddrUpdate, 64), make(chan struct{}, 1)
	if err := netlink.AddrSubscribe(updates, ctx.Done()); err != nil {
		return fmt.Errorf("following the addresses of this host: %w", err)
	}
	g := run.NewGroup(context.WithoutCancel(ctx), 0) // it ends when updates is closed
	g.Go(func(context.Context) {
		defer close(changed)
		for u := range updates {
			if a, ok := netip.AddrFromSlice(u.LinkAddress.IP); !ok || !counts(a.Unmap()) {
				continue
			}
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	})
	for more := true; more; {
		now, err := Read(but)
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
