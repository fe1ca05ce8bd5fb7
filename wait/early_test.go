package wait_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sampan-io/sampan/wait"
)

// never is a condition that does not come to hold; it notes when it was asked.
type log struct {
	start time.Time
	at    []time.Duration
}

func newLog() *log { return &log{start: time.Now()} }

func (l *log) never() (bool, error) {
	l.at = append(l.at, time.Since(l.start))
	return false, nil
}

// on is a condition that holds from the given call on.
func (l *log) on(call int) wait.ConditionFunc {
	return func() (bool, error) {
		_, _ = l.never()
		return len(l.at) >= call, nil
	}
}

func seconds(s ...float64) []time.Duration {
	var ds []time.Duration
	for _, x := range s {
		ds = append(ds, time.Duration(x*float64(time.Second)))
	}
	return ds
}

func TestRow1PollWaitsOneIntervalFirst(t *testing.T) {
	tests := []struct {
		name              string
		interval, timeout time.Duration
		want              []time.Duration
	}{
		{"whole intervals", time.Second, 3500 * time.Millisecond, seconds(1, 2, 3, 3.5)},
		{"timeout below interval", time.Second, 300 * time.Millisecond, seconds(0.3)},
		{"timeout on a tick", time.Second, 2 * time.Second, seconds(1, 2)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLog()
				if err := wait.Poll(tt.interval, tt.timeout, l.never); err != wait.ErrWaitTimeout { //nolint:errorlint // row 6
					t.Errorf("Poll = %v, want ErrWaitTimeout", err)
				}
				if !slices.Equal(l.at, tt.want) {
					t.Errorf("asked at %v, want %v", l.at, tt.want)
				}
			})
		})
	}
}

func TestRow2TimeoutZeroIsForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog()
		if err := wait.Poll(time.Hour, 0, l.on(10_000)); err != nil {
			t.Errorf("Poll = %v, want nil", err)
		}
		if got := time.Since(l.start); got != 10_000*time.Hour {
			t.Errorf("took %v, want 10,000 h", got)
		}
	})
}

func TestRow3NoTickBeforeAVeryNearTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, d := range []time.Duration{1, time.Microsecond} {
			l := newLog()
			if err := wait.Poll(d, d, l.never); err != wait.ErrWaitTimeout || len(l.at) != 1 { //nolint:errorlint // row 6
				t.Errorf("Poll(%v, %v) = %v after %d calls, want ErrWaitTimeout after 1", d, d, err, len(l.at))
			}
		}
	})
}

func TestRow4OneCallPerValueAndOneForTheClose(t *testing.T) {
	ticks := func(n int) wait.WaitFunc {
		return func() <-chan struct{} {
			c := make(chan struct{}, n)
			for range n {
				c <- struct{}{}
			}
			close(c)
			return c
		}
	}
	tests := []struct {
		name  string
		holds int // the call from which on the condition holds
		calls int
		err   error
	}{
		{"two ticks are three calls", 4, 3, wait.ErrWaitTimeout},
		{"true on the last call", 3, 3, nil},
		{"true on the first call", 1, 1, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLog()
			if err := wait.WaitFor(ticks(2), l.on(tt.holds)); err != tt.err { //nolint:errorlint // row 6
				t.Errorf("WaitFor = %v, want %v", err, tt.err)
			}
			if len(l.at) != tt.calls {
				t.Errorf("%d calls, want %d", len(l.at), tt.calls)
			}
		})
	}
}

func TestPollerTicksAsPollCalls(t *testing.T) {
	for _, tt := range []struct {
		name              string
		interval, timeout time.Duration
		want              []time.Duration
	}{
		{"whole intervals", time.Second, 3500 * time.Millisecond, seconds(1, 2, 3, 3.5)},
		{"timeout below interval", time.Second, 300 * time.Millisecond, seconds(0.3)},
		{"timeout on a tick", time.Second, 2 * time.Second, seconds(1, 2)},
		{"no interval", 0, time.Second, seconds(0)},
		{"a negative interval", -1, 0, seconds(0)},
		{"a negative timeout", time.Second, -1, seconds(0)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLog()
				if err := wait.WaitFor(wait.Poller(tt.interval, tt.timeout), l.never); err != wait.ErrWaitTimeout { //nolint:errorlint // row 6
					t.Errorf("WaitFor = %v, want ErrWaitTimeout", err)
				}
				if !slices.Equal(l.at, tt.want) {
					t.Errorf("asked at %v, want %v", l.at, tt.want)
				}
			})
		})
	}
}

func TestPollerDropsTicksOfASlowCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog()
		_ = wait.WaitFor(wait.Poller(time.Second, 7*time.Second), func() (bool, error) {
			_, _ = l.never()
			if len(l.at) == 1 {
				time.Sleep(3500 * time.Millisecond) // over the ticks at 2, 3 and 4
			}
			return false, nil
		})
		if want := seconds(1, 5, 6, 7); !slices.Equal(l.at, want) {
			t.Errorf("asked at %v, want %v", l.at, want)
		}
	})
}

func TestPollerWithoutATimeoutEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer stop()
		poller := wait.PollerWithContext(ctx, time.Second, 0)
		l := newLog()
		if err := wait.WaitFor(poller, l.never); err != wait.ErrWaitTimeout { //nolint:errorlint // row 6
			t.Errorf("WaitFor = %v, want ErrWaitTimeout", err)
		}
		if err := wait.WaitFor(poller, l.never); err != wait.ErrWaitTimeout { //nolint:errorlint // row 6
			t.Errorf("WaitFor = %v, want ErrWaitTimeout", err)
		}
		if want := seconds(1, 2, 2.5, 2.5); !slices.Equal(l.at, want) {
			t.Errorf("asked at %v, want %v", l.at, want)
		}
	})
}

func TestPollerLeavesNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := runtime.NumGoroutine()
		if err := wait.WaitFor(wait.Poller(time.Second, time.Hour), newLog().on(2)); err != nil {
			t.Errorf("WaitFor = %v", err)
		}
		synctest.Wait()
		if after := runtime.NumGoroutine(); after > before {
			t.Errorf("%d goroutines, %d before", after, before)
		}
	})
}

func TestRow5AnErrorEndsTheLoopAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom := errors.New("boom")
		for _, ok := range []bool{false, true} {
			calls := 0
			cond := func() (bool, error) { calls++; return ok, boom }
			if err := wait.Poll(time.Second, time.Minute, cond); err != boom { //nolint:errorlint // as it is
				t.Errorf("Poll with (%v, boom) = %v, want boom", ok, err)
			}
			closed := make(chan struct{})
			close(closed)
			if err := wait.WaitFor(func() <-chan struct{} { return closed }, cond); err != boom { //nolint:errorlint // as it is
				t.Errorf("WaitFor with (%v, boom) = %v, want boom", ok, err)
			}
			if calls != 2 {
				t.Errorf("%d calls, want 1 by each", calls)
			}
		}
	})
}

func TestRow6TheTimeoutIsAValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := wait.Poll(time.Second, time.Second, newLog().never)
		if err != wait.ErrWaitTimeout { //nolint:errorlint // that == works is the point
			t.Errorf("Poll = %v, want the value ErrWaitTimeout", err)
		}
		if err.Error() != "timed out waiting for the condition" {
			t.Errorf("text %q", err)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error("ErrWaitTimeout does not match context.DeadlineExceeded")
		}
	})
}

func TestRow7AtLeastOneCallInTheCallersGoroutineOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := runtime.NumGoroutine()
		busy, calls := false, 0 // the race detector says whether this is one goroutine
		err := wait.Poll(time.Millisecond, 50*time.Millisecond, func() (bool, error) {
			if busy {
				t.Error("called while a call was under way")
			}
			busy = true
			time.Sleep(7 * time.Millisecond)
			busy = false
			calls++
			if n := runtime.NumGoroutine(); n > before {
				t.Errorf("%d goroutines during the wait, %d before", n, before)
			}
			return false, nil
		})
		if err != wait.ErrWaitTimeout || calls == 0 { //nolint:errorlint // row 6
			t.Errorf("Poll = %v after %d calls", err, calls)
		}
		calls = 0
		_ = wait.Poll(time.Hour, -1, func() (bool, error) { calls++; return false, nil })
		if calls != 1 {
			t.Errorf("%d calls with a timeout that has passed, want 1", calls)
		}
	})
}

func TestRow8ASlowConditionMakesOneLateTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog()
		err := wait.Poll(time.Second, 8250*time.Millisecond, func() (bool, error) {
			_, _ = l.never()
			if len(l.at) == 1 {
				time.Sleep(3500 * time.Millisecond) // over the ticks at 2, 3 and 4
			}
			return false, nil
		})
		if want := seconds(1, 4.5, 5, 6, 7, 8, 8.25); !slices.Equal(l.at, want) {
			t.Errorf("asked at %v, want %v", l.at, want)
		}
		if err != wait.ErrWaitTimeout { //nolint:errorlint // row 6
			t.Errorf("Poll = %v", err)
		}

		// The timeout passes during a call, while a tick is pending, too.
		l = newLog()
		_ = wait.Poll(time.Second, 3*time.Second, func() (bool, error) {
			_, _ = l.never()
			time.Sleep(2500 * time.Millisecond)
			return false, nil
		})
		if want := seconds(1, 3.5); !slices.Equal(l.at, want) {
			t.Errorf("asked at %v, want %v: one last call, not one for the tick as well", l.at, want)
		}
	})
}

