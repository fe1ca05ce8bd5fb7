package operation

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sampan-io/sampan/store"
)

// A racedError means that another request wrote the object between our read and our write.
type racedError struct {
	seen store.Revision // the revision that was read
}

func (*racedError) Error() string { return "the object changed in the meantime" }

// untilWon repeats a read-modify-write until no other write comes in between. One write succeeds
// each time, and a request with a resource version ends in a conflict by itself. Losers go on, or are
// answered, in turn.
func (o *Operations) untilWon(ctx context.Context, t *Target, try func() (Result, error)) (Result, error) {
	key := t.Key()
	for waited := false; ; {
		// This write would lose against the one under way.
		if err := o.store.Settled(ctx, key); err != nil {
			return Result{}, modified(t.Kind.GR(), t.Name)
		}
		r, err := try()
		var raced *racedError
		again := errors.As(err, &raced)
		if !again && (apierrors.IsConflict(err) || apierrors.IsNotFound(err)) && o.behind(ctx) {
			continue // it was judged by a state that another server has replaced
		}
		if err == nil || !again && (waited || !apierrors.IsConflict(err)) {
			return r, err
		}
		o.turns.lost(ctx, key)
		switch waited = true; {
		case !again:
			return r, err
		case ctx.Err() != nil:
			return Result{}, modified(t.Kind.GR(), t.Name)
		}
	}
}
