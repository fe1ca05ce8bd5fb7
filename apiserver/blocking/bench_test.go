package blocking_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sampan-io/sampan/apiserver/blocking"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

// BenchmarkUnconcerned measures what waiting requests add to a change that does not concern them:
// 10,000 of them should cost as much as ten. Both sides commit the same writes and end when the
// last was judged.
func BenchmarkUnconcerned(b *testing.B) {
	const few, many, writes = 10, 10_000, 100
	side := func(waiters int) func() time.Duration {
		st, err := store.Open(b.Context(), nil, store.Options{})
		if err != nil {
			b.Fatal(err)
		}
		g := run.NewGroup(b.Context(), 0)
		b.Cleanup(g.Stop)
		g.Go(func(ctx context.Context) { _ = st.Run(ctx) })
		<-st.Ready()
		put := func(name string, n int64) {
			w := store.Write{Key: key(name), Value: &value{n: n}}
			if rec, err := st.Get(w.Key); err == nil {
				w.Expect = rec.Revision
			}
			if _, err := st.Commit(b.Context(), w); err != nil {
				b.Fatal(err)
			}
		}
		put("a", 1)
		ws := blocking.New(blocking.Options{Store: st, Object: object, PerUser: many + 1})
		for range waiters {
			g.Go(func(ctx context.Context) {
				r := about("a", ask(one("object.n == 2")))
				r.Timeout = time.Hour
				_, _ = ws.Wait(ctx, r)
			})
		}
		for ws.Waiting() < waiters {
			put("b", 0) // others run while a write is under way
		}
		n := int64(0)
		return func() time.Duration {
			start := time.Now()
			last := make(chan struct{})
			n++
			text := fmt.Sprintf("object.n == %d", n*writes)
			g.Go(func(ctx context.Context) {
				defer close(last)
				if _, err := ws.Wait(ctx, about("b", ask(one(text)))); err != nil {
					b.Error(err)
				}
			})
			for i := range int64(writes) {
				put("b", (n-1)*writes+i+1)
			}
			<-last
			return time.Since(start)
		}
	}
	small, large := side(few), side(many)
	var tSmall, tLarge time.Duration
	for b.Loop() {
		tSmall += small()
		tLarge += large()
	}
	b.ReportMetric(float64(tLarge)/float64(tSmall), "x/1000x-waiters")
}
