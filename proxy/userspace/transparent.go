package userspace

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// canImpersonate reports whether a connection to a backend can come from the address of
// its client.
func (f *Forwarder) canImpersonate(client, backend netip.Addr) bool {
	// A pod throws away what comes from itself, and from loopback.
	if client == backend || client.IsLoopback() {
		return false
	}
	return f.opts.Reachable == nil || f.opts.Reachable(backend)
}

// impersonate makes a socket come from an address that is not of this node.
func impersonate(fd int, client netip.Addr) error {
	level, option := unix.SOL_IP, unix.IP_TRANSPARENT
	if client.Is6() {
		level, option = unix.SOL_IPV6, unix.IPV6_TRANSPARENT
	}
	if err := unix.SetsockoptInt(fd, level, option, 1); err != nil {
		return err
	}
	// The port is chosen when it is known where the connection goes: there are more.
	if err := unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
		return err
	}
	a := addressOf(netip.AddrPortFrom(client, 0))
	return bind(fd, &a)
}

type routes struct{}

func makeRoutes() (*routes, error) { return &routes{}, nil }

func (*routes) remove() error { return nil }
