package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	upstream "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"github.com/sampan-io/sampan/wait"
)

const (
	interval = time.Second
	timeout  = 3500 * time.Millisecond
)

// A form is a function of either package, given a condition and a context that ends
// after timeout.
type form func(ctx context.Context, condition func() (bool, error)) error

// A pair is a name of apimachinery's package and its replacement. The replacements are
// quoted in APIMACHINERY.md, which TestPage compares with this file.
type pair struct {
	name       string
	upstream   form
	here       form
	oneLook    bool // ours calls the condition once more, at the limit or although the context was cancelled
	ignoresErr bool // there is no result: it runs until it is stopped
}

var pairs = []pair{
	{
		name: "Poll",
		upstream: func(_ context.Context, condition func() (bool, error)) error {
			return upstream.Poll(interval, timeout, condition)
		},
		here: func(_ context.Context, condition func() (bool, error)) error {
			return wait.Poll(interval, timeout, condition)
		},
	},
	{
		name: "PollWithContext",
		upstream: func(ctx context.Context, condition func() (bool, error)) error {
			return upstream.PollWithContext(ctx, interval, timeout, upstream.ConditionFunc(condition).WithContext())
		},
		here: func(ctx context.Context, f func() (bool, error)) error {
			ctx = context.WithoutCancel(ctx) // the timeout alone, or it is a matter of luck which is first
			condition := func(context.Context) (bool, error) { return f() }
			return wait.PollWithContext(ctx, interval, timeout, condition)
		},
		oneLook: true,
	},
	{
		name: "PollInfinite",
		upstream: func(ctx context.Context, condition func() (bool, error)) error {
			return upstream.PollInfinite(interval, ending(ctx, condition))
		},
		here: func(ctx context.Context, condition func() (bool, error)) error {
			condition = ending(ctx, condition)
			return wait.Poll(interval, 0, condition)
		},
	},
	{
		name: "PollInfiniteWithContext",
		upstream: func(ctx context.Context, condition func() (bool, error)) error {
			return upstream.PollInfiniteWithContext(ctx, interval, upstream.ConditionFunc(condition).WithContext())
		},
		here: pollWithContext,
	},
	{
		name: "PollUntil",
		upstream: func(ctx context.Context, condition func() (bool, error)) error {
			return upstream.PollUntil(interval, condition, ctx.Done())
		},
		here: pollWithContext,
	},
	{
		name: "PollUntilWithContext",
		upstream: func(ctx context.Context, condition func() (bool, error)) error {
			return upstream.PollUntilWithContext(ctx, interval, upstream.ConditionFunc(condition).WithContext())
		},
		here: pollWithContext,
	},
	{
		name: "PollImmediate",
		upstream: func(_ context.Context, condition func() (bool, error)) error {
			return upstream.PollImmediate(interval, timeout, condition)
		},
		here: untilLimit, oneLook: true,
	},
	{
		name: "PollImmediateWithContext",
		upstream: func(ctx context.Context, condition func() (bool, error)) error {
			return upstream.PollImmediateWithContext(context.WithoutCancel(ctx), interval, timeout, upstream.ConditionFunc(condition).WithContext())
		},
		here: untilLimit, oneLook: true,
	},
	{
		name: "PollImmediateInfinite",
		upstream: func(ctx context.Context, condition func() (bool, error)) error {
			return upstream.PollImmediateInfinite(interval, ending(ctx, condition))
		},
		here: func(ctx context.Context, f func() (bool, error)) error {
			f = ending(ctx, f)
			ctx = context.WithoutCancel(ctx)
			return until(ctx, f)
		},
	},
	{
		name: "PollImmediateInfiniteWithContext",
		upstream: func(ctx context.Context, condition func() (bool, error)) error {
			return upstream.PollImmediateInfiniteWithContext(ctx, interval, upstream.ConditionFunc(condition).WithContext())
		},
		here: until,
	},
	{
		name: "PollImmediateUntil",
		upstream: func(ctx context.Context, condition func() (bool, error)) error {
			return upstream.PollImmediateUntil(interval, condition, ctx.Done())
		},
		here: until,
	},
	{
		name: "PollImmediateUntilWithContext",
		upstream: func(ctx context.Context, condition func() (bool, error)) error {
			return upstream.PollImmediateUntilWithContext(ctx, interval, upstream.ConditionFunc(condition).WithContext())
		},
		here: until,
	},
	{
		name: "PollUntilContextCancel",
		upstream: func(ctx context.Context, condition func() (bool, error)) error {
			return upstream.PollUntilContextCancel(ctx, interval, true, upstream.ConditionFunc(condition).WithContext())
		},
		here: until,
	},
	{
		name: "PollUntilContextTimeout",
		upstream: func(ctx context.Context, condition func() (bool, error)) error {
			return upstream.PollUntilContextTimeout(ctx, interval, timeout, true, upstream.ConditionFunc(condition).WithContext())
		},
		here: untilLimit, oneLook: true,
	},
	{
		name: "ExponentialBackoff",
		upstream: func(_ context.Context, condition func() (bool, error)) error {
			return upstream.ExponentialBackoff(upstream.Backoff{Duration: interval, Factor: 2, Steps: 3}, condition)
		},
		here: backoff,
	},
	{
		name: "ExponentialBackoffWithContext",
		upstream: func(ctx context.Context, condition func() (bool, error)) error {
			return upstream.ExponentialBackoffWithContext(ctx, upstream.Backoff{Duration: interval, Factor: 2, Steps: 3}, upstream.ConditionFunc(condition).WithContext())
		},
		here: backoff,
	},
	{
		name: "Until",
		upstream: func(ctx context.Context, condition func() (bool, error)) error {
			upstream.Until(func() { _, _ = condition() }, interval, ctx.Done())
			return nil
		},
		here: repeat, ignoresErr: true,
	},
	{
		name: "UntilWithContext",
		upstream: func(ctx context.Context, condition func() (bool, error)) error {
			upstream.UntilWithContext(ctx, func(context.Context) { _, _ = condition() }, interval)
			return nil
		},
		here: repeat, ignoresErr: true,
	},
	{
		name: "JitterUntil",
		upstream: func(ctx context.Context, condition func() (bool, error)) error {
			upstream.JitterUntil(func() { _, _ = condition() }, interval, 0, true, ctx.Done())
			return nil
		},
		here: repeat, ignoresErr: true,
	},
	{
		name: "JitterUntilWithContext",
		upstream: func(ctx context.Context, condition func() (bool, error)) error {
			upstream.JitterUntilWithContext(ctx, func(context.Context) { _, _ = condition() }, interval, 0, true)
			return nil
		},
		here: repeat, ignoresErr: true,
	},
	{
		name: "NonSlidingUntil",
		upstream: func(ctx context.Context, condition func() (bool, error)) error {
			upstream.NonSlidingUntil(func() { _, _ = condition() }, interval, ctx.Done())
			return nil
		},
		here: repeatOnTheTick, ignoresErr: true,
	},
	{
		name: "NonSlidingUntilWithContext",
		upstream: func(ctx context.Context, condition func() (bool, error)) error {
			upstream.NonSlidingUntilWithContext(ctx, func(context.Context) { _, _ = condition() }, interval)
			return nil
		},
		here: repeatOnTheTick, ignoresErr: true,
	},
	{
		name: "BackoffUntil",
		upstream: func(ctx context.Context, condition func() (bool, error)) error {
			m := upstream.NewJitteredBackoffManager(interval, 0, clock.RealClock{})
			upstream.BackoffUntil(func() { _, _ = condition() }, m, true, ctx.Done())
			return nil
		},
		here: repeat, ignoresErr: true,
	},
	{
		name: "NewJitteredBackoffManager",
		upstream: func(ctx context.Context, condition func() (bool, error)) error {
			m := upstream.NewJitteredBackoffManager(interval, 0, clock.RealClock{})
			upstream.BackoffUntilWithContext(ctx, func(context.Context) { _, _ = condition() }, m, true)
			return nil
		},
		here: repeat, ignoresErr: true,
	},
	{
		name: "BackoffUntilWithContext",
		upstream: func(ctx context.Context, condition func() (bool, error)) error {
			m := upstream.NewExponentialBackoffManager(interval, 2*interval, time.Hour, 2, 0, clock.RealClock{})
			upstream.BackoffUntilWithContext(ctx, func(context.Context) { _, _ = condition() }, m, true)
			return nil
		},
		here: repeatSlower, ignoresErr: true,
	},
	{
		name: "NewExponentialBackoffManager",
		upstream: func(ctx context.Context, condition func() (bool, error)) error {
			m := upstream.NewExponentialBackoffManager(interval, 2*interval, time.Hour, 2, 0, clock.RealClock{})
			upstream.BackoffUntil(func() { _, _ = condition() }, m, true, ctx.Done())
			return nil
		},
		here: repeatSlower, ignoresErr: true,
	},
	{
		name: "BackoffManager",
		upstream: func(ctx context.Context, condition func() (bool, error)) error {
			m := upstream.NewJitteredBackoffManager(interval, 0, clock.RealClock{})
			upstream.BackoffUntilWithContext(ctx, func(context.Context) { _, _ = condition() }, m, true)
			return nil
		},
		here: repeat, ignoresErr: true,
	},
	{
		name: "Backoff",
		upstream: func(ctx context.Context, condition func() (bool, error)) error {
			b := upstream.Backoff{Duration: interval, Factor: 2, Steps: 3}
			return upstream.ExponentialBackoffWithContext(ctx, b, upstream.ConditionFunc(condition).WithContext())
		},
		here: backoff,
	},
	{
		name: "DelayFunc",
		upstream: func(ctx context.Context, condition func() (bool, error)) error {
			var delay upstream.DelayFunc = delays()
			return delay.Until(ctx, true, true, upstream.ConditionFunc(condition).WithContext())
		},
		here: own,
	},
	{
		name: "Timer",
		upstream: func(ctx context.Context, condition func() (bool, error)) error {
			var delay upstream.DelayFunc = delays()
			timer := delay.Timer(clock.RealClock{})
			timer.Stop()
			return delay.Until(ctx, true, true, upstream.ConditionFunc(condition).WithContext())
		},
		here: own,
	},
	{
		name: "ContextForChannel",
		upstream: func(ctx context.Context, condition func() (bool, error)) error {
			stop := make(chan struct{})
			time.AfterFunc(timeout, func() { close(stop) })
			return upstream.PollUntilContextCancel(upstream.ContextForChannel(stop), interval, true, upstream.ConditionFunc(condition).WithContext())
		},
		here: func(ctx context.Context, condition func() (bool, error)) error {
			stop, cancel := context.WithCancel(context.WithoutCancel(ctx))
			time.AfterFunc(timeout, cancel)
			return until(stop, condition)
		},
	},
}

