package cache

import (
	"slices"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/run"
)

// An index finds objects by a function's values. Its owner guards it.
type index struct {
	values  func(client.Object) []string
	buckets map[string]*bucket
}

// A bucket holds the entries of one value.
type bucket struct {
	index   *index
	value   string
	entries []*entry
	places  []int // which place of the entry at the same position this is
}

// An entry is an object in the cache. It knows where it stands in the buckets of all
// indexes, so that nothing is looked for when it leaves, and one whose values stay as
// they are, which is what most changes leave, only gets another object.
type entry struct {
	obj    client.Object
	places []place // in the order of the indexes and of their values
}

// A place is where an entry stands in a bucket.
type place struct {
	bucket *bucket
	at     int
}

// guarded returns values as a function that does not panic: it is called with the lock of the
// cache held. An object that it panics over is not in the index.
func (c *follower) guarded(name string, values func(client.Object) []string) func(client.Object) []string {
	return func(obj client.Object) (found []string) {
		if err := run.Catch(func() error { found = values(obj); return nil }); err != nil {
			c.panicked(obj, "index "+name, err)
			return nil
		}
		return found
	}
}

func (i *index) find(value string) []*entry {
	if b := i.buckets[value]; b != nil {
		return b.entries
	}
	return nil
}

// put puts a new entry into the buckets of its object.
func (e *entry) put(indexes []*index) {
	for _, i := range indexes {
		for _, v := range distinct(i.values(e.obj)) {
			b := i.buckets[v]
			if b == nil {
				b = &bucket{index: i, value: v}
				i.buckets[v] = b
			}
			b.places = append(b.places, len(e.places))
			e.places = append(e.places, place{b, len(b.entries)})
			b.entries = append(b.entries, e)
		}
	}
}

// leave takes an entry out of all buckets. Its place gets the last one.
func (e *entry) leave() {
	for _, p := range e.places {
		b := p.bucket
		last := len(b.entries) - 1
		moved, nth := b.entries[last], b.places[last]
		b.entries[last] = nil // the garbage collector shall have it
		b.entries, b.places = b.entries[:last], b.places[:last]
		if last == 0 {
			delete(b.index.buckets, b.value)
		}
		if moved == e {
			continue
		}
		b.entries[p.at], b.places[p.at] = moved, nth
		moved.places[nth].at = p.at
	}
	e.places = nil
}

// replace gives an entry another object.
func (e *entry) replace(obj client.Object, indexes []*index) {
	stays := e.fits(obj, indexes)
	e.obj = obj
	if !stays {
		e.leave()
		e.put(indexes)
	}
}

// fits reports whether obj belongs into the buckets that e is in.
func (e *entry) fits(obj client.Object, indexes []*index) bool {
	k := 0
	for _, i := range indexes {
		for _, v := range distinct(i.values(obj)) {
			if k == len(e.places) || e.places[k].bucket.index != i || e.places[k].bucket.value != v {
				return false
			}
			k++
		}
	}
	return k == len(e.places)
}

// distinct returns the values without repetitions of earlier ones.
func distinct(values []string) []string {
	const few = 16 // which are compared with each other faster than in a map
	if len(values) <= few {
		for n := 1; n < len(values); n++ {
			if slices.Contains(values[:n], values[n]) {
				return withoutRepeats(values)
			}
		}
		return values
	}
	return withoutRepeats(values)
}

func withoutRepeats(values []string) []string {
	known := make(map[string]bool, len(values))
	out := make([]string, 0, len(values))
	for _, v := range values {
		if !known[v] {
			known[v] = true
			out = append(out, v)
		}
	}
	return out
}
