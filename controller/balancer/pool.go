package balancer

import (
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// A Pool is the addresses that there are to be given, in the order in which they are. The
// zero Pool has none.
type Pool struct {
	ranges []span
}

// A span is the addresses from first to last, both included.
type span struct{ first, last netip.Addr }

func (s span) holds(a netip.Addr) bool { return s.first.Compare(a) <= 0 && a.Compare(s.last) <= 0 }

// ParsePool reads addresses, prefixes and ranges with commas between, such as "192.0.2.10-192.0.2.20,2001:db8::/120". An
// empty text is the zero Pool. The error lists all faults of the text.
func ParsePool(text string) (Pool, error) {
	var p Pool
	var errs []error
	if strings.TrimSpace(text) == "" {
		return p, nil
	}
	for word := range strings.SplitSeq(text, ",") {
		word = strings.TrimSpace(word)
		s, err := parseSpan(word)
		if err == nil {
			err = usable(s)
		}
		if err == nil {
			for _, other := range p.ranges {
				if other.holds(s.first) || s.holds(other.first) {
					err = fmt.Errorf("it overlaps with %s", other)
					break
				}
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%q: %w", word, err))
			continue
		}
		p.ranges = append(p.ranges, s)
	}
	return p, errors.Join(errs...)
}

var errWords = errors.New("want an address, a range such as 192.0.2.10-192.0.2.20, or a prefix such as 192.0.2.0/28")

func parseSpan(word string) (span, error) {
	if from, to, ranged := strings.Cut(word, "-"); ranged {
		first, err1 := netip.ParseAddr(strings.TrimSpace(from))
		last, err2 := netip.ParseAddr(strings.TrimSpace(to))
		switch {
		case err1 != nil || err2 != nil:
			return span{}, errWords
		case first.Is4() != last.Is4():
			return span{}, errors.New("its ends are of different IP families")
		case last.Less(first):
			return span{}, errors.New("it ends before it begins")
		}
		return span{first, last}, nil
	}
	if strings.Contains(word, "/") {
		n, err := netip.ParsePrefix(word)
		switch {
		case err != nil:
			return span{}, errWords
		case n != n.Masked():
			return span{}, fmt.Errorf("it has bits set beyond its length; want %s", n.Masked())
		}
		return span{n.Addr(), lastOf(n)}, nil
	}
	a, err := netip.ParseAddr(word)
	if err != nil {
		return span{}, errWords
	}
	return span{a, a}, nil
}

func lastOf(n netip.Prefix) netip.Addr {
	b := n.Addr().AsSlice()
	for i := n.Bits(); i < 8*len(b); i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// usable refuses addresses that clients elsewhere cannot reach.
func usable(s span) error {
	for _, no := range []struct{ what, network string }{
		{"unspecified addresses", "0.0.0.0/8"},
		{"addresses of loopback", "127.0.0.0/8"},
		{"link-local addresses", "169.254.0.0/16"},
		{"addresses of multicast and beyond", "224.0.0.0/3"},
		{"unspecified addresses", "::/128"},
		{"addresses of loopback", "::1/128"},
		{"IPv4 addresses written as IPv6", "::ffff:0:0/96"},
		{"link-local addresses", "fe80::/10"},
		{"addresses of multicast", "ff00::/8"},
	} {
		n := netip.MustParsePrefix(no.network)
		if bad := (span{n.Addr(), lastOf(n)}); s.first.BitLen() == n.Addr().BitLen() && (bad.holds(s.first) || s.holds(bad.first)) {
			return fmt.Errorf("it holds %s (%s)", no.what, no.network)
		}
	}
	if s.first.Zone() != "" || s.last.Zone() != "" {
		return errors.New("an address with a zone is one of a single link")
	}
	return nil
}

func (s span) String() string {
	if s.first == s.last {
		return s.first.String()
	}
	return s.first.String() + "-" + s.last.String()
}

// String returns the pool in words that [ParsePool] reads.
func (p Pool) String() string {
	words := make([]string, len(p.ranges))
	for i, s := range p.ranges {
		words[i] = s.String()
	}
	return strings.Join(words, ",")
}

// Empty reports whether the pool has no addresses.
func (p Pool) Empty() bool { return len(p.ranges) == 0 }

// Overlaps reports whether the pool has addresses of a network.
func (p Pool) Overlaps(n netip.Prefix) bool {
	n = n.Masked()
	network := span{n.Addr(), lastOf(n)}
	for _, s := range p.ranges {
		if s.holds(network.first) || network.holds(s.first) {
			return true
		}
	}
	return false
}

// Holds reports whether an address is one of the pool.
func (p Pool) Holds(a netip.Addr) bool {
	for _, s := range p.ranges {
		if s.holds(a) {
			return true
		}
	}
	return false
}

// size returns how many addresses of a family there are, or as many as can be said.
func (p Pool) size(family corev1.IPFamily) uint64 {
	var n uint64
	for _, s := range p.ranges {
		if familyOf(s.first) != family {
			continue
		}
		a, b := s.first.As16(), s.last.As16()
		var low, borrow, high uint64
		low, borrow = bits.Sub64(half(b[8:]), half(a[8:]), 0)
		if high, _ = bits.Sub64(half(b[:8]), half(a[:8]), borrow); high > 0 || low+1 == 0 || n+low+1 < n {
			return 1<<64 - 1
		}
		n += low + 1
	}
	return n
}

func half(b []byte) (n uint64) {
	for _, x := range b[:8] {
		n = n<<8 | uint64(x)
	}
	return n
}

// from returns the addresses of a family in their order, beginning at one of them; the
// zero address means at the first.
func (p Pool) from(family corev1.IPFamily, begin netip.Addr) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		found := !begin.IsValid()
		for _, s := range p.ranges {
			if familyOf(s.first) != family {
				continue
			}
			a := s.first
			if !found {
				if !s.holds(begin) {
					continue
				}
				a, found = begin, true
			}
			for ; a.IsValid() && s.holds(a); a = a.Next() {
				if !yield(a) {
					return
				}
			}
		}
	}
}

func familyOf(a netip.Addr) corev1.IPFamily {
	if a.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}