// delays is a rhythm that no field of a Pace describes.
func delays() func() time.Duration {
	n := time.Duration(0)
	return func() time.Duration { n++; return n * 500 * time.Millisecond }
}

// ending makes a condition give up when ctx is over, for what runs for ever.
func ending(ctx context.Context, condition func() (bool, error)) func() (bool, error) {
	return func() (bool, error) {
		if ctx.Err() != nil {
			return false, wait.ErrWaitTimeout
		}
		return condition()
	}
}

func pollWithContext(ctx context.Context, f func() (bool, error)) error {
	condition := func(context.Context) (bool, error) { return f() }
	return wait.PollWithContext(ctx, interval, 0, condition)
}

func until(ctx context.Context, f func() (bool, error)) error {
	condition := func(context.Context) (bool, error) { return f() }
	return wait.Until(ctx, wait.Pace{First: interval}, condition)
}

func untilLimit(ctx context.Context, f func() (bool, error)) error {
	ctx = context.WithoutCancel(ctx) // the limit alone, or it is a matter of luck which is first
	condition := func(context.Context) (bool, error) { return f() }
	return wait.Until(ctx, wait.Pace{First: interval, Limit: timeout}, condition)
}

func backoff(ctx context.Context, f func() (bool, error)) error {
	condition := func(context.Context) (bool, error) { return f() }
	return wait.Until(ctx, wait.Pace{First: interval, Factor: 2, Tries: 3}, condition)
}

