package nft

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/sorting"
)

// An interval is all addresses from one up to, and not including, another one, which is not valid
// if there is none above.
type interval struct{ from, to netip.Addr }

// intervals returns the addresses of a family that are in any of the prefixes, ascending and with
// gaps in between: the kernel refuses intervals that overlap.
func intervals(f *family, prefixes []netip.Prefix) []interval {
	var all []interval
	for _, p := range prefixes {
		if familyOf(p.Addr()) == f {
			all = append(all, interval{p.Masked().Addr(), last(p).Next()})
		}
	}
	sorting.Slice(all, func(a, b interval) int { return a.from.Compare(b.from) })
	var merged []interval
	for _, i := range all {
		if n := len(merged) - 1; n >= 0 && (!merged[n].to.IsValid() || i.from.Compare(merged[n].to) <= 0) {
			if merged[n].to.IsValid() && (!i.to.IsValid() || i.to.Compare(merged[n].to) > 0) {
				merged[n].to = i.to
			}
			continue
		}
		merged = append(merged, i)
	}
	return merged
}

// last returns the highest address of a prefix.
func last(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// intervalList returns the elements of a set of intervals.
func intervalList(all []interval) *list {
	l := &list{}
	for _, i := range all {
		l.add(element{key: i.from.AsSlice()})
		if i.to.IsValid() {
			l.add(element{key: i.to.AsSlice(), intervalEnd: true})
		}
	}
	return l
}

const sourcesPrefix = "sources"

// sourcesName returns the name of a set of sources, derived from its networks, so that frontends
// with the same networks share it.
func sourcesName(f *family, prefixes []netip.Prefix) string {
	h := sha256.New()
	for _, i := range intervals(f, prefixes) {
		h.Write(append(i.from.AsSlice(), i.to.AsSlice()...))
	}
	const bytes = 8 // enough to be unique in a cluster
	return sourcesPrefix + f.digit + "-" + hex.EncodeToString(h.Sum(nil)[:bytes])
}

// addSources adds a set of clients that may connect.
func (b *batch) addSources(name string, prefixes []netip.Prefix) {
	f := v4
	if strings.HasPrefix(name, sourcesPrefix+v6.digit) {
		f = v6
	}
	b.addSet(set{name: name, flags: unix.NFT_SET_INTERVAL, key: f.address})
	b.elements(name, false, intervalList(intervals(f, prefixes)))
}
