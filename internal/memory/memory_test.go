package memory

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestPercentFor(t *testing.T) {
	tests := []struct {
		name           string
		live, headroom uint64
		least, want    int
	}{
		{"no headroom", 5 << 20, 0, 100, 100},
		{"a small heap gets all of it", 8 << 20, 64 << 20, 200, 800},
		{"a heap as large", 64 << 20, 64 << 20, 100, 100},
		{"a larger one may double", 200 << 20, 64 << 20, 100, 100},
		{"a larger one may treble", 100 << 20, 64 << 20, 200, 200},
		{"the largest that may treble", 256 << 20, 64 << 20, 200, 200},
		{"what makes it roomy", 512 << 20, 64 << 20, 200, 50},
		{"more than roomy", 800 << 20, 64 << 20, 200, 33},
		{"a very large one may have a third", 8 << 30, 64 << 20, 200, 33},
		{"next to nothing", 1, 64 << 20, 100, 10_000},
		{"nothing at all", 0, 64 << 20, 100, 10_000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := percentFor(tt.live, tt.headroom, tt.least); got != tt.want {
				t.Errorf("percentFor(%d, %d, %d) = %d, want %d", tt.live, tt.headroom, tt.least, got, tt.want)
			}
		})
	}
}

// TestArm checks that every collection is reported, not only the first.
func TestArm(t *testing.T) {
	collected := make(chan struct{}, 1)
	arm(t.Context(), collected)
	for range 3 {
		runtime.GC()
		<-collected
	}
}

// TestRun fills the heap and sees it given back, the program's pages among it, by a
// process that goes on working.
func TestRun(t *testing.T) {
	debug.SetGCPercent(usualPercent)
	garbage := make([]byte, 64<<20)
	for i := range garbage {
		garbage[i] = 1
	}
	runtime.KeepAlive(garbage)
	full := resident(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- Run(ctx, Options{Quiet: time.Millisecond}) }()
	for resident(t) > full-32<<20 {
		if ctx.Err() != nil {
			t.Fatal("nothing was given back")
		}
		runtime.Gosched()
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
}

// TestActivity sees the pages of the program given back after work that allocates nothing.
func TestActivity(t *testing.T) {
	a := NewActivity()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- Run(ctx, Options{Quiet: time.Millisecond, Activity: a}) }()
	for range 3 {
		a.Note()
		for a.noted.Load() { // it is cleared when they are about to be
			runtime.Gosched()
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
	(*Activity)(nil).Note()
}

// TestVigil follows processes through looks at what they have allocated, in KiB.
func TestVigil(t *testing.T) {
	type step struct {
		allocated   uint64 // since the step before
		give, again bool
	}
	tests := []struct {
		name     string
		live     uint64
		interval uint64
		steps    []step
	}{
		{"busy, then still", 8 << 10, 1, []step{{9000, false, true}, {9000, false, true}, {0, true, false}}},
		{"still from the start", 8 << 10, 1, []step{{0, false, false}}},
		{"slow, and then still", 8 << 10, 1, []step{{1000, false, true}, {1000, false, true}, {1000, true, true}, {1000, false, true}, {0, false, false}}},
		{"a few bytes are nothing", 8 << 10, 1, []step{{60, false, false}, {60, false, false}}},
		{"a large heap that works slowly is left alone until it is still", 400 << 10, 1, []step{{1000, false, true}, {1000, false, true}, {1000, false, true}, {10, true, false}}},
		{"what is not worth it stays", 8 << 10, 1, []step{{5000, false, true}, {0, true, false}, {900, false, true}, {0, false, false}}},
		{"three short looks are long enough", 8 << 10, 4, []step{{5000, false, true}, {0, false, true}, {0, false, true}, {0, true, false}}},
		{"a pause is not", 8 << 10, 4, []step{{5000, false, true}, {0, false, true}, {0, false, true}, {5000, false, true}, {0, false, true}}},
		{"a little garbage stays", 8 << 10, 4, []step{{1500, false, true}, {0, false, true}, {0, false, true}, {0, false, false}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := idleDetector{interval: tt.interval}
			now := heapStats{live: tt.live << 10}
			for i, s := range tt.steps {
				now.allocated += s.allocated << 10
				give, again := d.look(now)
				if give != s.give || again != s.again {
					t.Errorf("look %d = %v, %v, want %v, %v", i, give, again, s.give, s.again)
				}
				if give {
					d.given = now.allocated
				}
			}
		})
	}
}

// resident returns the bytes of memory that this process has now.
func resident(t *testing.T) int64 {
	t.Helper()
	data, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "Rss:")
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

func TestLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- Run(ctx, Options{Limit: Available() / 2}) }()
	for debug.SetMemoryLimit(-1) == before {
		runtime.Gosched()
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
	if after := debug.SetMemoryLimit(-1); after != before {
		t.Errorf("limit %d, want %d", after, before)
	}
}

func TestLoad(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(usualPercent))
	for _, tt := range []struct {
		saved uint64
		want  int
	}{{1 << 20, 100}, {4 << 20, 533}, {16 << 20, 133}, {1 << 30, 100}} {
		debug.SetGCPercent(usualPercent)
		Load(tt.saved, 64<<20)
		if got := debug.SetGCPercent(usualPercent); got != tt.want {
			t.Errorf("Load(%d) sets %d percent, want %d", tt.saved, got, tt.want)
		}
	}
}
