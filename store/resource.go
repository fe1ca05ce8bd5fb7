package store

import (
	"slices"
	"strings"
	"time"

	"github.com/tidwall/btree"
)

// A record is a Record with its index terms. It never changes once published,
// so the image, the history and readers share it.
type record struct {
	Record
	terms   []string
	size    int   // as Entry.Size counts; 0 without a backend
	memory  int   // bytes that it takes in memory, see memoryOf
	expires int64 // Unix seconds; 0 means never
}

func (r *record) has(term string) bool { return r != nil && slices.Contains(r.terms, term) }

// A termed is an entry of the index: the records of a term stand together, in
// key order.
type termed struct {
	term string
	key  string
	rec  *record
}

func termedLess(a, b termed) bool {
	if a.term != b.term {
		return a.term < b.term
	}
	return a.key < b.key
}

// A resource is the live records of all keys with the same first segment, their history and its watchers. Everything
// in it is guarded by the mu of its Image.
type resource struct {
	set
	frozen   *set // a copy that is never changed, made for a reader; nil once a write came after it
	history  history
	watchers watchers
}

// A set is live records and their index. Both trees copy on write.
type set struct {
	live  *btree.Map[string, *record]
	terms *btree.BTreeG[termed]
}

func newResource(floor Revision, limit int) *resource {
	return &resource{
		set: set{
			live:  new(btree.Map[string, *record]),
			terms: btree.NewBTreeGOptions(termedLess, btree.Options{NoLocks: true}),
		},
		history: history{floor: floor, limit: limit},
	}
}

// resourceOf returns the first segment of a key or prefix.
func resourceOf(key string) string {
	name, _, _ := strings.Cut(key, "/")
	return name
}

// apply makes one write visible, wakes the watchers that wait for it, and returns the record
// before, or nil.
func (r *resource) apply(rec *record, deleted bool, now time.Time) *record {
	r.frozen = nil
	var prev *record
	if deleted {
		prev, _ = r.live.Delete(rec.Key)
	} else {
		prev, _ = r.live.Set(rec.Key, rec)
	}
	if prev != nil {
		for _, t := range prev.terms {
			if deleted || !rec.has(t) {
				r.terms.Delete(termed{term: t, key: rec.Key})
			}
		}
	}
	if !deleted {
		for _, t := range rec.terms {
			r.terms.Set(termed{term: t, key: rec.Key, rec: rec})
		}
	}
	e := event{rec: rec, prev: prev, deleted: deleted, at: now.UnixNano()}
	r.watchers.wake(&e, r.history.append(e))
	return prev
}

// freeze returns a set that stays as it is.
func (r *resource) freeze() *set {
	if r.frozen == nil {
		r.frozen = &set{live: r.live.Copy(), terms: r.terms.Copy()}
	}
	return r.frozen
}
