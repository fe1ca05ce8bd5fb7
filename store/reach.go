package store

import (
	"context"
	"fmt"
	"slices"
)

// A reader waits until a revision is published.
type reader struct {
	revision Revision
	reached  chan struct{}
}

// Reach blocks until the newest revision is at least r, or ctx is over: then the error is
// ErrFuture.
func (i *Image) Reach(ctx context.Context, r Revision) error {
	i.mu.Lock()
	if i.last >= r {
		i.mu.Unlock()
		return nil
	}
	w := &reader{r, make(chan struct{})}
	i.readers = append(i.readers, w)
	i.mu.Unlock()
	select {
	case <-w.reached:
		return nil
	case <-ctx.Done():
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	at := slices.Index(i.readers, w)
	if at < 0 { // it was reached meanwhile
		return nil
	}
	i.readers = slices.Delete(i.readers, at, at+1)
	return fmt.Errorf("revision %d, current: %d: %w", r, i.last, ErrFuture)
}

// wakeReaders ends the waits for revisions that are published. The caller holds mu.
func (i *Image) wakeReaders() {
	if len(i.readers) == 0 {
		return
	}
	i.readers = slices.DeleteFunc(i.readers, func(w *reader) bool {
		if w.revision > i.last {
			return false
		}
		close(w.reached)
		return true
	})
}
