package main

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"text/tabwriter"
	"time"
)

func main() {
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(out, "library\tallocations per poll\tgoroutines during a poll\tleft after success\tfrom true to return\tchecks at or after the deadline\ttrue at the deadline is")
	for _, l := range libraries {
		during, left := goroutines(l)
		checks, success := deadline(l)
		verdict := "a timeout"
		if success {
			verdict = "success"
		}
		_, _ = fmt.Fprintf(out, "%s\t%.1f\t%d\t%d\t%v\t%d\t%s\n", l.name, allocations(l), during, left, latency(l), checks, verdict)
	}
	if err := out.Flush(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const pause = 200 * time.Microsecond

// allocations returns what one more poll allocates: the difference between long and
// short waits, so that what a wait costs once is not in it.
func allocations(l library) float64 {
	const few, many = 10, 510
	count := func(polls int64) uint64 {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var n atomic.Int64
		l.wait(pause, time.Minute, func() bool { return n.Add(1) >= polls })
		runtime.ReadMemStats(&after)
		return after.Mallocs - before.Mallocs
	}
	count(few) // what is made once per process
	short, long := count(few), count(many)
	return float64(long-min(short, long)) / (many - few)
}

// goroutines returns how many more there are while the condition is asked, and a while
// after it held.
func goroutines(l library) (during, left int) {
	before := settled()
	var n, most atomic.Int64
	l.wait(pause, time.Minute, func() bool {
		most.Store(max(most.Load(), int64(runtime.NumGoroutine())))
		return n.Add(1) >= 50
	})
	return int(most.Load()) - before, settled() - before
}

// settled returns the number of goroutines when it has stopped falling.
func settled() int {
	n := runtime.NumGoroutine()
	for range 20 {
		time.Sleep(time.Millisecond)
		n = min(n, runtime.NumGoroutine())
	}
	return n
}

// latency returns the mean time from the condition's answer to the return of the wait.
func latency(l library) time.Duration {
	const rounds = 200
	var sum time.Duration
	for range rounds {
		var n, held atomic.Int64
		start := time.Now()
		l.wait(pause, time.Minute, func() bool {
			if n.Add(1) < 3 {
				return false
			}
			held.CompareAndSwap(0, int64(time.Since(start)))
			return true
		})
		sum += time.Since(start) - time.Duration(held.Load())
	}
	return (sum / rounds).Round(10 * time.Nanosecond)
}

// deadline waits for what comes true during the last pause, and counts the checks that
// were made then.
func deadline(l library) (checks int64, success bool) {
	const every, limit = 40 * time.Millisecond, 60 * time.Millisecond
	start := time.Now()
	var late atomic.Int64
	success = l.wait(every, limit, func() bool {
		if time.Since(start) < limit-5*time.Millisecond {
			return false
		}
		late.Add(1)
		return true
	})
	time.Sleep(2 * every) // checks that go on behind the caller's back count, too
	return late.Load(), success
}
