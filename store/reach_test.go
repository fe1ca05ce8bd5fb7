package store_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

// TestReach waits for a revision that comes, and for one that does not.
func TestReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := store.Open(t.Context(), nil, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		g := run.NewGroup(t.Context(), 0)
		defer g.Stop()
		g.Go(func(ctx context.Context) { _ = s.Run(ctx) })
		<-s.Ready()
		if err := s.Reach(t.Context(), s.Revision()); err != nil {
			t.Error(err)
		}
		want := s.Revision() + 2
		reached := make(chan error, 1)
		g.Go(func(ctx context.Context) { reached <- s.Reach(ctx, want) })
		for _, key := range []string{"a/1", "a/2"} {
			synctest.Wait()
			select {
			case err := <-reached:
				t.Fatalf("reached too early: %v", err)
			default:
			}
			if _, err := s.Commit(t.Context(), store.Write{Key: key, Value: text("x")}); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-reached; err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Reach(ctx, want+1); !errors.Is(err, store.ErrFuture) {
			t.Errorf("a revision that does not come: %v", err)
		}
	})
}

type text string

func (v text) Bytes() []byte           { return []byte(v) }
func (text) Place(_, _ store.Revision) {}
