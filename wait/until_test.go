package wait_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sampan-io/sampan/wait"
)

func TestUntilKeepsItsPace(t *testing.T) {
	tests := []struct {
		name string
		pace wait.Pace
		want []time.Duration
	}{
		{"growing, with a cap that goes on", wait.Pace{First: time.Second, Factor: 2, Max: 3 * time.Second, Tries: 6}, seconds(0, 1, 3, 6, 9, 12)},
		{"a look exactly at the limit", wait.Pace{First: 2 * time.Second, Limit: 5 * time.Second}, seconds(0, 2, 4, 5)},
		{"one try is one look", wait.Pace{Tries: 1}, seconds(0)},
		{"zero is once a second", wait.Pace{Tries: 3}, seconds(0, 1, 2)},
		{"the cap holds for the first pause", wait.Pace{First: time.Minute, Max: 3 * time.Second, Tries: 3}, seconds(0, 3, 6)},
		{"a factor below one is one", wait.Pace{Factor: 0.1, Tries: 3}, seconds(0, 1, 2)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLog()
				err := wait.Until(t.Context(), tt.pace, func(context.Context) (bool, error) { return l.never() })
				var e *wait.ExhaustedError
				if !errors.As(err, &e) || e.Tries != len(tt.want) {
					t.Errorf("Until = %v, want an ExhaustedError of %d tries", err, len(tt.want))
				}
				if !slices.Equal(l.at, tt.want) {
					t.Errorf("asked at %v, want %v", l.at, tt.want)
				}
			})
		})
	}
}

func TestUntilTellsTheLastReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		two := errors.New("2 of 3 pods are ready")
		err := wait.Until(t.Context(), wait.Pace{Limit: time.Minute}, func(context.Context) (bool, error) {
			return false, wait.NotYet(two)
		})
		if !errors.Is(err, two) || !errors.Is(err, wait.ErrWaitTimeout) || !strings.Contains(err.Error(), two.Error()) {
			t.Errorf("Until = %v, want the last reason in it", err)
		}
	})
}

func TestForReturnsWhatTheLastTrySaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		got, err := wait.For(t.Context(), wait.Pace{}, func(context.Context) (int, bool, error) { n++; return n, n == 3, nil })
		if got != 3 || err != nil {
			t.Errorf("For = %d, %v, want 3, nil", got, err)
		}
	})
}

func TestUntilLooksOnceEvenIfTheContextIsOver(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := wait.Until(ctx, wait.Pace{}, func(context.Context) (bool, error) { return true, nil }); err != nil {
		t.Errorf("Until = %v, want nil: the condition held", err)
	}
	err := wait.Until(ctx, wait.Pace{}, func(context.Context) (bool, error) { return false, nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Until = %v, want the cause", err)
	}
}

func TestAFurtherTryCostsNothing(t *testing.T) {
	no := func(context.Context) (bool, error) { return false, nil }
	why := wait.NotYet(errors.New("2 of 3"))
	ctx := t.Context()
	woken := make(chan struct{}, 1)
	ticks := func(n int) wait.WaitFunc {
		c := make(chan struct{}, n)
		for range n {
			c <- struct{}{}
		}
		close(c)
		return func() <-chan struct{} { return c }
	}
	tests := []struct {
		name  string
		tries func(n int)
	}{
		{"Until", func(n int) { _ = wait.Until(ctx, wait.Pace{First: 1, Tries: n}, no) }},
		{"Until with everything", func(n int) {
			p := wait.Pace{First: 1, Factor: 1.01, Max: 100, Jitter: 0.5, Tries: n, Limit: time.Hour}
			_ = wait.Until(ctx, p, func(context.Context) (bool, error) { return false, why })
		}},
		{"Until woken", func(n int) {
			_ = wait.Until(ctx, wait.Pace{Wake: woken, Tries: n}, func(context.Context) (bool, error) {
				select {
				case woken <- struct{}{}:
				default:
				}
				return false, nil
			})
		}},
		{"For", func(n int) {
			_, _ = wait.For(ctx, wait.Pace{First: 1, Tries: n}, func(context.Context) (string, bool, error) { return "x", false, nil })
		}},
		{"PollCycles, and Poll under it", func(n int) { _ = wait.PollCycles(1, n, func() (bool, error) { return false, nil }) }},
		{"WaitFor", func(n int) { _ = wait.WaitFor(ticks(n), func() (bool, error) { return false, nil }) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			few := testing.AllocsPerRun(20, func() { tt.tries(2) })
			if many := testing.AllocsPerRun(20, func() { tt.tries(200) }); many > few {
				t.Errorf("200 tries allocate %v times, 2 tries %v", many, few)
			}
		})
	}
}

func TestAWaitStartsNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, most := runtime.NumGoroutine(), 0
		look := func() (bool, error) { most = max(most, runtime.NumGoroutine()); return false, nil }
		_ = wait.Until(t.Context(), wait.Pace{Tries: 50, Limit: time.Hour, Wake: make(chan struct{})}, func(context.Context) (bool, error) { return look() })
		_ = wait.Until(t.Context(), wait.Pace{Tries: 50}, func(context.Context) (bool, error) { return look() })
		_ = wait.Poll(time.Second, time.Minute, look)
		if most > before || runtime.NumGoroutine() > before {
			t.Errorf("%d goroutines before, %d during the waits, %d after", before, most, runtime.NumGoroutine())
		}
	})
}

