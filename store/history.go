package store

import (
	"sort"
	"time"

	"github.com/sampan-io/sampan/internal/sorting"
)

// An event is one write as the history keeps it.
type event struct {
	rec     *record
	prev    *record // nil if the write made the key
	deleted bool
	at      int64 // when it was published, Unix nanoseconds
}

// memory returns how many bytes the event keeps in memory beside the live records: the value before the write.
func (e *event) memory() int64 {
	size := int64(0)
	if e.prev != nil {
		size += int64(e.prev.memory)
	}
	if e.deleted {
		size += recordOverhead // the last state shares the value before it
	}
	return size
}

// A history keeps the newest events of one resource. Events are numbered in the
// order in which they come; the number is what watchers remember, since the
// revisions of one resource have gaps.
type history struct {
	limit int
	ring  []event // event n stands at n % len(ring); grows up to limit
	first uint64  // number of the oldest event that is kept
	next  uint64  // number of the event to come
	bytes int64   // that the values take which only the history keeps
	floor Revision
	// floor is the revision of the newest event that is not kept (any more): a reader that has seen
	// less cannot go on from here.
}

// append adds e, dropping the oldest event if there is no room, and returns its
// number.
func (h *history) append(e event) uint64 {
	if kept := int(h.next - h.first); kept == len(h.ring) {
		if kept < h.limit {
			h.grow()
		} else {
			h.drop()
		}
	}
	n := h.next
	*h.at(n) = e
	h.next++
	h.bytes += e.memory()
	return n
}

func (h *history) at(n uint64) *event { return &h.ring[n%uint64(len(h.ring))] }

func (h *history) grow() {
	bigger := make([]event, min(max(16, 2*len(h.ring)), h.limit))
	for n := h.first; n < h.next; n++ {
		bigger[n%uint64(len(bigger))] = *h.at(n)
	}
	h.ring = bigger
}

func (h *history) drop() {
	oldest := h.at(h.first)
	h.floor = oldest.rec.Revision
	h.bytes -= oldest.memory()
	*oldest = event{} // release the values
	h.first++
}

// trim drops the events published before the given time.
func (h *history) trim(before time.Time) {
	for limit := before.UnixNano(); h.first < h.next && h.at(h.first).at < limit; {
		h.drop()
	}
}

// after returns the number of the first event after a revision, which must not
// lie below the floor.
func (h *history) after(r Revision) uint64 {
	kept := int(h.next - h.first)
	return h.first + uint64(sort.Search(kept, func(i int) bool {
		return h.at(h.first+uint64(i)).rec.Revision > r
	}))
}

// undo returns what differed at an earlier revision, by key, among the keys that
// q covers and that come after the given one. The revision must not lie below
// the floor.
func (h *history) undo(at Revision, q Query, afterKey string) []undone {
	n := h.after(at)
	if n == h.next {
		return nil
	}
	seen := map[string]bool{}
	var out []undone
	for ; n < h.next; n++ {
		e := h.at(n)
		if key := e.rec.Key; q.covers(key) && key > afterKey && !seen[key] {
			seen[key] = true
			out = append(out, undone{key, e.prev})
		}
	}
	sorting.Slice(out, func(a, b undone) int {
		if a.key < b.key {
			return -1
		}
		return 1
	})
	return out
}

// boundHistories drops the oldest events of the largest histories until all together take no more than their share. The
// caller holds mu for writing.
func (i *Image) boundHistories() {
	limit := i.opts.Quota / historyShare
	if limit == 0 {
		return
	}
	for i.histories > limit {
		var largest *history
		for _, r := range i.resources {
			if largest == nil || r.history.bytes > largest.bytes {
				largest = &r.history
			}
		}
		// An eighth more than necessary, so that not every write looks at all resources.
		before := largest.bytes
		for goal := before - (i.histories - limit) - limit/8; largest.bytes > max(goal, 0) && largest.first < largest.next; {
			largest.drop()
		}
		i.histories -= before - largest.bytes
	}
}

// historyBytes returns the size of the old values in all histories. The caller holds mu.
func (i *Image) historyBytes() (total int64) {
	for _, r := range i.resources {
		total += r.history.bytes
	}
	return total
}
