package run_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sampan-io/sampan/internal/run"
)

// diary records what happened, in order.
type diary struct {
	mu    sync.Mutex
	lines []string // guarded by mu
}

func (d *diary) add(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

// task returns a task that is ready after the given time, and ends by itself
// with failure when that is not nil.
func (d *diary) task(name string, ready time.Duration, failure error) run.Task {
	ch := make(chan struct{})
	return run.Task{Name: name, Ready: ch, Run: func(ctx context.Context) error {
		d.add(name + " starts")
		time.Sleep(ready)
		close(ch)
		if failure != nil {
			return failure
		}
		<-ctx.Done()
		d.add(name + " stops")
		return nil
	}}
}

func TestStagesStartAndStopInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var d diary
		time.AfterFunc(time.Minute, cancel)
		err := run.Stages(ctx,
			run.Stage{d.task("store", time.Second, nil)},
			run.Stage{d.task("apiserver", time.Second, nil)},
			run.Stage{d.task("scheduler", 0, nil)},
		)
		if err != nil {
			t.Fatalf("Stages = %v, want nil after a plain cancel", err)
		}
		want := []string{
			"store starts", "apiserver starts", "scheduler starts",
			"scheduler stops", "apiserver stops", "store stops",
		}
		if !slices.Equal(d.lines, want) {
			t.Errorf("order:\n%s\nwant:\n%s", strings.Join(d.lines, "\n"), strings.Join(want, "\n"))
		}
	})
}

func TestAFailureEndsTheRunAndNamesTheTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		boom := errors.New("boom")
		err := run.Stages(t.Context(),
			run.Stage{d.task("store", 0, nil)},
			run.Stage{d.task("apiserver", time.Second, boom)},
			run.Stage{d.task("scheduler", 0, nil)},
		)
		if !errors.Is(err, boom) || !strings.Contains(err.Error(), "apiserver: boom") {
			t.Errorf("Stages = %v, want apiserver: boom", err)
		}
		if !slices.Contains(d.lines, "store stops") {
			t.Errorf("store was not stopped: %q", d.lines)
		}
	})
}

func TestEarlyEndOfTaskIsFailure(t *testing.T) {
	err := run.Stages(t.Context(), run.Stage{{Name: "store", Run: func(context.Context) error { return nil }}})
	if err == nil || !strings.Contains(err.Error(), "store ended on its own") {
		t.Errorf("Stages = %v, want an error naming store", err)
	}
}

func TestGroupKeepsItsBoundAndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := run.NewGroup(t.Context(), 2)
		var now, most, done atomic.Int32
		for range 10 {
			g.Go(func(context.Context) {
				most.Store(max(most.Load(), now.Add(1)))
				time.Sleep(time.Second)
				now.Add(-1)
				done.Add(1)
			})
		}
		g.Wait()
		if most.Load() > 2 || done.Load() != 10 {
			t.Errorf("%d at once and %d done, want at most 2 and 10", most.Load(), done.Load())
		}
		g.Stop()
		if g.Go(func(context.Context) {}) {
			t.Error("a stopped group started a goroutine")
		}
	})
}
