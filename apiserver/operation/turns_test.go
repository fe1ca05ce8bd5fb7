package operation

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sampan-io/sampan/internal/run"
)

// Losers have their turns in order: the first at once, each other one when a write begins or the one before has
// not written for a pause.
func TestTurnsOfLosers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			ts   turns
			mu   sync.Mutex
			had  []int
			g    = run.NewGroup(t.Context(), 0)
			want = func(when string, want ...int) {
				t.Helper()
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				if !slices.Equal(had, want) {
					t.Errorf("%s losers %d had their turns, want %d", when, had, want)
				}
			}
		)
		for i := range 5 {
			g.Go(func(ctx context.Context) {
				ts.lost(ctx, "a")
				mu.Lock()
				had = append(had, i)
				mu.Unlock()
			})
			synctest.Wait()
		}
		want("at once", 0)
		ts.next("b")
		want("after a write to another object", 0)
		ts.next("a")
		want("after a write", 0, 1)
		time.Sleep(turnPause - 1)
		want("before the pause", 0, 1)
		time.Sleep(1)
		want("after the pause", 0, 1, 2)
		ts.next("a")
		want("after a second write", 0, 1, 2, 3)
		ts.next("a")
		want("after a third write", 0, 1, 2, 3, 4)
		if !ts.contended("a") || ts.contended("b") {
			t.Error("the last loser must keep the object contended until it writes or its pause is over")
		}
		time.Sleep(turnPause)
		synctest.Wait()
		if ts.contended("a") || ts.count.Load() != 0 {
			t.Error("without losers the object is still contended")
		}
		g.Wait()
	})
}

// A loser does not wait longer than its bound, or than its request.
func TestTurnsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ts turns
		const many = 100 // more than have a turn within the bound
		g := run.NewGroup(t.Context(), 0)
		began := time.Now()
		for range many {
			g.Go(func(ctx context.Context) { ts.lost(ctx, "a") })
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		ts.lost(ended, "a")
		if took := time.Since(began); took > 0 {
			t.Errorf("the loser whose request is over waited %v", took)
		}
		g.Wait()
		if took := time.Since(began); took != longestTurn {
			t.Errorf("the last of %d losers waited %v, want %v", many, took, longestTurn)
		}
		time.Sleep(turnPause)
		synctest.Wait()
		if n := ts.count.Load(); n != 0 {
			t.Errorf("%d objects are contended after all losers have left", n)
		}
	})
}
