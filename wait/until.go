package wait

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// A Pace says when to try again and when to give up. The zero Pace tries once a second
// for as long as the context lives. In every field zero means "not set", and negative
// values count as zero.
type Pace struct {
	First  time.Duration // pause after the first try; 0 means one second, or, with Wake, until woken
	Factor float64       // growth of the pause per try; below 1 means 1
	Max    time.Duration // longest pause before jitter, which then goes on; 0 means no limit
	Jitter float64       // each pause is stretched by a random part of up to this fraction

	Tries int           // give up after so many tries; 0 means never
	Limit time.Duration // give up after the try made when this much time has passed; 0 means never

	// Wake ends a pause: a try is made as soon as a value can be received from it, and
	// the pauses begin again with First. So a condition is driven by events, by time,
	// or by both, where events may be lost. Give the channel room for one value and
	// send without blocking; what arrives during a try is then not missed. When it is
	// closed, a last try is made for that, and the rest is a matter of time (of a
	// second each if First is 0). nil means no events.
	Wake <-chan struct{}
}

// An ExhaustedError reports that a condition was not true in time.
type ExhaustedError struct {
	Tries   int
	Elapsed time.Duration
	Reason  error // the last error from [NotYet]; nil if the last try returned none
	Cause   error // context.Cause if the context was cancelled; nil if Tries or Limit was reached
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

// Is makes an exhausted wait match [ErrWaitTimeout], and, unless it was stopped from
// outside, context.DeadlineExceeded.
func (e *ExhaustedError) Is(target error) bool {
	return target == ErrWaitTimeout || target == context.DeadlineExceeded && e.Cause == nil
}

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

// NotYet returns an error that gives the reason why a condition is not true yet.
// It does not end the wait; the last one is the Reason of an [ExhaustedError], with
// the text of the errors that wrap it. NotYet(nil) is nil, so that
//
//	return err == nil, wait.NotYet(err)
//
// tries until there is no error.
func NotYet(reason error) error {
	if reason == nil {
		return nil
	}
	return &notYet{reason}
}

// Until calls done until it returns true or an error, pausing by p in between.
//
// It calls done once before any pause, even if ctx is already cancelled, and once more exactly when p.Limit is reached,
// however long the pause before would have been. When ctx is cancelled, or its deadline passes, a pause ends at once and
// done is not called again.
//
// All calls are made on the caller's goroutine. An error from done
// ends the wait and is returned as it is (even beside true), unless it was made by
// [NotYet]. Every other failure is an [*ExhaustedError].
func Until(ctx context.Context, p Pace, done func(context.Context) (bool, error)) error {
	_, err := For(ctx, p, func(ctx context.Context) (struct{}, bool, error) {
		ok, err := done(ctx)
		return struct{}{}, ok, err
	})
	return err
}

// For is [Until] with a result: the value of the last call of done, even if the wait
// failed.
func For[T any](ctx context.Context, p Pace, done func(context.Context) (T, bool, error)) (T, error) {
	start, pause := time.Now(), p.first()
	var timer *time.Timer
	defer func() {
		if timer != nil {
			timer.Stop()
		}
	}()
	for try := 1; ; try++ {
		last := p.Tries > 0 && try >= p.Tries || p.Limit > 0 && time.Since(start) >= p.Limit
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
		woken := false
		select {
		case <-timer.C:
		case _, open := <-p.Wake:
			if woken = true; !open {
				p.Wake = nil
			}
		case <-ctx.Done():
		}
		// Timer, event and cancellation may be ready together and select picks any.
		if ctx.Err() != nil {
			return v, exhausted(try, start, why, context.Cause(ctx))
		}
		if woken {
			pause = p.first()
		} else {
			pause = p.next(pause)
		}
	}
}

// reasonIn returns the reason in an error from NotYet, or nil.
func reasonIn(err error) error {
	if err == nil {
		return nil // kept apart so that a plain "no" allocates nothing
	}
	if why, ok := err.(*notYet); ok { //nolint:errorlint // the usual case, which allocates nothing; the other follows
		return why.reason
	}
	if why, ok := errors.AsType[*notYet](err); ok {
		return &wrapped{err.Error(), why.reason}
	}
	return nil
}

// wrapped is a reason with the text of the errors around its notYet. It does not unwrap to the notYet: the failure of a
// wait inside a condition would otherwise be a mere "not yet" for the outer wait.
type wrapped struct {
	text   string
	reason error
}

func (w *wrapped) Error() string { return w.text }
func (w *wrapped) Unwrap() error { return w.reason }

// forever is a pause that time does not end: 292 years.
const forever = time.Duration(math.MaxInt64)

func (p Pace) first() time.Duration {
	pause := time.Second
	switch {
	case p.First > 0:
		pause = p.First
	case p.Wake != nil:
		pause = forever
	}
	return p.capped(pause)
}

func (p Pace) capped(pause time.Duration) time.Duration {
	if p.Max > 0 {
		return min(pause, p.Max)
	}
	return pause
}

// next returns the pause that follows one of the given length.
func (p Pace) next(pause time.Duration) time.Duration {
	// Growth may leave the range of a Duration; it then stays where it is.
	if f := float64(pause) * max(p.Factor, 1); f < float64(1<<62) {
		pause = time.Duration(f)
	}
	return p.capped(pause)
}

func stretch(d time.Duration, jitter float64) time.Duration {
	// The comparisons are false for NaN, which adds nothing, and limit infinity to the largest Duration.
	if more := rand.Float64() * jitter * float64(d); more > 0 {
		if sum := more + float64(d); sum < float64(forever) {
			return time.Duration(sum)
		}
		return forever
	}
	return d
}

func exhausted(tries int, start time.Time, why, cause error) error {
	return &ExhaustedError{Tries: tries, Elapsed: time.Since(start), Reason: why, Cause: cause}
}
