package operation

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// # Many writers of one object
//
// Of clients that read an object, change it and write it back, one wins with each sync of the disk, and the
// others begin again. If all of them were answered at once, all would read at once, and all but one would lose
// again: with 16 clients each useful write took 14, and the CPU for them took longer than the sync. So
//
//   - a write waits until the earlier ones to its object are decided, before any work on it (Store.Settled);
//   - losers are answered one by one: the next when another write to the object begins, because it will be
//     decided when the client has come back, or after a pause if none does;
//   - a GET of an object with waiting losers returns what is being written, because the answer before that would
//     only lose.
//
// An object without losers has no turns, and costs one atomic load.

const (
	// turnPause is after how long the next loser gets its turn if the one before writes nothing: a client
	// on the same machine or network has come back by then.
	turnPause = 5 * time.Millisecond

	// longestTurn bounds the wait of one loser.
	longestTurn = 100 * time.Millisecond
)

// turns are the losers that wait, by the key of the object. The zero value is ready for use.
type turns struct {
	count atomic.Int64 // len(lines)

	mu    sync.Mutex
	lines map[string]*line // guarded by mu
}

// A line has the losers of one object. It exists for a pause after the last turn.
type line struct {
	waiting []chan struct{} // closed at the turn of the loser; in the order in which they lost
	pause   *time.Timer     // ends the turn of the loser before
}

// lost blocks until the loser of a write to the key has its turn, for at most longestTurn. The first one
// has it at once.
func (t *turns) lost(ctx context.Context, key string) {
	t.mu.Lock()
	l := t.lines[key]
	if l == nil {
		if t.lines == nil {
			t.lines = map[string]*line{}
		}
		t.lines[key] = &line{pause: time.AfterFunc(turnPause, func() { t.next(key) })}
		t.count.Add(1)
		t.mu.Unlock()
		return
	}
	turn := make(chan struct{})
	l.waiting = append(l.waiting, turn)
	t.mu.Unlock()
	longest := time.NewTimer(longestTurn)
	defer longest.Stop()
	select {
	case <-turn:
		return
	case <-ctx.Done():
	case <-longest.C:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.lines[key]; l != nil {
		l.waiting = slices.DeleteFunc(l.waiting, func(c chan struct{}) bool { return c == turn })
	}
}

// next gives the next loser its turn. It is called when a write to the key begins.
func (t *turns) next(key string) {
	if !t.any() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[key]
	switch {
	case l == nil:
	case len(l.waiting) == 0:
		l.pause.Stop()
		delete(t.lines, key)
		t.count.Add(-1)
	default:
		close(l.waiting[0])
		l.waiting = slices.Delete(l.waiting, 0, 1)
		l.pause.Reset(turnPause)
	}
}

// any reports whether any object has losers.
func (t *turns) any() bool { return t.count.Load() > 0 }

// contended reports whether an object has losers.
func (t *turns) contended(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lines[key] != nil
}