func repeat(ctx context.Context, condition func() (bool, error)) error {
	f := func(context.Context) { _, _ = condition() }
	return wait.Until(ctx, wait.Pace{First: interval}, func(ctx context.Context) (bool, error) { f(ctx); return false, nil })
}

func repeatSlower(ctx context.Context, condition func() (bool, error)) error {
	f := func(context.Context) { _, _ = condition() }
	return wait.Until(ctx, wait.Pace{First: interval, Factor: 2, Max: 2 * interval}, func(ctx context.Context) (bool, error) { f(ctx); return false, nil })
}

func repeatOnTheTick(ctx context.Context, condition func() (bool, error)) error {
	f := func(context.Context) { _, _ = condition() }
	f(ctx)
	return wait.PollWithContext(ctx, interval, 0, func(ctx context.Context) (bool, error) { f(ctx); return false, nil })
}

func own(ctx context.Context, f func() (bool, error)) error {
	delay := delays()
	wake := make(chan struct{}, 1)
	return wait.Until(ctx, wait.Pace{Wake: wake}, func(context.Context) (bool, error) {
		ok, err := f()
		time.AfterFunc(delay(), func() { wake <- struct{}{} })
		return ok, err
	})
}

// TestEquivalence runs both sides of each pair with conditions that come true, fail or
// never hold, and compares when they were asked and how it ended.
func TestEquivalence(t *testing.T) {
	boom := errors.New("boom")
	stories := []struct {
		name string
		at   func(call int) (bool, error)
	}{
		{"true at once", func(int) (bool, error) { return true, nil }},
		{"true on the third call", func(call int) (bool, error) { return call == 3, nil }},
		{"an error on the second call", func(call int) (bool, error) {
			if call == 2 {
				return true, boom
			}
			return false, nil
		}},
		{"never", func(int) (bool, error) { return false, nil }},
	}
	play := func(t *testing.T, f form, at func(call int) (bool, error)) (calls []time.Duration, outcome string) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			start := time.Now()
			err := f(ctx, func() (bool, error) {
				calls = append(calls, time.Since(start))
				return at(len(calls))
			})
			switch {
			case err == nil:
				outcome = "done"
			case errors.Is(err, boom):
				outcome = "boom"
			case errors.Is(err, wait.ErrWaitTimeout) || upstream.Interrupted(err):
				outcome = "timeout"
			default:
				outcome = err.Error()
			}
			time.Sleep(time.Minute) // what upstream leaves behind runs out
		})
		return calls, outcome
	}
	for _, p := range pairs {
		for _, s := range stories {
			t.Run(p.name+"/"+s.name, func(t *testing.T) {
				theirs, theirEnd := play(t, p.upstream, s.at)
				ours, ourEnd := play(t, p.here, s.at)
				if p.ignoresErr {
					theirEnd = ourEnd
				}
				if p.oneLook && len(ours) == len(theirs)+1 && ourEnd == "timeout" {
					ours = ours[:len(theirs)]
				}
				if !slices.Equal(theirs, ours) || theirEnd != ourEnd {
					t.Errorf("apimachinery asks at %v and ends with %s; here it is %v and %s", theirs, theirEnd, ours, ourEnd)
				}
			})
		}
	}
}

