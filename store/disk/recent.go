package disk

import (
	"slices"
	"strings"

	"github.com/sampan-io/sampan/store"
)

// Writes are recent up to so many, and up to so many bytes: the writes that clients of a server that was killed have not
// received yet, and some more for clients that are slow.
const (
	maxRecent      = 2048
	maxRecentBytes = 2 << 20
)

// recentWrites are the newest writes of a log while it is read. A nil one has none.
type recentWrites struct {
	queue  []*store.Entry // by revision; a deletion has no Data
	begin  int            // where the recent ones begin in queue
	bytes  int
	count  map[string]int            // recent writes by key
	floors map[string]store.Revision // of the newest write to each resource that is not recent
}

// take adds a write, and moves writes that are no longer recent to the newest older ones. No history goes back beyond
// one that is not in order: it was saved late, or comes after a crash.
func (w *recentWrites) take(r raw, older map[string]*store.Entry, inOrder bool) {
	e := &store.Entry{Key: string(r.key), Created: r.created, Revision: r.revision, Expires: r.expires}
	if !r.deleted {
		e.Data = slices.Clone(r.data)
	}
	if w.count == nil {
		w.count = map[string]int{}
	}
	w.queue = append(w.queue, e)
	w.count[e.Key]++
	w.bytes += len(e.Key) + len(e.Data)
	for len(w.queue)-w.begin > maxRecent || w.bytes > maxRecentBytes || !inOrder && w.begin < len(w.queue) {
		w.age(older)
	}
	if w.begin > maxRecent { // half of the queue or more is free
		w.queue = slices.Delete(w.queue, 0, w.begin)
		w.begin = 0
	}
}

// age moves the oldest recent write to the older ones.
func (w *recentWrites) age(older map[string]*store.Entry) {
	e := w.queue[w.begin]
	w.queue[w.begin] = nil
	w.begin++
	w.bytes -= len(e.Key) + len(e.Data)
	if w.count[e.Key]--; w.count[e.Key] == 0 {
		delete(w.count, e.Key)
	}
	resource, _, _ := strings.Cut(e.Key, "/")
	w.floors[resource] = max(w.floors[resource], e.Revision)
	older[e.Key] = e
}

// writes reports whether there is a recent write to a key.
func (w *recentWrites) writes(key string) bool { return w != nil && w.count[key] > 0 }

// list returns the recent writes by revision.
func (w *recentWrites) list() []*store.Entry {
	if w == nil {
		return nil
	}
	return w.queue[w.begin:]
}