func TestWakeEndsAPause(t *testing.T) {
	at := func(wake chan<- struct{}, times ...float64) {
		for _, d := range seconds(times...) {
			time.AfterFunc(d, func() { wake <- struct{}{} })
		}
	}
	tests := []struct {
		name string
		pace wait.Pace
		wake []float64
		want []time.Duration
	}{
		{"events alone", wait.Pace{Tries: 4}, []float64{3, 4, 3600}, seconds(0, 3, 4, 3600)},
		{"a limit all the same", wait.Pace{Limit: 10 * time.Second}, []float64{3}, seconds(0, 3, 10)},
		{"events or time", wait.Pace{First: 5 * time.Second, Limit: 14 * time.Second}, []float64{2}, seconds(0, 2, 7, 12, 14)},
		{"the pauses begin again", wait.Pace{First: time.Second, Factor: 2, Tries: 7}, []float64{4}, seconds(0, 1, 3, 4, 5, 7, 11)},
		{"time alone up to a cap", wait.Pace{Max: 3 * time.Second, Tries: 3}, nil, seconds(0, 3, 6)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wake := make(chan struct{}, 1)
				tt.pace.Wake = wake
				at(wake, tt.wake...)
				l := newLog()
				err := wait.Until(t.Context(), tt.pace, func(context.Context) (bool, error) { return l.never() })
				if !errors.Is(err, wait.ErrWaitTimeout) || !slices.Equal(l.at, tt.want) {
					t.Errorf("Until = %v, asked at %v, want %v", err, l.at, tt.want)
				}
			})
		})
	}
}

func TestAnEventDuringATryIsNotMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wake, ready, tries := make(chan struct{}, 1), false, 0
		err := wait.Until(t.Context(), wait.Pace{Wake: wake}, func(context.Context) (bool, error) {
			tries++
			was := ready // looked first, and then it happens
			ready = true
			select {
			case wake <- struct{}{}:
			default:
			}
			return was, nil
		})
		if err != nil || tries != 2 {
			t.Errorf("Until = %v after %d tries, want nil after 2", err, tries)
		}
	})
}

func TestAClosedWakeDoesNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{})
		time.AfterFunc(2*time.Second, func() { close(wake) })
		l := newLog()
		_ = wait.Until(t.Context(), wait.Pace{Wake: wake, Tries: 4}, func(context.Context) (bool, error) { return l.never() })
		if want := seconds(0, 2, 3, 4); !slices.Equal(l.at, want) {
			t.Errorf("asked at %v, want %v", l.at, want)
		}
	})
}

func TestJitterStretchesWithinItsBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog()
		_ = wait.Until(t.Context(), wait.Pace{First: time.Second, Max: time.Second, Jitter: 0.5, Tries: 200}, func(context.Context) (bool, error) { return l.never() })
		least, most := time.Hour, time.Duration(0)
		for i := 1; i < len(l.at); i++ {
			least, most = min(least, l.at[i]-l.at[i-1]), max(most, l.at[i]-l.at[i-1])
		}
		if least < time.Second || most > 1500*time.Millisecond || most-least < 100*time.Millisecond {
			t.Errorf("pauses of %v to %v, want them spread over 1 s to 1.5 s", least, most)
		}
	})
}

