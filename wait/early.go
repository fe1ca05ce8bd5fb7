package wait

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// timeoutError is the type of ErrWaitTimeout.
type timeoutError struct{}

func (timeoutError) Error() string { return "timed out waiting for the condition" }

// Is makes ErrWaitTimeout match context.DeadlineExceeded, which the original did
// not.
func (timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// ErrWaitTimeout is the error of a condition that did not hold in time. The
// early forms return this value itself.
var ErrWaitTimeout error = timeoutError{}

// A ConditionFunc reports whether the wait is over. An error ends the wait.
type ConditionFunc func() (done bool, err error)

// A ConditionWithContextFunc is a [ConditionFunc] that is given a context.
type ConditionWithContextFunc func(ctx context.Context) (done bool, err error)

// A WaitFunc returns a channel that carries a value whenever the condition shall
// be tried, and is closed when it shall be tried for the last time.
type WaitFunc func() <-chan struct{} //nolint:revive // the early name is what callers look for

// Poll calls condition every interval until it returns true or an error, and a
// last time when timeout is reached. It waits one interval before the first
// call; with a timeout of at most one interval there is one call, at its end. A
// timeout of 0 means for ever.
//
// The calls are made on the caller's goroutine, one after the other. A condition
// that is slower than interval gets one late call and the others are dropped;
// the last call is not put off by them.
//
// The result is nil, the condition's error as it is (even beside true), or
// ErrWaitTimeout. An interval that is not positive is an error, and condition is
// not called.
func Poll(interval, timeout time.Duration, condition ConditionFunc) error {
	return PollWithContext(context.Background(), interval, timeout, func(context.Context) (bool, error) { //nolint:forbidigo // code from before contexts has none
		return condition()
	})
}

// PollWithContext is [Poll] that also ends when ctx does: at once, without a
// further call, and with an [*ExhaustedError] that matches ErrWaitTimeout and
// the cause.
func PollWithContext(ctx context.Context, interval, timeout time.Duration, condition ConditionWithContextFunc) error {
	if interval <= 0 {
		return fmt.Errorf("wait: interval is %v, want more than 0", interval)
	}
	start := time.Now()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var after <-chan time.Time
	if timeout != 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		after = timer.C
	}
	for try := 0; ; try++ {
		last := false
		select {
		case <-ctx.Done():
		case <-after:
			last = true
		case <-tick.C:
			// Both may be ready; the timeout goes first, so that a pending
			// tick neither delays it nor adds a call.
			select {
			case <-after:
				last = true
			default:
				last = timeout != 0 && time.Since(start) >= timeout
			}
		}
		if ctx.Err() != nil {
			return exhausted(try, start, nil, context.Cause(ctx))
		}
		switch ok, err := condition(ctx); {
		case err != nil:
			return err
		case ok:
			return nil
		case last:
			return ErrWaitTimeout
		}
	}
}

// PollCycles calls condition after each of so many intervals until it returns
// true or an error, and then returns ErrWaitTimeout. It is the first Poll of
// all, which counted tries: the 10 of that Poll(time.Second, 10, condition)
// would be ten nanoseconds in [Poll]. Intervals and cycles that are not positive
// are errors.
func PollCycles(interval time.Duration, cycles int, condition ConditionFunc) error {
	if cycles <= 0 {
		return fmt.Errorf("wait: %d cycles, want at least 1", cycles)
	}
	calls := 0
	return Poll(interval, 0, func() (bool, error) {
		calls++
		ok, err := condition()
		if !ok && err == nil && calls == cycles {
			err = ErrWaitTimeout
		}
		return ok, err
	})
}

// Poller returns a WaitFunc with the rhythm of [Poll]: its channel carries a value every interval
// and is closed when timeout is reached; a timeout of 0 means never. A value that is not
// received at once is dropped, so that a condition that is slower than interval gets no late
// call. With an interval that is not positive the channel is closed from the
// beginning, for one try.
//
// No goroutine feeds the channel. A timer does, until the timeout or until a [WaitFor] on the channel
// has ended, which closes it: a channel is for one wait. To receive from a channel with a timeout of 0 by
// other means, use [PollerWithContext].
func Poller(interval, timeout time.Duration) WaitFunc {
	return PollerWithContext(context.Background(), interval, timeout) //nolint:forbidigo // code from before contexts has none
}

// PollerWithContext is [Poller] whose channels are closed when ctx ends, too.
func PollerWithContext(ctx context.Context, interval, timeout time.Duration) WaitFunc {
	return func() <-chan struct{} {
		p := &poller{c: make(chan struct{}), began: time.Now(), interval: interval}
		p.mu.Lock()
		defer p.mu.Unlock()
		if interval <= 0 || timeout < 0 || ctx.Err() != nil {
			p.closed = true
			close(p.c)
			return p.c
		}
		pollers.Store((<-chan struct{})(p.c), p)
		p.tick = time.AfterFunc(interval, p.send)
		p.unbind = context.AfterFunc(ctx, p.close)
		if timeout > 0 {
			p.timeout = timeout
			p.end = time.AfterFunc(timeout, p.close)
		}
		return p.c
	}
}

// pollers has the open pollers by their channels. A channel is all that a WaitFunc returns, so WaitFor finds
// here what to stop.
var pollers sync.Map // a WaitFunc has no other connection to its channel

// A poller feeds a channel from timers.
type poller struct {
	began             time.Time
	interval, timeout time.Duration // a timeout of 0 means none

	mu     sync.Mutex
	c      chan struct{} // closed under mu
	closed bool          // guarded by mu
	tick   *time.Timer   // guarded by mu
	end    *time.Timer   // guarded by mu; nil without a timeout
	unbind func() bool   // guarded by mu; takes the poller off its context
}

// send sends a value if there is a receiver, and sets the timer to the next interval.
func (p *poller) send() {
	p.mu.Lock()
	defer p.mu.Unlock()
	since := time.Since(p.began)
	if p.closed || p.timeout > 0 && since >= p.timeout {
		return // the last try is due, and no other one before it
	}
	select {
	case p.c <- struct{}{}:
	default:
	}
	p.tick.Reset(p.interval - since%p.interval)
}

// close closes the channel once.
func (p *poller) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	pollers.Delete((<-chan struct{})(p.c))
	p.tick.Stop()
	if p.end != nil {
		p.end.Stop()
	}
	p.unbind()
	close(p.c)
}

// WaitFor calls condition once for each value of the channel that wait returns,
// and once more when it is closed. It is [Poll] with the caller's intervals. A
// channel of [Poller] ends with the wait; the caller stops any other sender.
func WaitFor(wait WaitFunc, condition ConditionFunc) error { //nolint:revive // the early name is what callers look for
	c := wait()
	if p, is := pollers.Load(c); is {
		defer p.(*poller).close()
	}
	for {
		_, open := <-c
		switch ok, err := condition(); {
		case err != nil:
			return err
		case ok:
			return nil
		case !open:
			return ErrWaitTimeout
		}
	}
}

// Forever calls f, pauses for period, and begins again; with a period of 0 or
// less it calls f back to back. It does not return. A panic of f is not
// recovered.
func Forever(f func(), period time.Duration) {
	var timer *time.Timer
	for {
		f()
		switch {
		case period <= 0:
			continue
		case timer == nil:
			timer = time.NewTimer(period)
		default:
			timer.Reset(period)
		}
		<-timer.C
	}
}
