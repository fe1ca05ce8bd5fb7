// Package unread decides which earlier output of a container a client that attaches gets first.
//
// A command may have printed all it prints before the first client is attached: `kubectl run -i` attaches when it has seen
// the pod running. The first client of a container that has just started therefore gets its output from the beginning, and
// later ones what was written after the last client came. Reading the log counts as well, because newer versions of kubectl
// print it before they attach. Clients of older containers get what is written from then on, as from other kubelets.
package unread

import (
	"sync"
	"time"
)

// fresh is the age up to which a container has just started: more than a client needs to learn that and to attach.
const fresh = time.Minute

// A Tracker remembers until when the output of new containers was read. The zero Tracker is ready for use, from any
// goroutine. It needs memory for the containers that were read during the last minute.
type Tracker struct {
	mu   sync.Mutex
	read map[string]time.Time // guarded by mu; by the ID of the container
}

// Read records that a client reads all output of a container up to now.
func (t *Tracker) Read(container string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, at := range t.read {
		if now.Sub(at) > fresh {
			delete(t.read, id)
		}
	}
	if t.read == nil {
		t.read = map[string]time.Time{}
	}
	t.read[container] = now
}

// Since returns the time after which a client that attaches now gets earlier output, or nil if it gets none.
func (t *Tracker) Since(container string, started, now time.Time) *time.Time {
	if now.Sub(started) > fresh {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return new(t.read[container])
}
