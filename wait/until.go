package wait

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// A Pace says how long to pause between tries and when to give up. The zero Pace
// tries once a second for as long as the context lives. In every field zero
// means "not set", and negative values count as zero.
type Pace struct {
	First  time.Duration // pause after the first try; 0 means one second
	Factor float64       // growth of the pause per try; below 1 means 1
	Max    time.Duration // longest pause, which then goes on; 0 means no limit
	Jitter float64       // each pause is stretched by a random part of up to this fraction

	Tries int           // give up after so many tries; 0 means never
	Limit time.Duration // give up after the try made when this much time has passed; 0 means never
}

// An ExhaustedError says that a condition did not come to hold in time.
type ExhaustedError struct {
	Tries   int
	Elapsed time.Duration
	Reason  error // what the last try said with [NotYet]; nil if it said nothing
	Cause   error // why the wait was stopped from outside (context.Cause); nil if Tries or Limit was reached
}

func (e *ExhaustedError) Error() string {
	s := fmt.Sprintf("condition did not hold within %d tries and %v", e.Tries, e.Elapsed)
	if e.Cause != nil {
		s = fmt.Sprintf("stopped waiting after %d tries and %v: %v", e.Tries, e.Elapsed, e.Cause)
	}
	if e.Reason != nil {
		s += "; last: " + e.Reason.Error()
	}
	return s
}

// Is makes an exhausted wait match [ErrWaitTimeout].
func (e *ExhaustedError) Is(target error) bool { return target == ErrWaitTimeout }

// Unwrap gives the cause and the last reason to errors.Is and errors.As.
func (e *ExhaustedError) Unwrap() []error {
	var errs []error
	for _, err := range []error{e.Cause, e.Reason} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// notYet marks a reason that does not end the wait.
type notYet struct{ reason error }

func (n *notYet) Error() string { return n.reason.Error() }
func (n *notYet) Unwrap() error { return n.reason }

// NotYet returns an error with which a condition says why it does not hold yet.
// It does not end the wait; the last one is the Reason of an [ExhaustedError].
func NotYet(reason error) error { return &notYet{reason} }

// Until calls done until it returns true or an error, pausing by p in between.
//
// It looks first and last: once before any pause, even if ctx is already over,
// and once more exactly when p.Limit is reached, however long the pause before
// would have been. The end of ctx is a request to stop: done is not called after
// it, and a pause is cut short at once.
//
// An error from done ends the wait and is returned as it is, unless it was made
// by [NotYet]. Every other failure is an [*ExhaustedError].
func Until(ctx context.Context, p Pace, done func(context.Context) (bool, error)) error {
	_, err := For(ctx, p, func(ctx context.Context) (struct{}, bool, error) {
		ok, err := done(ctx)
		return struct{}{}, ok, err
	})
	return err
}

// For is [Until] with a result: what done returned on its last call.
func For[T any](ctx context.Context, p Pace, done func(context.Context) (T, bool, error)) (T, error) {
	start, pause := time.Now(), max(cmp.Or(max(p.First, 0), time.Second), 1)
	var timer *time.Timer
	defer func() {
		if timer != nil {
			timer.Stop()
		}
	}()
	for try := 1; ; try++ {
		elapsed := time.Since(start)
		last := p.Tries > 0 && try >= p.Tries || p.Limit > 0 && elapsed >= p.Limit
		v, ok, err := done(ctx)
		why := reasonIn(err)
		switch {
		case err != nil && why == nil:
			return v, err
		case err == nil && ok:
			return v, nil
		case last:
			return v, exhausted(try, start, why, nil)
		}
		d := stretch(pause, p.Jitter)
		if p.Limit > 0 {
			d = min(d, p.Limit-time.Since(start))
		}
		if timer == nil {
			timer = time.NewTimer(d)
		} else {
			timer.Reset(d)
		}
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		// Timer and cancellation may be ready together and select picks either.
		if ctx.Err() != nil {
			return v, exhausted(try, start, why, context.Cause(ctx))
		}
		pause = p.next(pause)
	}
}

// reasonIn returns what a condition said with NotYet, or nil.
func reasonIn(err error) *notYet {
	if err == nil {
		return nil // kept apart so that a plain "no" allocates nothing
	}
	var why *notYet
	errors.As(err, &why)
	return why
}

// next returns the pause that follows one of the given length.
func (p Pace) next(pause time.Duration) time.Duration {
	// Growth may leave the range of a Duration; it then stays where it is.
	if f := float64(pause) * max(p.Factor, 1); f < float64(1<<62) {
		pause = time.Duration(f)
	}
	if p.Max > 0 {
		pause = min(pause, p.Max)
	}
	return pause
}

func stretch(d time.Duration, jitter float64) time.Duration {
	if jitter <= 0 {
		return d
	}
	return d + time.Duration(rand.Float64()*jitter*float64(d))
}

func exhausted(tries int, start time.Time, why *notYet, cause error) error {
	e := &ExhaustedError{Tries: tries, Elapsed: time.Since(start), Cause: cause}
	if why != nil {
		e.Reason = why.reason
	}
	return e
}
