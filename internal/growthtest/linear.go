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
	most = 2.5
	// Less than this is too little to tell growth from noise.
	leastTime  = 3 * time.Millisecond
	leastBytes = 256 << 10
	// A measurement that looks too steep is repeated, because other work on the machine can only add to it.
	tries = 6
)

// Cost is what a piece of work has cost.
type Cost struct {
	Time  time.Duration // of the processor, in the thread that did the work
	Bytes uint64        // allocated
}

// Measure returns the cost of one call, with the garbage collector off. It locks the goroutine to its thread.
func Measure(work func()) Cost { return measure(unix.RUSAGE_THREAD, work) }

// MeasureAll is [Measure] for work that other goroutines do: it counts all threads of the process.
func MeasureAll(work func()) Cost { return measure(unix.RUSAGE_SELF, work) }

func measure(who int, work func()) Cost {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	before := allocated()
	began := used(who)
	work()
	return Cost{used(who) - began, allocated() - before}
}

func used(who int) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		panic(err) // who is a constant
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// Linear fails the test if work on objects of size 2n costs more than 2.5 times what it costs at n, in time of the processor or
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
	if why := Steep(n, measure, prepare); why != "" {
		t.Error(why)
	}
}

// Steep is [Linear] without a test: it returns why the cost grows too fast, or "".
func Steep(n int, measure func(func()) Cost, prepare func(n int) (work func())) string {
	var small, large Cost
	for i := range tries {
		a, b := measure(prepare(n)), measure(prepare(2*n))
		if i == 0 {
			small, large = a, b
		} else {
			small, large = Cost{min(small.Time, a.Time), min(small.Bytes, a.Bytes)}, Cost{min(large.Time, b.Time), min(large.Bytes, b.Bytes)}
		}
		if !steep(small, large) {
			return ""
		}
	}
	return fmt.Sprintf("%d elements cost %v and %d KiB, %d cost %v and %d KiB: want at most %v times as much",
		n, small.Time, small.Bytes>>10, 2*n, large.Time, large.Bytes>>10, most)
}

func steep(small, large Cost) bool {
	return large.Time > leastTime && float64(large.Time) > most*float64(small.Time) ||
		large.Bytes > leastBytes && float64(large.Bytes) > most*float64(small.Bytes)
}