// TestNames holds the names that are no loops against what to write here.
func TestNames(t *testing.T) {
	for name, test := range names {
		t.Run(name, test)
	}
}

var names = map[string]func(t *testing.T){
	"ErrWaitTimeout": func(t *testing.T) {
		if wait.ErrWaitTimeout.Error() != upstream.ErrWaitTimeout.Error() {
			t.Errorf("%q", wait.ErrWaitTimeout)
		}
	},
	"Interrupted": func(t *testing.T) {
		err := wait.Poll(1, 1, func() (bool, error) { return false, nil })
		theirs := upstream.Poll(1, 1, func() (bool, error) { return false, nil })
		if !errors.Is(err, wait.ErrWaitTimeout) || !upstream.Interrupted(theirs) || !upstream.Interrupted(err) {
			t.Errorf("%v, %v", err, theirs)
		}
	},
	"ErrorInterrupted": func(t *testing.T) {
		cause := errors.New("the server went away")
		var err error = &wait.ExhaustedError{Cause: cause}
		theirs := upstream.ErrorInterrupted(cause)
		if !errors.Is(err, wait.ErrWaitTimeout) || !errors.Is(err, cause) || !upstream.Interrupted(theirs) || !errors.Is(theirs, cause) {
			t.Errorf("%v, %v", err, theirs)
		}
	},
	"ForeverTestTimeout": func(t *testing.T) {
		if got := (wait.Pace{Limit: 30 * time.Second}); got.Limit != upstream.ForeverTestTimeout {
			t.Errorf("%v", got.Limit)
		}
	},
	"NeverStop": func(t *testing.T) {
		never := context.Background().Done()
		if never != nil || upstream.NeverStop == nil {
			t.Error("one of the two can be closed, or has changed")
		}
	},
	"RealTimer": func(t *testing.T) {
		timer := time.NewTimer(time.Hour)
		if !timer.Stop() || !upstream.RealTimer(time.Hour).Stop() {
			t.Error("a timer of an hour has fired")
		}
	},
	"Jitter": func(t *testing.T) {
		duration, maxFactor := time.Second, 0.5
		for range 100 {
			d := duration + time.Duration(rand.Float64()*maxFactor*float64(duration))
			theirs := upstream.Jitter(duration, maxFactor)
			if d < time.Second || d > 1500*time.Millisecond || theirs < time.Second || theirs > 1500*time.Millisecond {
				t.Fatalf("%v, %v", d, theirs)
			}
		}
	},
	"ConditionFunc": func(t *testing.T) {
		yes := func() (bool, error) { return true, nil }
		var condition wait.ConditionFunc = yes
		if wait.Poll(1, 1, condition) != nil || upstream.Poll(1, 1, upstream.ConditionFunc(condition)) != nil {
			t.Error("a condition that holds does not")
		}
	},
	"ConditionWithContextFunc": func(t *testing.T) {
		var condition wait.ConditionWithContextFunc = func(context.Context) (bool, error) { return true, nil }
		if wait.Until(t.Context(), wait.Pace{}, condition) != nil || upstream.PollUntilContextCancel(t.Context(), 1, true, upstream.ConditionWithContextFunc(condition)) != nil {
			t.Error("a condition that holds does not")
		}
	},
	"Forever": func(t *testing.T) {
		third := func(forever func(func(), time.Duration), period time.Duration) (calls []time.Duration) {
			start, ended := time.Now(), make(chan struct{})
			go func() { // it ends by Goexit alone
				defer close(ended)
				forever(func() {
					if calls = append(calls, time.Since(start)); len(calls) == 3 {
						runtime.Goexit()
					}
				}, period)
			}()
			<-ended
			return calls
		}
		synctest.Test(t, func(t *testing.T) {
			if calls := third(wait.Forever, interval); !slices.Equal(calls, []time.Duration{0, interval, 2 * interval}) {
				t.Errorf("called at %v", calls)
			}
		})
		// The original waits for a channel of the whole package, which stops a bubble's clock.
		if calls := third(upstream.Forever, time.Millisecond); len(calls) != 3 {
			t.Errorf("apimachinery calls at %v", calls)
		}
	},
	"Group": func(t *testing.T) {
		done := make(chan string, 2)
		f := func() { done <- "here" }
		var g sync.WaitGroup
		g.Go(f)
		g.Wait()
		var theirs upstream.Group
		theirs.Start(func() { done <- "there" })
		theirs.Wait()
		if got := []string{<-done, <-done}; strings.Join(got, " ") != "here there" {
			t.Errorf("%v", got)
		}
	},
}
