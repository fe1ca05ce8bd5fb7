package store_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/disk"
)

// blob is a value that costs nothing.
type blob []byte

func (b blob) Bytes() []byte                        { return b }
func (b blob) Place(store.Revision, store.Revision) {}

// node is the index term of all blobs with the same first byte.
var nodes = func() (terms [256][]string) {
	for i := range terms {
		terms[i] = []string{fmt.Sprintf("spec.nodeName=node-%d", i)}
	}
	return terms
}()

func nodeTerm(_ string, v store.Value) []string { return nodes[v.(blob)[0]] }

// nowhere is a backend that is as fast as they come.
type nowhere struct{}

func (nowhere) Load(context.Context, func(store.Entry) error) (store.Revision, error) { return 0, nil }
func (nowhere) Commit(context.Context, store.Batch) error                             { return nil }
func (nowhere) Reserve(context.Context, store.Revision) error                         { return nil }
func (nowhere) Close() error                                                          { return nil }

func running(tb testing.TB, b store.Backend) *store.Store {
	tb.Helper()
	s, err := store.Open(tb.Context(), b, store.Options{
		Terms:   nodeTerm,
		History: 1024,
		Decode:  func(_ string, d []byte) (store.Value, error) { return blob(d), nil },
	})
	if err != nil {
		tb.Fatal(err)
	}
	g := run.NewGroup(context.WithoutCancel(tb.Context()), 0)
	g.Go(func(ctx context.Context) {
		if err := s.Run(ctx); err != nil {
			tb.Error(err)
		}
	})
	tb.Cleanup(g.Stop)
	<-s.Ready()
	return s
}

func fill(tb testing.TB, s *store.Store, n int) []string {
	tb.Helper()
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("pods/default/web-%06d", i)
		if _, err := s.Commit(tb.Context(), store.Write{Key: keys[i], Value: blob{byte(i)}, Volatile: true}); err != nil {
			tb.Fatal(err)
		}
	}
	return keys
}

// TestAllocations pins what the hot paths allocate.
func TestAllocations(t *testing.T) {
	ctx := t.Context()
	v := blob(make([]byte, 400))
	update := func(s *store.Store, key string, volatile bool) func() {
		var have store.Revision
		return func() {
			r, err := s.Commit(ctx, store.Write{Key: key, Value: v, Expect: have, Volatile: volatile})
			if err != nil {
				t.Fatal(err)
			}
			have = r.Revision
		}
	}
	memory, durable := running(t, nil), running(t, nowhere{})
	keys := fill(t, memory, 1000)
	for _, tt := range []struct {
		name string
		most float64
		f    func()
	}{
		{"get", 0, func() {
			if _, err := memory.Get(keys[500]); err != nil {
				t.Fatal(err)
			}
		}},
		// The record that stays, and now and then a node of a tree or a larger ring.
		{"update in memory", 2, update(memory, "pods/default/one", false)},
		{"volatile update", 2, update(durable, "leases/one", true)},
		// And what a batch of one needs: itself, its entries, two outcomes.
		{"durable update", 9, update(durable, "pods/default/two", false)},
		{"list of ten by term", 4, func() {
			if l, err := memory.List(store.Query{Prefix: "pods/", Term: "spec.nodeName=node-7"}, store.Page{Limit: 10}); err != nil || len(l.Records) < 4 {
				t.Fatal(len(l.Records), err)
			}
		}},
	} {
		if got := testing.AllocsPerRun(1000, tt.f); got > tt.most {
			t.Errorf("%s allocates %v times, want at most %v", tt.name, got, tt.most)
		}
	}
}

// TestAWatchAllocatesNothingForEachEvent counts the allocations of watching many
// events and of watching few: the difference is what an event costs.
func TestAWatchAllocatesNothingForEachEvent(t *testing.T) {
	s := running(t, nil)
	fill(t, s, 1000)
	watch := func(n int) float64 {
		return testing.AllocsPerRun(20, func() {
			left := n
			for e, err := range s.Watch(t.Context(), store.Query{Prefix: "pods/"}, s.Revision()-store.Revision(n)) {
				if err != nil || e.Key == "" {
					t.Fatal(e, err)
				}
				if left--; left == 0 {
					return
				}
			}
		})
	}
	if few, many := watch(100), watch(1000); many > few {
		t.Errorf("watching 1000 events allocates %v times, 100 events %v times", many, few)
	}
}

