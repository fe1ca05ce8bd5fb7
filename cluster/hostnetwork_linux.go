//go:build !portable

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/run"
)

// freebind opens sockets on an address that this host does not have yet: the
// bridge comes up at the same time.
var freebind = net.ListenConfig{Control: func(network, _ string, raw syscall.RawConn) error {
	level, option := unix.SOL_IP, unix.IP_FREEBIND
	if strings.HasSuffix(network, "6") {
		level, option = unix.SOL_IPV6, unix.IPV6_FREEBIND
	}
	var err error
	if ctl := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, 1) }); ctl != nil {
		return ctl
	}
	return err
}}

// changes reports changes of addresses and routes of this host until ctx is cancelled.
func changes(ctx context.Context) (<-chan struct{}, error) {
	addresses, routes := make(chan netlink.AddrUpdate, 16), make(chan netlink.RouteUpdate, 16)
	err := errors.Join(netlink.AddrSubscribe(addresses, ctx.Done()), netlink.RouteSubscribe(routes, ctx.Done()))
	if err != nil {
		return nil, fmt.Errorf("following the addresses of this host: %w", err)
	}
	changed := run.NewBell()
	notify := func() {
		changed.Ring()
	}
	g := run.NewGroup(context.WithoutCancel(ctx), 0) // they end when the channels are closed
	g.Go(func(context.Context) {
		for range addresses {
			notify()
		}
	})
	g.Go(func(context.Context) {
		for range routes {
			notify()
		}
	})
	return changed, nil
}
