package images

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/sampan-io/sampan/internal/run"
)

// pullers begin turns and record which of them were granted.
type pullers struct {
	*pullQueue
	g     *run.Group
	began chan string
}

func (p *pullers) add(namespaces ...string) {
	for _, ns := range namespaces {
		p.g.Go(func(ctx context.Context) {
			if p.wait(ctx, ns) == nil {
				p.began <- ns
			}
		})
		synctest.Wait()
	}
}

func (p *pullers) take() (list string) {
	synctest.Wait()
	for len(p.began) > 0 {
		list += <-p.began + " "
	}
	return list
}

func TestHangingPullsLeaveTurnsToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := &pullers{newPullQueue(5), run.NewGroup(ctx, 0), make(chan string, 100)}
		p.add("a", "a", "a", "a", "a", "a")
		if got := p.take(); got != "a a a " {
			t.Errorf("one namespace has %q of 5 turns", got)
		}
		p.add("b", "b", "c")
		if got := p.take(); got != "b b " {
			t.Errorf("the second namespace gets %q", got)
		}
		p.add("b")
		p.done("a") // c has none yet
		if got := p.take(); got != "c " {
			t.Errorf("the free turn goes to %q", got)
		}
		p.done("b")
		if got := p.take(); got != "b " {
			t.Errorf("the next free turn goes to %q: b has 1, a has 2", got)
		}
		cancel()
		p.g.Wait()
		if len(p.waiting) > 0 || p.total != 5 {
			t.Errorf("%d wait after the end, %d run", len(p.waiting), p.total)
		}
	})
}

func TestTurnsOfOne(t *testing.T) {
	turns := newPullQueue(1)
	if err := turns.wait(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("enough")
	cancel(reason)
	if err := turns.wait(ctx, "b"); !errors.Is(err, reason) {
		t.Errorf("%v, want %v", err, reason)
	}
	turns.done("a")
	if err := turns.wait(t.Context(), "a"); err != nil || turns.total != 1 {
		t.Errorf("%v, %d turns are taken", err, turns.total)
	}
}
