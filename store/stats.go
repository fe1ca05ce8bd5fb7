package store

import (
	"sync"
	"time"
)

// Stats is the state of a store, for metrics.
type Stats struct {
	Revision Revision
	Records  int // live
	History  int // events kept for watchers
	Watchers int
	Unsaved  int // volatile writes that are not durable yet
	Full     bool

	Memory        int64 // bytes that the live records take
	HistoryMemory int64 // bytes of old values that are kept for watchers
	Quota         int64 // as Options.Quota

	Syncs   uint64        // calls of the backend that made writes durable, also failed ones
	Writes  uint64        // records in these
	Took    time.Duration // all of them together
	Latency [len(SyncBuckets)]uint64
}

// SyncBuckets are the upper bounds of the buckets of Stats.Latency, each of which counts the syncs that took no longer.
var SyncBuckets = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, time.Second, 5 * time.Second,
}

// syncs counts the syncs of a backend.
type syncs struct {
	mu      sync.Mutex
	n       uint64                   // guarded by mu, as all that follows
	writes  uint64                   //
	took    time.Duration            //
	latency [len(SyncBuckets)]uint64 // each bucket with the smaller ones
}

func (s *syncs) observe(took time.Duration, writes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	s.writes += uint64(writes)
	s.took += took
	for i := len(SyncBuckets) - 1; i >= 0 && took <= SyncBuckets[i]; i-- {
		s.latency[i]++
	}
}

// Stats returns the state of the store.
func (s *Store) Stats() Stats {
	out := Stats{Full: s.Full() != nil}
	s.mu.RLock()
	out.Revision = s.last
	for _, r := range s.resources {
		out.Records += r.live.Len()
		out.History += int(r.history.next - r.history.first)
		for _, all := range []map[string][]*watcher{r.watchers.byPrefix, r.watchers.byTerm} {
			for _, some := range all {
				out.Watchers += len(some)
			}
		}
	}
	out.HistoryMemory = s.histories
	s.mu.RUnlock()
	s.accept.mu.Lock()
	out.Unsaved = len(s.accept.unsaved.place)
	out.Memory, out.Quota = s.accept.quota.used, s.accept.quota.limit
	s.accept.mu.Unlock()
	s.syncs.mu.Lock()
	defer s.syncs.mu.Unlock()
	out.Syncs, out.Writes, out.Took, out.Latency = s.syncs.n, s.syncs.writes, s.syncs.took, s.syncs.latency
	return out
}
