//go:build !portable

package inprocess

import "golang.org/x/sys/unix"

// socketPair returns two connected sockets that programs that this one starts do not inherit.
func socketPair() ([2]int, error) {
	return unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
}
