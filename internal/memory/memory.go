package memory

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

// Options configures [Run].
type Options struct {
	// Headroom is how many bytes of garbage may pile up before the collector
	// runs, however small the heap is. 0 leaves Go's own rule, by which the heap
	// may double, and Percent has no effect. An environment with GOGC in it has
	// decided both already.
	Headroom uint64

	// Percent is how much garbage may pile up, in percent of the live objects, if that is more than Headroom. It is
	// less where both together would be more than 768 MiB, but at least 33. 0 means 100.
	Percent int

	// Limit is how many bytes the process may have before the collector runs more often than that. 0 means that there
	// is no limit. An environment with GOMEMLIMIT in it has decided already.
	Limit uint64

	// Quiet is the time of next to no allocations after which memory is given
	// back; 0 means one second.
	Quiet time.Duration

	// Activity notes that the process works again; nil means that only collections do.
	Activity *Activity

	// Release is called before memory is given back, to let go of what can be made again. Nil means that
	// there is nothing.
	Release func()

	Log *slog.Logger // nil means slog.Default
}

// An Activity reports to [Run] that the process works: it touches pages of the program again, though
// it may allocate too little for a collection. Its methods are safe for concurrent use, and may be called on
// nil.
type Activity struct {
	noted atomic.Bool
	begun chan struct{}
}

// NewActivity returns an Activity, for one Run.
func NewActivity() *Activity { return &Activity{begun: make(chan struct{}, 1)} }

// Note reports that the process works. It does not block, and is cheap enough for each request.
func (a *Activity) Note() {
	if a != nil && !a.noted.Load() && a.noted.CompareAndSwap(false, true) {
		a.begun <- struct{}{}
	}
}

// rest begins a time without activity: the next is reported.
func (a *Activity) rest() {
	if a != nil {
		a.noted.Store(false)
	}
}

// next returns the channel that reports the end of a rest.
func (a *Activity) next() <-chan struct{} {
	if a == nil {
		return nil
	}
	return a.begun
}

// Run follows the collector until ctx is over. One of them runs in a process.
func Run(ctx context.Context, o Options) error {
	o.Quiet = cmp.Or(o.Quiet, time.Second)
	o.Percent = cmp.Or(o.Percent, usualPercent)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if os.Getenv("GOGC") != "" {
		o.Headroom = 0
	}
	defer Bound(o.Limit)()
	collected := make(chan struct{}, 1)
	arm(ctx, collected)
	quiet := time.NewTimer(o.Quiet)
	defer quiet.Stop()
	percent, seen := 0, look()
	watch := idleDetector{seen: seen.allocated}
	// A large heap is looked at more often, and its garbage given back sooner. What can be made again stays until
	// quiet.
	soon := time.NewTimer(o.Quiet / soonest)
	soon.Stop()
	defer soon.Stop()
	soonWatch := idleDetector{seen: seen.allocated, interval: soonest}
	var program programPages
	forget := func() {
		if err := program.forget(); err != nil {
			o.Log.DebugContext(ctx, "cannot release the pages of the program", "err", err)
		}
	}
	var began uint64 // bytes that had been allocated when brief was set
	brief := time.NewTimer(o.Quiet / 10)
	brief.Stop()
	defer brief.Stop()
	set := func(p int) {
		if p != percent && o.Headroom > 0 {
			percent = p
			debug.SetGCPercent(p)
		}
	}
	defer set(usualPercent)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-collected:
			now := look()
			if now.cycles == seen.cycles {
				continue // we made the collector run
			}
			seen, watch.seen = now, now.allocated
			set(percentFor(now.live, o.Headroom, o.Percent))
			quiet.Reset(o.Quiet)
			if now.live > largeHeap {
				soonWatch.seen = now.allocated
				soon.Reset(o.Quiet / soonest)
			}
		case <-soon.C:
			give, again := soonWatch.look(look())
			if give {
				debug.FreeOSMemory()
				soonWatch.given = look().allocated
			}
			if again {
				soon.Reset(o.Quiet / soonest)
			}
		case <-o.Activity.next():
			began = look().allocated
			brief.Reset(o.Quiet / 10)
		case <-brief.C:
			if look().allocated-began > surelyIdle {
				quiet.Reset(o.Quiet) // more than a little work: its end is awaited as after a collection
				continue
			}
			o.Activity.rest()
			forget()
		case <-quiet.C:
			give, again := watch.look(look())
			if give {
				set(usualPercent)
				if o.Release != nil {
					o.Release()
				}
				runtime.GC() // empties pools (sync.Pool), which keep what they have for one collection
				debug.FreeOSMemory()
				watch.given = look().allocated
			}
			if again {
				quiet.Reset(o.Quiet)
			} else {
				o.Activity.rest()
			}
			if give || !again {
				forget()
			}
		}
	}
}

