package wait_test

import (
	"context"
	"errors"
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

func TestAFurtherTryAllocatesNothing(t *testing.T) {
	measure := func(tries int) float64 {
		return testing.AllocsPerRun(20, func() {
			_ = wait.Until(context.Background(), wait.Pace{First: 1, Tries: tries}, func(context.Context) (bool, error) { return false, nil })
		})
	}
	if few, many := measure(2), measure(200); many > few {
		t.Errorf("200 tries allocate %v times, 2 tries %v", many, few)
	}
}