func TestRow9NothingIsLeftRunning(t *testing.T) {
	// synctest fails the test if a goroutine of the bubble outlives it.
	synctest.Test(t, func(t *testing.T) {
		before := runtime.NumGoroutine()
		if err := wait.Poll(time.Second, time.Hour, newLog().on(1)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := runtime.NumGoroutine(); n != before {
			t.Errorf("%d goroutines after an early success, %d before", n, before)
		}
	})
}

func TestRow10IntervalsThatAreNotPositive(t *testing.T) {
	for _, d := range []time.Duration{0, -time.Second} {
		called := false
		err := wait.Poll(d, time.Second, func() (bool, error) { called = true; return true, nil })
		if err == nil || errors.Is(err, wait.ErrWaitTimeout) || called {
			t.Errorf("Poll(%v) = %v, called %v; want an error of its own and no call", d, err, called)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		start, calls := time.Now(), 0
		done := make(chan struct{})
		go func() { // Forever ends by Goexit alone
			defer close(done)
			wait.Forever(func() {
				if calls++; calls == 1000 {
					runtime.Goexit()
				}
			}, 0)
		}()
		<-done
		if calls != 1000 || time.Since(start) != 0 {
			t.Errorf("%d calls in %v, want 1000 back to back", calls, time.Since(start))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		l, done := newLog(), make(chan struct{})
		go func() { // Forever ends by Goexit alone
			defer close(done)
			wait.Forever(func() {
				if _, _ = l.never(); len(l.at) == 3 {
					runtime.Goexit()
				}
			}, time.Minute)
		}()
		<-done
		if want := seconds(0, 60, 120); !slices.Equal(l.at, want) {
			t.Errorf("called at %v, want %v", l.at, want)
		}
	})
}

func TestRow11PollCyclesCountsTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog()
		if err := wait.PollCycles(time.Second, 10, l.never); err != wait.ErrWaitTimeout { //nolint:errorlint // row 6
			t.Errorf("PollCycles = %v, want ErrWaitTimeout", err)
		}
		if len(l.at) != 10 || l.at[0] != time.Second || l.at[9] != 10*time.Second {
			t.Errorf("asked at %v, want ten times, a second apart", l.at)
		}
		// The later form: every 5 s, for at most 300 s.
		l = newLog()
		if err := wait.Poll(5*time.Second, 300*time.Second, l.never); err != wait.ErrWaitTimeout { //nolint:errorlint // row 6
			t.Errorf("Poll = %v, want ErrWaitTimeout", err)
		}
		if last := l.at[len(l.at)-1]; last != 300*time.Second {
			t.Errorf("last asked at %v, want 300 s", last)
		}
		if err := wait.PollCycles(time.Second, 0, l.never); err == nil || errors.Is(err, wait.ErrWaitTimeout) {
			t.Errorf("PollCycles with 0 cycles = %v, want an error of its own", err)
		}
	})
}

func TestPollWithContextEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("the user pressed a key")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(2500*time.Millisecond, func() { cancel(gone) })
		l := newLog()
		err := wait.PollWithContext(ctx, time.Second, time.Hour, func(context.Context) (bool, error) { return l.never() })
		if !errors.Is(err, wait.ErrWaitTimeout) || !errors.Is(err, gone) {
			t.Errorf("PollWithContext = %v, want ErrWaitTimeout and the cause", err)
		}
		if want := seconds(1, 2); !slices.Equal(l.at, want) || time.Since(l.start) != 2500*time.Millisecond {
			t.Errorf("asked at %v, ended after %v", l.at, time.Since(l.start))
		}
	})
}

// TestWaitForEndsPoller counts what many waits leave behind: no timer fires any more, whatever their timeout.
func TestWaitForEndsPoller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, timeout := range []time.Duration{0, time.Hour} {
			for _, result := range []error{nil, errors.New("no")} {
				var c <-chan struct{}
				poll := wait.Poller(time.Millisecond, timeout)
				err := wait.WaitFor(func() <-chan struct{} { c = poll(); return c }, func() (bool, error) { return result == nil, result })
				if !errors.Is(err, result) {
					t.Errorf("WaitFor = %v, want %v", err, result)
				}
				select {
				case _, open := <-c:
					if open {
						t.Errorf("timeout %v: the poller still sends", timeout)
					}
				case <-time.After(time.Minute):
					t.Errorf("timeout %v: the poller is not closed", timeout)
				}
			}
		}
	})
}
