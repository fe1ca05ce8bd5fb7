package auth

import (
	"crypto/sha256"
	"sync"
)

// recentSize is how many tokens a generation remembers: more than the pods of a
// node have, and a few hundred kilobytes at most.
const recentSize = 512

// recent is a cache of tokens whose signature was found good, by their hash. It holds two
// generations: when the young one is full it becomes the old one, and tokens of the old one that
// were not used since then are dropped. The zero value is empty and ready.
type recent struct {
	mu    sync.Mutex
	young map[[sha256.Size]byte]*identity // guarded by mu
	old   map[[sha256.Size]byte]*identity // guarded by mu
}

func (r *recent) get(sum [sha256.Size]byte) (*identity, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if id, ok := r.young[sum]; ok {
		return id, true
	}
	id, ok := r.old[sum]
	if ok {
		r.add(sum, id)
	}
	return id, ok
}

func (r *recent) put(sum [sha256.Size]byte, id *identity) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(sum, id)
}

// add is called with mu held.
func (r *recent) add(sum [sha256.Size]byte, id *identity) {
	if r.young == nil || len(r.young) >= recentSize {
		r.young, r.old = make(map[[sha256.Size]byte]*identity), r.young
	}
	r.young[sum] = id
}
