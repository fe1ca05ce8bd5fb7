package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// An Author names the user of a write, and the program that sent it, for a backend that keeps superseded writes. Others
// ignore it.
type Author struct {
	User  string // such as "system:serviceaccount:kube-system:deployment-controller"
	Agent string // the field manager, or else the User-Agent
}

// A Historian is a backend that can keep superseded writes.
type Historian interface {
	// Past returns the kept writes, or nil if none are kept. It may be called from any goroutine.
	Past() Past

	// Purge begins to remove the values of superseded writes to the keys for which match returns true, and calls done when
	// no file has them, or with the error. It may wait for earlier work of this kind, but not for the new one. An error
	// breaks the backend; done is not called then.
	Purge(ctx context.Context, match func(key []byte) bool, done func(error)) error
}

// A Past is the superseded writes that a backend keeps. Its methods read files, and are safe for concurrent use. They
// end early with the cause of their context. An [*ExpiredError] says that a revision or time is older than the oldest
// one that is kept, a [*PastError] that a file of the history is damaged; the store works without it.
type Past interface {
	// Span returns the extent of the history.
	Span(ctx context.Context) (PastSpan, error)

	// RevisionAt returns the newest revision at a time, which is one of saved writes.
	RevisionAt(ctx context.Context, at time.Time) (Revision, error)

	// State calls each for the records whose keys match, as they were at a revision, in the order of their keys. Data is
	// that of the backend, valid until each returns, and nil if it was purged.
	State(ctx context.Context, at Revision, match func(key []byte) bool, each func(Entry) error) error

	// Writes calls each for saved writes in the order in which they were saved. It returns how many earlier ones it left
	// out because of the limit.
	Writes(ctx context.Context, q PastQuery, each func(PastWrite) error) (left int, err error)
}

// A PastSpan is the extent of a [Past]: it has the states from a revision on.
type PastSpan struct {
	From  Revision
	Since time.Time // of the first write after From that has a time; zero if there is none
}

// A PastQuery selects saved writes.
type PastQuery struct {
	Match func(key []byte) bool
	After Revision // kept revisions above it
	To    Revision // revisions up to this one
	Limit int      // only so many of the newest ones; > 0
}

// A PastWrite is a saved write. Its data is that of the backend, and valid until the callback returns.
type PastWrite struct {
	Entry         // after the write; a deletion has no Data, nor has a value that was purged
	Before  Entry // the record before; without a Key if the write made the key
	Deleted bool
}

// An ExpiredError says that the history begins later. It matches [ErrExpired].
type ExpiredError struct{ PastSpan }

func (e *ExpiredError) Error() string {
	if e.Since.IsZero() {
		return fmt.Sprintf("the history begins at revision %d", e.From)
	}
	return fmt.Sprintf("the history begins at %s (revision %d)", e.Since.UTC().Format(time.RFC3339), e.From)
}

// Is makes errors.Is(err, ErrExpired) true.
func (e *ExpiredError) Is(target error) bool { return target == ErrExpired }

// A PastError says that a file of the history is damaged.
type PastError struct {
	File   string // path
	Offset int64  // in bytes
	Reason string
}

func (e *PastError) Error() string {
	return fmt.Sprintf("the history is damaged: %s at byte offset %d: %s. The cluster works without this file; "+
		"remove it to read the history after it", e.File, e.Offset, e.Reason)
}

// ErrNoHistory says that the backend keeps no superseded writes.
var ErrNoHistory = errors.New("the store keeps no history")

// Past returns the superseded writes that the backend keeps, or [ErrNoHistory].
func (s *Store) Past() (Past, error) {
	if h, ok := s.backend.(Historian); ok {
		if past := h.Past(); past != nil {
			return past, nil
		}
	}
	return nil, ErrNoHistory
}

// A purge is a request to the goroutine that commits.
type purge struct {
	match func(key []byte) bool
	done  chan error // has space for the result
}

// Purge removes the values of superseded writes to the keys for which match returns true from all files. It blocks
// until that is done, and needs [Store.Run]. If ctx ends first, the removal may go on.
func (s *Store) Purge(ctx context.Context, match func(key []byte) bool) error {
	if _, err := s.Past(); err != nil {
		return err
	}
	p := purge{match, make(chan error, 1)}
	select {
	case s.purges <- p:
	case <-s.ended:
		return ErrStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-p.done:
		return err
	case <-s.ended:
		return ErrStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// startPurge hands a purge to the backend. Its error breaks the store.
func (s *Store) startPurge(ctx context.Context, p purge) error {
	h, ok := s.backend.(Historian)
	if !ok {
		p.done <- ErrNoHistory
		return nil
	}
	return h.Purge(ctx, p.match, func(err error) { p.done <- err })
}
