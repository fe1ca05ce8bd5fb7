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
func (s *Store) Reach(ctx context.Context, r Revision) error {
	s.mu.Lock()
	if s.last >= r {
		s.mu.Unlock()
		return nil
	}
	w := &reader{r, make(chan struct{})}
	s.readers = append(s.readers, w)
	s.mu.Unlock()
	select {
	case <-w.reached:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.readers, w)
	if i < 0 { // it was reached meanwhile
		return nil
	}
	s.readers = slices.Delete(s.readers, i, i+1)
	return fmt.Errorf("revision %d, current: %d: %w", r, s.last, ErrFuture)
}

// wakeReaders ends the waits for revisions that are published. The caller holds mu.
func (s *Store) wakeReaders() {
	if len(s.readers) == 0 {
		return
	}
	s.readers = slices.DeleteFunc(s.readers, func(w *reader) bool {
		if w.revision > s.last {
			return false
		}
		close(w.reached)
		return true
	})
}

// Settled blocks while a write to the key that was accepted before the call is not decided, or until ctx is
// over, and then returns its cause. A write that expects the revision from before would fail with a
// [*ConflictError] unless that one fails.
func (s *Store) Settled(ctx context.Context, key string) error {
	s.accept.mu.Lock()
	p, ok := s.accept.pending[key]
	s.accept.mu.Unlock()
	if !ok {
		return nil
	}
	select {
	case <-p.outcome.known:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
