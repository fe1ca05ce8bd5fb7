package admission

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
)

// Why an address or port cannot be had; the words are those of Kubernetes.
var (
	errAddressTaken = errors.New("provided IP is already allocated")
	errPortTaken    = errors.New("provided port is already allocated")
	errFull         = errors.New("range is full")
)

// A pool is a range of service addresses, without the first (the network) and
// for IPv4 the last (broadcast). Which of them are taken is not its business.
type pool struct {
	prefix netip.Prefix
	first  netip.Addr // offset 0
	size   uint64     // number of addresses that can be given
}

// newPool returns the pool of prefix, which must have room for at least two.
func newPool(prefix netip.Prefix) (pool, error) {
	prefix = prefix.Masked()
	// More than 2³² addresses are never needed, and the arithmetic stays simple.
	size := uint64(1)<<min(prefix.Addr().BitLen()-prefix.Bits(), 32) - 1
	if prefix.Addr().Is4() {
		size--
	}
	if prefix.Addr().BitLen()-prefix.Bits() < 2 {
		return pool{}, fmt.Errorf("the service network %s is too small: it needs at least four addresses", prefix)
	}
	return pool{prefix: prefix, first: prefix.Addr().Next(), size: size}, nil
}

// at returns the address at an offset below size.
func (p pool) at(offset uint64) netip.Addr {
	b := p.first.As16()
	// Networks are aligned, so the sum stays within the last four bytes.
	low := uint64(b[12])<<24 | uint64(b[13])<<16 | uint64(b[14])<<8 | uint64(b[15])
	low += offset
	b[12], b[13], b[14], b[15] = byte(low>>24), byte(low>>16), byte(low>>8), byte(low)
	a := netip.AddrFrom16(b)
	if p.first.Is4() {
		return a.Unmap()
	}
	return a
}

// holds reports whether the address can be given at all.
func (p pool) holds(a netip.Addr) bool {
	return p.prefix.Contains(a) && !a.Less(p.first) && !p.at(p.size-1).Less(a)
}

func (p pool) refusal(a netip.Addr) error {
	return fmt.Errorf("the provided IP (%v) is not in the valid range. The range of valid IPs is %s", a, p.prefix)
}

// next returns an address that is not taken. The lower part of the range, a
// sixteenth of it between 16 and 256 addresses, is used last: there people put the
// addresses that they choose themselves.
func (p pool) next(taken func(netip.Addr) bool) (netip.Addr, error) {
	quiet := min(max(p.size/16, 16), 256)
	if quiet >= p.size {
		quiet = 0
	}
	if a, ok := p.scan(quiet, p.size, taken); ok {
		return a, nil
	}
	if a, ok := p.scan(0, quiet, taken); ok {
		return a, nil
	}
	return netip.Addr{}, errFull
}

// scan looks through the offsets [from, to), beginning at a random one, so that an address that was
// just freed is not given to the next service at once.
func (p pool) scan(from, to uint64, taken func(netip.Addr) bool) (netip.Addr, bool) {
	n := to - from
	if n == 0 {
		return netip.Addr{}, false
	}
	start := rand.Uint64N(n) // nothing is to be kept secret
	for i := range n {
		if a := p.at(from + (start+i)%n); !taken(a) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// A PortRange is the node ports that services can have, both ends included.
type PortRange struct{ First, Last int32 }

func (r PortRange) holds(port int32) bool { return r.First <= port && port <= r.Last }

func (r PortRange) refusal() error {
	return fmt.Errorf("provided port is not in the valid range. The range of valid ports is %d-%d", r.First, r.Last)
}

// next returns a port that is not taken. The lower part is used last, as with
// addresses.
func (r PortRange) next(taken func(int32) bool) (int32, error) {
	n := r.Last - r.First + 1
	quiet := min(max(n/32, 16), 128)
	if n < 2*quiet {
		quiet = 0
	}
	for _, part := range [][2]int32{{quiet, n}, {0, quiet}} {
		size := part[1] - part[0]
		if size <= 0 {
			continue
		}
		start := rand.Int32N(size) // nothing is to be kept secret
		for i := range size {
			if port := r.First + part[0] + (start+i)%size; !taken(port) {
				return port, nil
			}
		}
	}
	return 0, errFull
}
