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

// A resource is the image of all keys with the same first segment. Everything in
// it is guarded by the mu of its Store.
type resource struct {
	image
	frozen   *image // a copy that is never changed, made for a reader; nil once a write came after it
	history  history
	watchers watchers
}

// An image is a set of live records and its index. Both trees copy on write.
type image struct {
	live  *btree.Map[string, *record]
	terms *btree.BTreeG[termed]
}

func newResource(floor Revision, limit int) *resource {
	return &resource{
		image: image{
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

// freeze returns an image that stays as it is.
func (r *resource) freeze() *image {
	if r.frozen == nil {
		r.frozen = &image{live: r.live.Copy(), terms: r.terms.Copy()}
	}
	return r.frozen
}

// A collector gathers a listing, record by record in key order.
type collector struct {
	q       Query
	p       Page
	undone  []undone // what differed at p.At, by key
	out     Listing
	visited int
}

// An undone is a key and what stood there at an earlier revision.
type undone struct {
	key string
	rec *record // nil: nothing
}

// readerBudget is the number of records that a list looks at while it holds off
// the writers; a longer one works on a frozen copy. Copying costs writers a few
// kilobytes per list, so that short lists do without.
const readerBudget = 256

// collect lists img. It gives up and reports false after budget records; 0 means
// no bound.
func (c *collector) collect(img *image, budget int) bool {
	c.out.Records, c.out.More, c.out.Left, c.visited = nil, false, 0, 0
	rest := c.undone
	take := func(key string, rec *record) bool {
		for len(rest) > 0 && rest[0].key < key {
			c.add(rest[0].rec)
			rest = rest[1:]
		}
		if len(rest) > 0 && rest[0].key == key {
			rec, rest = rest[0].rec, rest[1:]
		}
		c.add(rec)
		c.visited++
		return budget == 0 || c.visited < budget
	}
	whole := !strings.HasSuffix(c.q.Prefix, "/")
	start := c.q.Prefix
	if c.p.After >= start {
		start = c.p.After + "\x00"
	}
	complete := true
	switch {
	case whole:
		if rec, ok := img.live.Get(c.q.Prefix); ok && c.p.After < c.q.Prefix {
			take(rec.Key, rec)
		}
	case c.q.Term != "":
		img.terms.Ascend(termed{term: c.q.Term, key: start}, func(t termed) bool {
			if t.term != c.q.Term || !strings.HasPrefix(t.key, c.q.Prefix) {
				return false
			}
			complete = take(t.key, t.rec)
			return complete
		})
	default:
		if budget == 0 && c.q.Prefix == resourceOf(c.q.Prefix)+"/" {
			size := img.live.Len()
			if c.p.Limit > 0 {
				size = min(size, c.p.Limit)
			}
			c.out.Records = make([]Record, 0, size)
		}
		img.live.Ascend(start, func(key string, rec *record) bool {
			if !strings.HasPrefix(key, c.q.Prefix) {
				return false
			}
			complete = take(key, rec)
			return complete
		})
	}
	for _, u := range rest {
		c.add(u.rec)
	}
	return complete
}

func (c *collector) add(rec *record) {
	switch {
	case rec == nil || c.q.Term != "" && !rec.has(c.q.Term):
	case c.p.Limit > 0 && len(c.out.Records) == c.p.Limit:
		c.out.More = true
		c.out.Left++
	default:
		c.out.Records = append(c.out.Records, rec.Record)
	}
}

// covers reports whether a key lies under the prefix.
func (q Query) covers(key string) bool {
	if strings.HasSuffix(q.Prefix, "/") {
		return strings.HasPrefix(key, q.Prefix)
	}
	return key == q.Prefix
}

// matches reports whether the record before or after the write is asked for.
func (q Query) matches(e *event) bool {
	return q.covers(e.rec.Key) && (q.Term == "" || e.rec.has(q.Term) || e.prev.has(q.Term))
}
