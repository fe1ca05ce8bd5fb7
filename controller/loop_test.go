package controller_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/leaktest"
	"github.com/sampan-io/sampan/internal/run"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// looping runs a loop with the given reconcile function while f uses it.
func looping(t *testing.T, workers int, reconcile func(context.Context, controller.Key) (controller.Result, error), f func(l *controller.Loop)) {
	synctest.Test(t, func(t *testing.T) {
		l := controller.New(controller.Options{Name: "test", Workers: workers, Reconcile: reconcile})
		g := run.NewGroup(t.Context(), 0)
		defer g.Stop()
		g.Go(func(ctx context.Context) { _ = l.Run(ctx) })
		<-l.Ready()
		f(l)
	})
}

func key(name string) controller.Key { return controller.Key{Name: name} }

// diary is what a reconcile function did, and when.
type diary struct {
	mu    sync.Mutex
	start time.Time // guarded by mu
	lines []string  // guarded by mu
}

func (d *diary) add(what any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.start.IsZero() {
		d.start = time.Now()
	}
	d.lines = append(d.lines, fmt.Sprintf("%v %v", time.Since(d.start).Round(time.Second), what))
}

func (d *diary) want(t *testing.T, want ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.lines, want) {
		t.Errorf("reconciled %q, want %q", d.lines, want)
	}
}

func TestAKeyIsQueuedOnceAndWorkedOnAlone(t *testing.T) {
	var d diary
	looping(t, 2, func(_ context.Context, k controller.Key) (controller.Result, error) {
		d.add(k)
		time.Sleep(10 * time.Second)
		return controller.Result{}, nil
	}, func(l *controller.Loop) {
		for range 5 {
			l.Add(key("a"))
		}
		synctest.Wait()
		for range 5 {
			l.Add(key("a")) // while it is being worked on
		}
		time.Sleep(time.Minute)
		d.want(t, "0s a", "10s a")
	})
}

func TestWorkersAreBounded(t *testing.T) {
	var d diary
	looping(t, 2, func(context.Context, controller.Key) (controller.Result, error) {
		d.add("x")
		time.Sleep(10 * time.Second)
		return controller.Result{}, nil
	}, func(l *controller.Loop) {
		for _, n := range []string{"a", "b", "c", "d", "e"} {
			l.Add(key(n))
		}
		time.Sleep(time.Minute)
		d.want(t, "0s x", "0s x", "10s x", "10s x", "20s x")
	})
}

func TestAFailureIsTriedAgainLessAndLessOften(t *testing.T) {
	var mu sync.Mutex
	var tries []time.Time
	looping(t, 1, func(context.Context, controller.Key) (controller.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		if tries = append(tries, time.Now()); len(tries) == 12 {
			return controller.Result{}, nil
		}
		return controller.Result{}, errors.New("no")
	}, func(l *controller.Loop) {
		l.Add(key("a"))
		time.Sleep(time.Hour)
		mu.Lock()
		defer mu.Unlock()
		if len(tries) != 12 {
			t.Fatalf("%d tries, want 12: eleven failures and no more after the success", len(tries))
		}
		for i, pause := 1, 20*time.Millisecond; i < len(tries); i, pause = i+1, pause*2 {
			if gap := tries[i].Sub(tries[i-1]); gap < pause || gap > pause*3/2 {
				t.Errorf("pause %d is %v, want %v and up to half as much again", i, gap, pause)
			}
		}
	})
}

func TestAnAdditionDoesNotWaitForARetry(t *testing.T) {
	var d diary
	failing := true
	looping(t, 1, func(context.Context, controller.Key) (controller.Result, error) {
		d.add("try")
		if failing {
			return controller.Result{}, errors.New("no")
		}
		return controller.Result{}, nil
	}, func(l *controller.Loop) {
		l.Add(key("a"))
		synctest.Wait()
		failing = false
		l.Add(key("a"))
		time.Sleep(time.Hour)
		d.want(t, "0s try", "0s try")
	})
}

func TestTheEarliestTimeWins(t *testing.T) {
	var d diary
	looping(t, 1, func(_ context.Context, k controller.Key) (controller.Result, error) {
		d.add(k)
		return controller.Result{}, nil
	}, func(l *controller.Loop) {
		d.add("start")
		l.AddAfter(key("a"), 30*time.Second)
		l.AddAfter(key("b"), 20*time.Second)
		l.AddAfter(key("a"), 10*time.Second)
		l.AddAfter(key("a"), 50*time.Second)
		l.AddAfter(key("c"), -time.Second)
		time.Sleep(time.Hour)
		d.want(t, "0s start", "0s c", "10s a", "20s b")
	})
}

func TestEachReconcilePlansAnew(t *testing.T) {
	var d diary
	plans := []time.Duration{30 * time.Second, 5 * time.Second, 0}
	looping(t, 1, func(context.Context, controller.Key) (controller.Result, error) {
		d.add("look")
		after := plans[0]
		plans = plans[1:]
		return controller.Result{After: after}, nil
	}, func(l *controller.Loop) {
		l.Add(key("a"))
		time.Sleep(10 * time.Second)
		l.Add(key("a"))
		time.Sleep(time.Hour)
		d.want(t, "0s look", "10s look", "15s look")
	})
}

func TestWorkBeginsWhenItsNeedsAreReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		need := make(chan struct{})
		l := controller.New(controller.Options{
			Name: "test", Needs: []<-chan struct{}{need},
			Reconcile: func(_ context.Context, k controller.Key) (controller.Result, error) {
				d.add(k)
				return controller.Result{}, nil
			},
		})
		g := run.NewGroup(t.Context(), 0)
		defer g.Stop()
		l.Add(key("a"))
		g.Go(func(ctx context.Context) { _ = l.Run(ctx) })
		synctest.Wait()
		d.want(t)
		close(need)
		synctest.Wait()
		d.want(t, "0s a")
	})
}

func TestAPanicIsAFailureOfItsKeyAlone(t *testing.T) {
	var d diary
	looping(t, 1, func(_ context.Context, k controller.Key) (controller.Result, error) {
		d.add(k)
		if k.Name == "mine" && len(d.lines) < 3 {
			panic("stepped on a mine")
		}
		return controller.Result{}, nil
	}, func(l *controller.Loop) {
		l.Add(key("mine"))
		synctest.Wait()
		l.Add(key("b"))
		time.Sleep(time.Hour)
		d.want(t, "0s mine", "0s b", "0s mine")
	})
}
