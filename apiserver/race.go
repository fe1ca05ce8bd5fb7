package apiserver

import (
	"context"
	"errors"
	"time"

	"github.com/sampan-io/sampan/store"
)

// A racedError means that another request wrote the object between our read and our write.
type racedError struct {
	seen store.Revision // the revision that was read
}

func (*racedError) Error() string { return "the object changed in the meantime" }

// untilWon repeats a read-modify-write until no other write comes in between. One write succeeds
// each time, and a request with a resource version ends in a conflict by itself.
func (s *Server) untilWon(ctx context.Context, t *target, try func() (result, error)) (result, error) {
	for {
		r, err := try()
		var raced *racedError
		if !errors.As(err, &raced) {
			return r, err
		}
		if ctx.Err() != nil {
			return result{}, modified(t.kind.GR(), t.name)
		}
		s.awaitWinner(ctx, t, raced.seen)
	}
}

// longestRace bounds the wait for a winner whose write may yet fail.
const longestRace = 100 * time.Millisecond

// awaitWinner returns when the write that was faster can be read. It may be on its way
// to the disk for a while, and trying again before it arrives would only lose again.
func (s *Server) awaitWinner(ctx context.Context, t *target, seen store.Revision) {
	ctx, cancel := context.WithTimeout(ctx, longestRace)
	defer cancel()
	for ev, err := range s.opts.Store.Watch(ctx, store.Query{Prefix: t.key()}, seen) {
		if err != nil || ev.Key != "" {
			return
		}
	}
}
