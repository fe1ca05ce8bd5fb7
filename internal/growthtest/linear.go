package growthtest

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The limits of growth: what costs at most this many times as much at 2n as at n is linear, with a logarithm and noise.
const (
	most = 3
	// Less than this is too little to distinguish growth from noise.
	leastTime  = 3 * time.Millisecond
	sureTime   = 25 * time.Millisecond // from 2n on, where the square of n is more
	leastBytes = 1 << 20
	// A measurement that looks too steep is repeated, because other work on the machine can only add to it.
	tries = 4
	// What costs this much is not tried again.
	enough = time.Second
)

// Cost is what a piece of work has cost.
type Cost struct {
	Time  time.Duration // of the processor, in the thread that did the work
	Bytes uint64        // allocated
}

// Measure returns the cost of one call, with the garbage collector off. It locks the goroutine to its thread.
func Measure(work func()) Cost { return measure(unix.CLOCK_THREAD_CPUTIME_ID, work) }

// MeasureAll is [Measure] for work that other goroutines do: it counts all threads of the process.
func MeasureAll(work func()) Cost { return measure(unix.CLOCK_PROCESS_CPUTIME_ID, work) }

func measure(clock int32, work func()) Cost {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	before := allocated()
	began := used(clock)
	work()
	return Cost{used(clock) - began, allocated() - before}
}

func used(clock int32) time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(clock, &now); err != nil {
		panic(err) // the clock is a constant
	}
	return time.Duration(now.Nano())
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// SkipRaced skips a test that measures if the race detector is on: that makes work five times slower, and costs are the same
// without.
func SkipRaced(t *testing.T) {
	t.Helper()
	if raced {
		t.Skip("costs are measured without the race detector")
	}
}

// Linear skips the test if the race detector is on, see [SkipRaced]. It fails the test if work on objects of size 2n costs more than 3 times what it costs at n, in time of the processor or
// in bytes allocated. Prepare makes the work for a size and is not measured itself. The processor's time is that of the thread that
// calls, so that neither other tests nor other programs count.
func Linear(t *testing.T, n int, prepare func(n int) (work func())) {
	t.Helper()
	linear(t, n, Measure, prepare)
}

// LinearAll is [Linear] for work that other goroutines do. Tests that run at the same time count too.
func LinearAll(t *testing.T, n int, prepare func(n int) (work func())) {
	t.Helper()
	linear(t, n, MeasureAll, prepare)
}

func linear(t *testing.T, n int, measure func(func()) Cost, prepare func(n int) (work func())) {
	t.Helper()
	SkipRaced(t)
	if why := Steep(n, measure, prepare); why != "" {
		t.Error(why)
	}
}

// Steep is [Linear] without a test: it returns why the cost grows too fast, or "". A step between n and 2n, where a map or
// a cache becomes too small, is not growth: the steps from 2n to 4n and from 4n to 8n have to be as steep.
func Steep(n int, measure func(func()) Cost, prepare func(n int) (work func())) string {
	if compare(n, leastTime, measure, prepare) == "" || compare(2*n, sureTime, measure, prepare) == "" {
		return ""
	}
	return compare(4*n, sureTime, measure, prepare)
}

func compare(n int, least time.Duration, measure func(func()) Cost, prepare func(n int) (work func())) string {
	var small, large Cost
	for i := 0; i < tries && large.Time < enough; i++ {
		a, b := measure(prepare(n)), measure(prepare(2*n))
		if i == 0 {
			small, large = a, b
		} else {
			small, large = Cost{min(small.Time, a.Time), min(small.Bytes, a.Bytes)}, Cost{min(large.Time, b.Time), min(large.Bytes, b.Bytes)}
		}
		if !steep(small, large, least) {
			return ""
		}
	}
	return fmt.Sprintf("%d elements cost %v and %d KiB, %d cost %v and %d KiB: want at most %v times as much",
		n, small.Time, small.Bytes>>10, 2*n, large.Time, large.Bytes>>10, most)
}

func steep(small, large Cost, least time.Duration) bool {
	return large.Time > least && float64(large.Time) > most*float64(small.Time) ||
		large.Bytes > leastBytes && float64(large.Bytes) > most*float64(small.Bytes)
}
