package typedjson

import (
	"hash/maphash"
	"sync/atomic"
)

// Objects repeat each other: the pods of one workload differ in little but their names. Short strings that
// were read lately are therefore read into one copy for all objects.
//
// The table is a cache: each string has one place, by its hash, which the next string with that place takes
// over. A string gets a copy of its own when it is read the second time in a row, so that names and UIDs cost nothing
// but a comparison.

const recentStrings = 4096 // of at most longString bytes each: half a megabyte

type recentTable struct {
	seed   maphash.Seed
	places [recentStrings]recentPlace
}

type recentPlace struct {
	hash atomic.Uint64          // of the last string here
	text atomic.Pointer[string] // nil until a string came twice
}

var recent = recentTable{seed: maphash.MakeSeed()} // a cache, as the plans are

// find returns the shared copy of b, if there is one now.
func (t *recentTable) find(b []byte) (string, bool) {
	h := maphash.Bytes(t.seed, b)
	p := &t.places[h%recentStrings]
	if s := p.text.Load(); s != nil && *s == string(b) {
		return *s, true
	}
	if p.hash.Swap(h) != h {
		return "", false
	}
	s := string(b)
	p.text.Store(&s)
	return s, true
}