// TestOddNumbers gives a Pace what a program might compute by mistake: no field may make
// it spin or go back in time.
func TestOddNumbers(t *testing.T) {
	for _, p := range []wait.Pace{
		{First: -1, Factor: -1, Max: -1, Jitter: -1, Limit: -1, Tries: -1},
		{First: math.MinInt64, Limit: math.MinInt64},
		{Factor: math.NaN(), Jitter: math.NaN()},
		{Factor: math.Inf(1), Jitter: math.Inf(-1)},
		{Jitter: math.Inf(1), Max: time.Second},
		{First: math.MaxInt64, Factor: 1e300, Jitter: 1e300},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			l := newLog()
			err := wait.Until(ctx, p, func(context.Context) (bool, error) { return l.never() })
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(l.start) != time.Minute || len(l.at) > 61 {
				t.Errorf("%+v: %d tries in %v: %v", p, len(l.at), time.Since(l.start), err)
			}
		})
	}
}

func TestNotYetOfNothingIsNothing(t *testing.T) {
	if err := wait.NotYet(nil); err != nil {
		t.Errorf("NotYet(nil) = %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		tries, busy := 0, errors.New("busy")
		err := wait.Until(t.Context(), wait.Pace{}, func(context.Context) (bool, error) {
			var err error
			if tries++; tries < 3 {
				err = busy
			}
			return err == nil, wait.NotYet(err)
		})
		if err != nil || tries != 3 {
			t.Errorf("Until = %v after %d tries", err, tries)
		}
	})
}

func TestTheReasonKeepsItsWrapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pulling := errors.New("pulling the image")
		inner := func(ctx context.Context) (bool, error) {
			return false, fmt.Errorf("pod web: %w", wait.NotYet(pulling))
		}
		err := wait.Until(t.Context(), wait.Pace{Tries: 2}, inner)
		if got, want := err.Error(), "condition did not hold within 2 tries and 1s; last: pod web: pulling the image"; got != want {
			t.Errorf("error %q, want %q", got, want)
		}
		if !errors.Is(err, pulling) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v matches its reason: %v; DeadlineExceeded: %v", err, errors.Is(err, pulling), errors.Is(err, context.DeadlineExceeded))
		}

		// The failure of a wait within a wait is a failure.
		tries := 0
		outer := wait.Until(t.Context(), wait.Pace{Tries: 5}, func(ctx context.Context) (bool, error) {
			tries++
			return false, wait.Until(ctx, wait.Pace{Tries: 2}, inner)
		})
		if tries != 1 || !errors.Is(outer, pulling) {
			t.Errorf("outer wait: %v after %d tries, want the inner failure at once", outer, tries)
		}
	})
}

func TestATerminalErrorEndsTheWaitAsItIs(t *testing.T) {
	gone := errors.New("deleted")
	for _, ok := range []bool{false, true} {
		tries := 0
		v, err := wait.For(t.Context(), wait.Pace{}, func(context.Context) (int, bool, error) { tries++; return 7, ok, gone })
		if err != gone || v != 7 || tries != 1 { //nolint:errorlint // as it is
			t.Errorf("For = %d, %v after %d tries, want 7 and the error itself at once", v, err, tries)
		}
	}
}

func TestCancelIsPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("the user pressed a key")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(90*time.Second, func() { cancel(why) })
		l := newLog()
		err := wait.Until(ctx, wait.Pace{First: time.Hour}, func(context.Context) (bool, error) { return l.never() })
		if time.Since(l.start) != 90*time.Second || len(l.at) != 1 {
			t.Errorf("ended after %v and %d tries, want 90 s and 1", time.Since(l.start), len(l.at))
		}
		if !errors.Is(err, why) || !errors.Is(err, wait.ErrWaitTimeout) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Until = %v", err)
		}
		if got, want := err.Error(), "stopped waiting after 1 tries and 1m30s: the user pressed a key"; got != want {
			t.Errorf("error %q, want %q", got, want)
		}
	})
}

func TestASlowTryIsNotCutShortAndTheLastLookFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog()
		err := wait.Until(t.Context(), wait.Pace{Limit: 3 * time.Second}, func(context.Context) (bool, error) {
			_, _ = l.never()
			if len(l.at) == 1 {
				time.Sleep(5 * time.Second)
			}
			return len(l.at) == 2, nil // came true during the slow try
		})
		if want := seconds(0, 5); err != nil || !slices.Equal(l.at, want) {
			t.Errorf("Until = %v, asked at %v, want %v", err, l.at, want)
		}
	})
}
