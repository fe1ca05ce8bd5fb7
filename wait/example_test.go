package wait_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sampan-io/sampan/wait"
)

// The condition says why it does not hold yet, and the last reason is in the error.
func ExampleUntil() {
	ready := 0
	err := wait.Until(context.Background(), wait.Pace{First: time.Millisecond, Tries: 3}, func(context.Context) (bool, error) {
		ready++
		if ready < 5 {
			return false, wait.NotYet(fmt.Errorf("%d of 5 pods are ready", ready))
		}
		return true, nil
	})
	if gaveUp, ok := errors.AsType[*wait.ExhaustedError](err); ok {
		fmt.Println("gave up after", gaveUp.Tries, "tries:", gaveUp.Reason)
	}
	fmt.Println("is a timeout:", errors.Is(err, context.DeadlineExceeded))
	// Output:
	// gave up after 3 tries: 3 of 5 pods are ready
	// is a timeout: true
}

// An error that is no NotYet ends the wait at once: waiting would not help.
func ExampleUntil_terminal() {
	tries := 0
	err := wait.Until(context.Background(), wait.Pace{}, func(context.Context) (bool, error) {
		tries++
		return false, errors.New("the image has an invalid name")
	})
	fmt.Println(tries, "try:", err)
	// Output: 1 try: the image has an invalid name
}

// For returns what was waited for.
func ExampleFor() {
	addresses := []string{"", "", "10.0.0.7"} // as a service gets one
	address, err := wait.For(context.Background(), wait.Pace{First: time.Millisecond}, func(context.Context) (string, bool, error) {
		a := addresses[0]
		addresses = addresses[1:]
		return a, a != "", nil
	})
	fmt.Println(address, err)
	// Output: 10.0.0.7 <nil>
}

// NotYet(nil) is nil, so an operation is tried until it succeeds in one line.
func ExampleNotYet() {
	tries := 0
	dial := func() error {
		if tries++; tries < 3 {
			return errors.New("connection refused")
		}
		return nil
	}
	err := wait.Until(context.Background(), wait.Pace{First: time.Millisecond, Limit: time.Minute}, func(context.Context) (bool, error) {
		err := dial()
		return err == nil, wait.NotYet(err)
	})
	fmt.Println(err, "after", tries)
	// Output: <nil> after 3
}

// A pace that grows to a cap and goes on at the cap, with jitter, for ten minutes.
func ExamplePace() {
	pace := wait.Pace{
		First:  100 * time.Millisecond,
		Factor: 2,
		Max:    5 * time.Second,
		Jitter: 0.1,
		Limit:  10 * time.Minute,
	}
	err := wait.Until(context.Background(), pace, func(context.Context) (bool, error) { return true, nil })
	fmt.Println(err)
	// Output: <nil>
}

// With Wake the condition is looked at when something happened, and every ten seconds in
// case that an event was lost.
func ExamplePace_wake() {
	changed := make(chan struct{}, 1) // one value is enough: it says that there was a change, not how many
	jobs := 3
	finish := func() { // called for each finished job
		jobs--
		select {
		case changed <- struct{}{}:
		default: // a value is pending already
		}
	}
	err := wait.Until(context.Background(), wait.Pace{Wake: changed, First: 10 * time.Second}, func(context.Context) (bool, error) {
		fmt.Println(jobs, "jobs")
		if jobs == 0 {
			return true, nil
		}
		finish()
		return false, nil
	})
	fmt.Println(err)
	// Output:
	// 3 jobs
	// 2 jobs
	// 1 jobs
	// 0 jobs
	// <nil>
}

// Code from 2014 goes on as it is.
func ExamplePoll() {
	tries := 0
	err := wait.Poll(time.Millisecond, 20*time.Millisecond, func() (bool, error) {
		tries++
		return tries == 100, nil
	})
	fmt.Println(err, err == wait.ErrWaitTimeout) //nolint:errorlint // as code from 2014 does
	// Output: timed out waiting for the condition true
}

// The condition is tried once per value, and once more when the channel is closed.
func ExampleWaitFor() {
	ticks := func() <-chan struct{} {
		c := make(chan struct{}, 2)
		c <- struct{}{}
		c <- struct{}{}
		close(c)
		return c
	}
	calls := 0
	err := wait.WaitFor(ticks, func() (bool, error) { calls++; return false, nil })
	fmt.Println(calls, "calls:", err)
	// Output: 3 calls: timed out waiting for the condition
}
