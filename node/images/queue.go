package images

import (
	"context"
	"slices"
	"sync"
)

// queue divides the pulls that the node does at the same time among namespaces: pulls that hang are not in the way of those for
// pods in other namespaces.
//
//   - At most limit pulls run, and at most half of them, rounded up, for one namespace.
//   - Of the namespaces that wait, the one with the fewest running pulls comes first; among equals, who has waited longest.
type pullQueue struct {
	limit int

	mu      sync.Mutex
	running map[string]int // guarded by mu; by namespace
	total   int            // guarded by mu
	waiting []*waitingPull // guarded by mu; in the order of their arrival
}

// A waitingPull is a pull that waits.
type waitingPull struct {
	namespace string
	granted   chan struct{} // closed when it may begin
}

func newPullQueue(limit int) *pullQueue {
	return &pullQueue{limit: limit, running: map[string]int{}}
}

// wait waits for the turn of a namespace. Without an error the caller has to call done afterwards.
func (t *pullQueue) wait(ctx context.Context, namespace string) error {
	w := &waitingPull{namespace, make(chan struct{})}
	t.mu.Lock()
	t.waiting = append(t.waiting, w)
	t.grant()
	t.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	i := slices.Index(t.waiting, w)
	if i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	}
	t.mu.Unlock()
	if i < 0 { // it was granted meanwhile
		t.done(namespace)
	}
	return context.Cause(ctx)
}

// done ends a turn.
func (t *pullQueue) done(namespace string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total--
	if t.running[namespace]--; t.running[namespace] == 0 {
		delete(t.running, namespace)
	}
	t.grant()
}

// grant lets all begin that may. The caller holds mu.
func (t *pullQueue) grant() {
	share := (t.limit + 1) / 2
	for t.total < t.limit {
		next := -1
		for i, w := range t.waiting {
			n := t.running[w.namespace]
			if n < share && (next < 0 || n < t.running[t.waiting[next].namespace]) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		w := t.waiting[next]
		t.waiting = slices.Delete(t.waiting, next, next+1)
		t.total++
		t.running[w.namespace]++
		close(w.granted)
	}
}