// BenchmarkDurable measures durable commits by 1, 32 and 128 writers beside a bare
// loop of a write and an fdatasync on the same file system, in one run.
func BenchmarkDurable(b *testing.B) {
	for _, writers := range []int{1, 32, 128} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			dir := b.TempDir()
			backend, err := disk.Open(filepath.Join(dir, "store"), disk.Options{})
			if err != nil {
				b.Fatal(err)
			}
			s := running(b, backend)
			floor, err := os.Create(filepath.Join(dir, "floor"))
			if err != nil {
				b.Fatal(err)
			}
			defer floor.Close()
			if _, err := io.CopyN(floor, zeros{}, 1<<20); err != nil {
				b.Fatal(err)
			}
			value := blob(make([]byte, 400))
			var bare, ours time.Duration
			n, syncs := 0, 0
			have := make([]store.Revision, writers)
			for b.Loop() {
				// A little of the one and a little of the other, so that a slow
				// moment slows both.
				start := time.Now()
				for range 20 {
					if _, err := floor.WriteAt(value, int64(syncs*len(value))%(1<<20-4096)); err != nil {
						b.Fatal(err)
					}
					if err := unix.Fdatasync(int(floor.Fd())); err != nil {
						b.Fatal(err)
					}
					syncs++
				}
				middle := time.Now()
				var g sync.WaitGroup
				for w := range writers {
					g.Go(func() {
						key := fmt.Sprintf("pods/default/%d", w)
						for range 20 {
							r, err := s.Commit(b.Context(), store.Write{Key: key, Value: value, Expect: have[w]})
							if err != nil {
								b.Error(err)
								return
							}
							have[w] = r.Revision
						}
					})
				}
				g.Wait()
				n += 20 * writers
				bare += middle.Sub(start)
				ours += time.Since(middle)
			}
			b.ReportMetric(float64(n)/ours.Seconds(), "commits/s")
			b.ReportMetric((float64(n)/ours.Seconds())/(float64(syncs)/bare.Seconds()), "x-bare-fdatasync")
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// BenchmarkWatchersOfOthers measures how a write slows down when ten thousand
// watchers wait for something else: each for a key of its own, and each for a node
// of its own. 1 is not at all.
func BenchmarkWatchersOfOthers(b *testing.B) {
	alone, crowded := running(b, nil), running(b, nil)
	ctx, cancel := context.WithCancel(b.Context())
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	defer cancel()
	for i := range 5000 {
		for _, q := range []store.Query{
			{Prefix: fmt.Sprintf("pods/default/other-%d", i)},
			{Prefix: "pods/", Term: fmt.Sprintf("spec.nodeName=other-%d", i)},
		} {
			waiting := make(chan struct{})
			g.Go(func(ctx context.Context) {
				for e := range crowded.Watch(ctx, q, 0) {
					if e.Key == "" && ctx.Err() == nil {
						close(waiting)
					}
				}
			})
			<-waiting
		}
	}
	var took [2]time.Duration
	var have [2]store.Revision
	for b.Loop() {
		for i, s := range []*store.Store{alone, crowded} {
			start := time.Now()
			for range 100 {
				r, err := s.Commit(b.Context(), store.Write{Key: "pods/default/web", Value: blob{1}, Expect: have[i]})
				if err != nil {
					b.Fatal(err)
				}
				have[i] = r.Revision
			}
			took[i] += time.Since(start)
		}
	}
	b.ReportMetric(float64(took[1])/float64(took[0]), "x/10000-watchers")
	b.ReportMetric(float64(took[0].Nanoseconds())/float64(100*b.N), "ns/write")
}

// BenchmarkFanOut measures deliveries to a hundred watchers of everything while
// one writer writes at full speed.
func BenchmarkFanOut(b *testing.B) {
	s := running(b, nil)
	const watchers, burst = 100, 1000
	ctx, cancel := context.WithCancel(b.Context())
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	defer cancel()
	var seen sync.WaitGroup
	for range watchers {
		g.Go(func(ctx context.Context) {
			n := 0
			for e, err := range s.Watch(ctx, store.Query{Prefix: "pods/"}, 0) {
				if err != nil {
					if ctx.Err() == nil {
						b.Error(err)
					}
					return
				}
				if e.Key != "" {
					if n++; n%burst == 0 {
						seen.Done()
					}
				}
			}
		})
	}
	var have store.Revision
	var took time.Duration
	for b.Loop() {
		seen.Add(watchers)
		start := time.Now()
		for range burst {
			r, err := s.Commit(b.Context(), store.Write{Key: "pods/default/web", Value: blob{1}, Expect: have})
			if err != nil {
				b.Fatal(err)
			}
			have = r.Revision
			if have%64 == 0 {
				runtime.Gosched()
			}
		}
		seen.Wait()
		took += time.Since(start)
	}
	b.ReportMetric(float64(watchers*burst*b.N)/took.Seconds(), "deliveries/s")
}

// BenchmarkList measures a list of 10,000 records beside a bare copy of as many.
func BenchmarkList(b *testing.B) {
	s := running(b, nil)
	fill(b, s, 10_000)
	from, to := make([]store.Record, 10_000), []store.Record(nil)
	var bare, ours time.Duration
	for b.Loop() {
		start := time.Now()
		to = append([]store.Record(nil), from...)
		middle := time.Now()
		l, err := s.List(store.Query{Prefix: "pods/"}, store.Page{})
		if err != nil || len(l.Records) != len(to) {
			b.Fatal(len(l.Records), err)
		}
		bare += middle.Sub(start)
		ours += time.Since(middle)
	}
	b.ReportMetric(float64(ours)/float64(bare), "x-copy")
	b.ReportMetric(float64(ours.Microseconds())/float64(b.N), "us/list")
}
