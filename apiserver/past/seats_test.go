package past

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/sampan-io/sampan/internal/run"
)

// A user has two seats at most, and all together four. One that is given back wakes the others.
func TestSeatsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSeats()
		g := run.NewGroup(t.Context(), 0)
		defer g.Stop()
		type seat struct {
			user    string
			release func()
		}
		got := make(chan seat, 10)
		ask := func(user string) {
			g.Go(func(ctx context.Context) {
				if release, err := s.take(ctx, user); err == nil {
					got <- seat{user, release}
				}
			})
		}
		for range 3 {
			ask("a")
		}
		synctest.Wait()
		if len(got) != 2 {
			t.Fatalf("a user has %d seats", len(got))
		}
		first := <-got
		for _, user := range []string{"b", "b", "c"} {
			ask(user)
		}
		synctest.Wait()
		if len(got) != 3 {
			t.Fatalf("%d of 4 seats are taken", len(got)+1)
		}
		first.release()
		first.release() // once
		synctest.Wait()
		if len(got) != 4 {
			t.Errorf("%d of 4 seats are taken after one was given back", len(got))
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.take(over, "d"); err == nil {
			t.Error("a request that is over has a seat")
		}
	})
}
