// Package netdump reads lists of the kernel that change while they are read: links, addresses, routes and tracked connections.
package netdump

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// tries is how often a list is read: a host that starts many pods changes its links a few hundred times in a second, and reading
// them takes less than a millisecond.
const tries = 20

// Whole calls read, and again while the kernel reports that the list changed meanwhile ([netlink.ErrDumpInterrupted]): entries may be
// missing then. It returns that error if the list does not stop changing, and other errors at once.
func Whole[T any](read func() (T, error)) (list T, err error) {
	for range tries {
		if list, err = read(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return list, err
}
