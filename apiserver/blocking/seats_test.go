package blocking_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sampan-io/sampan/apiserver/blocking"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

// A seat counts who sits, and calls yield between two evaluations.
type seat struct {
	yield func()
	leave func()
}

func (s seat) Yield(ctx context.Context) error {
	if s.yield != nil {
		s.yield()
	}
	return context.Cause(ctx)
}

func (s seat) Leave() { s.leave() }

// collection is a question about all objects that is never answered.
func collection(user string, enter func(context.Context) (blocking.Seat, error)) blocking.Request {
	r := about("", ask(blocking.Outcome{Name: "x", Text: "object.n == -1", Any: true}))
	r.User, r.Enter = user, enter
	return r
}

// TestEvaluationsEndWithTheirRequest cancels a request that evaluates an expression over many objects.
func TestEvaluationsEndWithTheirRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := open(t)
		for i := range 100 {
			f.put(fmt.Sprint(i), int64(i))
		}
		gone := errors.New("the client has gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		left, between := 0, 0
		_, err := f.waiters.Wait(ctx, collection("u", func(context.Context) (blocking.Seat, error) {
			return seat{func() {
				if between++; between == 3 {
					cancel(gone)
				}
			}, func() { left++ }}, nil
		}))
		if n := f.waiters.Evaluations(); !errors.Is(err, gone) || n > 3 || left != 1 {
			t.Errorf("Wait = %v after %d evaluations, and %d seats were left", err, n, left)
		}
		f.stop()
	})
}

// TestEvaluationsEndAtTheTimeLimit evaluates an expression whose objects take a second each.
func TestEvaluationsEndAtTheTimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := open(t, func(o *blocking.Options) {
			o.Object = func(v store.Value) (map[string]any, error) {
				time.Sleep(time.Second)
				return object(v)
			}
		})
		for i := range 100 {
			f.put(fmt.Sprint(i), int64(i))
		}
		for _, limit := range []time.Duration{0, 10 * time.Second} {
			r := collection("u", nil)
			r.Timeout = limit
			start := time.Now()
			_, err := f.waiters.Wait(t.Context(), r)
			late := (*blocking.TimeoutError)(nil)
			if took := time.Since(start); !errors.As(err, &late) || took > limit+blocking.LookTime+time.Second || len(late.Unmet) != 1 {
				t.Errorf("a time limit of %s: Wait = %v after %s", limit, err, took)
			}
		}
		f.stop()
	})
}

// TestChangesAreJudgedInSeatsOfTheirUser has a user without a seat, and another one, who is answered.
func TestChangesAreJudgedInSeatsOfTheirUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := open(t)
		f.put("a", 1)
		free := make(chan struct{}, 10)
		free <- struct{}{}
		var mu sync.Mutex
		seats := 0
		enter := func(ctx context.Context) (blocking.Seat, error) {
			select {
			case <-free:
				mu.Lock()
				defer mu.Unlock()
				seats++
				return seat{nil, func() {}}, nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		g := run.NewGroup(t.Context(), 0)
		var slow, quick time.Duration
		wait := func(user string, enter func(context.Context) (blocking.Seat, error), took *time.Duration) {
			g.Go(func(ctx context.Context) {
				start := time.Now()
				r := about("a", ask(one("object.n == 2")))
				r.User, r.Enter = user, enter
				if _, err := f.waiters.Wait(ctx, r); err != nil {
					t.Errorf("%s: %v", user, err)
				}
				*took = time.Since(start)
			})
		}
		wait("slow", enter, &slow)
		synctest.Wait()
		wait("quick", nil, &quick)
		synctest.Wait()
		f.put("a", 2)
		synctest.Wait()
		time.Sleep(10 * time.Second)
		free <- struct{}{}
		g.Wait()
		if quick != 0 || slow != 10*time.Second || seats != 2 {
			t.Errorf("the user with seats waited %s, the other one %s; %d seats were taken", quick, slow, seats)
		}
		f.stop()
	})
}