// Bound sets the Limit of [Options] until the result is called. A program calls it before it loads much, and then
// calls Run.
func Bound(limit uint64) (restore func()) {
	if limit == 0 || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	before := debug.SetMemoryLimit(int64(min(limit, math.MaxInt64)))
	return func() { debug.SetMemoryLimit(before) }
}

// Load sets the collector for so many bytes of saved objects that are about to be loaded, with a headroom as in
// [Options]: it runs seldom until [Run] decides. It has no effect with few bytes, because what lives on is scattered
// over the garbage of a start, or if GOGC is in the environment.
func Load(saved, headroom uint64) {
	const (
		few     = 4 << 20
		decoded = 3 // times as large as saved, about
	)
	if saved >= few && os.Getenv("GOGC") == "" {
		debug.SetGCPercent(max(usualPercent, percentFor(decoded*saved, headroom, usualPercent)))
	}
}

// soonest is how many times in [Options.Quiet] a heap with more than largeHeap bytes that live is looked at.
const (
	soonest   = 4
	largeHeap = 32 << 20
)

// An idleDetector decides when memory is given back. Its owner calls look after each interval
// without a collection.
type idleDetector struct {
	seen     uint64 // bytes that had been allocated at the last look or collection
	given    uint64 // and when memory was given back
	interval uint64 // how many of them are in the quiet time; 0 means one
	calm     uint64 // looks in a row that found the process idle
}

// look returns whether memory should be given back now, and whether to look again after another
// interval. Large heaps are collected seldom, however busy the process is, and the work of a slow
// process may end without another collection, which would leave its garbage in memory.
func (d *idleDetector) look(now heapStats) (give, again bool) {
	lately := (now.allocated - d.seen) * max(d.interval, 1) // in a quiet time
	d.seen = now.allocated
	enough := uint64(leastGarbage)
	if lately > surelyIdle || d.interval > 1 {
		enough = max(enough, now.live/4) // it is not over yet, or only a pause
	}
	if lately > mostIdle {
		d.calm = 0
	} else {
		d.calm++
	}
	// A short interval may be a pause between requests: what is given back in it has to be mapped again after it.
	long := d.calm+1 >= d.interval
	return long && lately <= mostIdle && now.allocated-d.given > enough, lately > surelyIdle || !long
}

// mostIdle is how many bytes a process may allocate in the quiet time and still be called
// idle. A single client at full speed makes it allocate many times as much.
const mostIdle = 1 << 20

// surelyIdle is how many bytes it may allocate in that time and be idle for sure.
const surelyIdle = 64 << 10

// leastGarbage are so few bytes of garbage that they are not worth a collection.
const leastGarbage = 1 << 20

const usualPercent = 100 // Go's own: the heap may double

// roomy is up to how many bytes of live objects and garbage the percentage of a process holds, and leastPercent how
// much garbage a larger heap may have nevertheless.
const (
	roomy        = 768 << 20
	leastPercent = 33
)

// percentFor returns the GOGC with which a heap of so many live bytes gets that
// headroom, and at least the percentage least if the heap stays roomy with it.
func percentFor(live, headroom uint64, least int) int {
	const most = 10_000 // of a heap of next to nothing
	percent := func(bytes uint64) int { return int(min(most, bytes*100/max(live, 1))) }
	return max(percent(headroom), min(least, max(leastPercent, percent(roomy-min(live, roomy)))))
}

// heapStats are counters of the runtime about its heap.
type heapStats struct {
	live      uint64 // bytes that the last collection found alive
	cycles    uint64 // collections by the runtime, not forced by a call
	allocated uint64 // bytes since the process began
}

func look() heapStats {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/cycles/automatic:gc-cycles"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return heapStats{s[0].Value.Uint64(), s[1].Value.Uint64(), s[2].Value.Uint64()}
}

// A sentinel is garbage that reports its collection. It is too large for the allocator to put it
// together with others.
type sentinel [32]byte

// arm fills collected after each collection from now on.
func arm(ctx context.Context, collected chan<- struct{}) {
	runtime.AddCleanup(new(sentinel), func(ctx context.Context) {
		if ctx.Err() != nil {
			return
		}
		select {
		case collected <- struct{}{}:
		default: // one that was not looked at yet does as well
		}
		arm(ctx, collected)
	}, ctx)
}
