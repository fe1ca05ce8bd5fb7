package store

import (
	"cmp"
	"iter"
	"slices"
)

// A Frozen is the state of an image at one revision. It stays as it is while writes go on, and keeps the memory of the
// records in it until it is unreachable. It is safe for concurrent use.
type Frozen struct {
	Revision Revision

	sets    []*set // in the order of their keys
	records int
}

// Freeze returns the state at the newest revision. It holds up writes for the time that it takes to note the
// resources, whatever number of records they have: the trees copy on write.
func (i *Image) Freeze() *Frozen {
	i.mu.Lock()
	defer i.mu.Unlock()
	f := &Frozen{Revision: i.last}
	names := make([]string, 0, len(i.resources))
	for name, r := range i.resources {
		if r.live.Len() > 0 {
			names = append(names, name)
		}
	}
	// A key goes on with "/" behind the name of its resource: "a-b/x" is before "a/x".
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(a+"/", b+"/") })
	for _, name := range names {
		frozen := i.resources[name].freeze()
		f.sets = append(f.sets, frozen)
		f.records += frozen.live.Len()
	}
	return f
}

// Len returns the number of records.
func (f *Frozen) Len() int { return f.records }

// All yields the records in the order of their keys, each with the time when it is to be deleted, in Unix seconds; 0
// means never.
func (f *Frozen) All() iter.Seq2[Record, int64] {
	return func(yield func(Record, int64) bool) {
		for _, in := range f.sets {
			more := true
			in.live.Scan(func(_ string, rec *record) bool {
				more = yield(rec.Record, rec.expires)
				return more
			})
			if !more {
				return
			}
		}
	}
}
