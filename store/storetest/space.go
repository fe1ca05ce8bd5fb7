package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

// volatileBound checks that volatile writes wait for a durable one in bounded memory only.
func volatileBound(t *testing.T, m Medium) {
	for _, tt := range []struct {
		name         string
		count, bytes int
	}{
		{"large", 200, 64 << 10},
		{"many", 40_000, 10},
	} {
		s := start(t, m, store.Options{})
		text := strings.Repeat("x", tt.bytes)
		for i := range tt.count {
			s.volatile(t, fmt.Sprintf("events/%s/%d", tt.name, i), text)
		}
		s.crash()
		s = start(t, m, store.Options{})
		got, _ := s.list(t, store.Query{Prefix: "events/" + tt.name + "/"}, store.Page{})
		if len(got) < tt.count/2 {
			t.Errorf("%s: a crash left %d of %d volatile writes, want most of them", tt.name, len(got), tt.count)
		}
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, m, store.Options{})
	s.volatile(t, "leases/0", "first") // may reserve revisions
	before := s.tap.commits.Load()
	for i := range 50_000 {
		s.volatile(t, fmt.Sprintf("leases/%d", i%10), "x")
	}
	if n := s.tap.commits.Load() - before; n != 0 {
		t.Errorf("renewals of ten leases made %d commits", n)
	}
}

const ttl = time.Hour

func expiring() store.Options {
	return store.Options{
		TTL: func(key string) time.Duration {
			if strings.HasPrefix(key, "events/") {
				return ttl
			}
			return 0
		},
		Restate: Restate,
	}
}

// soon is by how much later than its deadline a record may go.
const soon = time.Minute

func expires(t *testing.T, m Medium) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, m, expiring())
		s.put(t, "events/a", "1")
		s.put(t, "pods/a", "1")
		time.Sleep(30 * time.Minute)
		s.put(t, "events/a", "2")
		last := s.put(t, "events/b", "1").Revision
		time.Sleep(ttl - time.Second)
		got, _ := s.list(t, store.Query{Prefix: "events/"}, store.Page{})
		equal(t, "a second before the time is over", got, []string{"events/a=2", "events/b=1"})
		s.put(t, "events/b", "2")
		time.Sleep(time.Second + soon)
		synctest.Wait()
		got, _ = s.list(t, store.Query{Prefix: "events/"}, store.Page{})
		equal(t, "when the time of one is over", got, []string{"events/b=2"})
		equal(t, "the watch", eventLines(s.events(t, store.Query{Prefix: "events/"}, last)), []string{"~events/b=2", "-events/a=2"})
		if s.text(t, "pods/a") != "1" {
			t.Error("a record without a time to live is gone")
		}
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
}

func expiresStopped(t *testing.T, m Medium) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, m, store.Options{}) // as of before there was a time to live
		s.put(t, "events/old", "1")
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		s = start(t, m, expiring())
		s.volatile(t, "events/a", "1")
		s.put(t, "events/b", "1")
		time.Sleep(30 * time.Minute)
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			sleep time.Duration
			want  []string
		}{
			{29 * time.Minute, []string{"events/a=1", "events/b=1", "events/old=1"}},
			{time.Minute + soon, []string{"events/old=1"}}, // it has its time from the start
		} {
			time.Sleep(tt.sleep)
			s = start(t, m, expiring())
			time.Sleep(time.Second)
			synctest.Wait()
			got, _ := s.list(t, store.Query{Prefix: "events/"}, store.Page{})
			equal(t, fmt.Sprintf("after %v more", tt.sleep), got, tt.want)
			s.put(t, "pods/a", "x") // deletions are saved
			s.crash()
		}
	})
}

// fullTakesDeletions has clients delete and update while others fail to create.
func fullTakesDeletions(t *testing.T, m Medium) {
	s := open(t, m, store.Options{})
	const clients, each = 8, 40
	for c := range clients {
		for i := range each {
			s.put(t, fmt.Sprintf("pods/%d-%d", c, i), "a long text")
		}
	}
	s.volatile(t, "leases/a", "1")
	s.volatile(t, "leases/gone", "1")
	s.tap.setFull(true)
	if _, err := s.Commit(t.Context(), store.Write{Key: "new/first", Value: &Text{}}); !errors.Is(err, store.ErrFull) {
		t.Errorf("a creation on a full disk: %v, want ErrFull", err)
	}
	var refused atomic.Int32
	ctx, cancel := context.WithCancel(t.Context())
	creators, deleters := run.NewGroup(ctx, 0), run.NewGroup(t.Context(), 0)
	for c := range clients {
		creators.Go(func(ctx context.Context) {
			for i := 0; ctx.Err() == nil; i++ {
				_, err := s.Commit(ctx, store.Write{Key: fmt.Sprintf("new/%d-%d", c, i), Value: &Text{Text: "x"}, Volatile: i%3 == 0})
				if err == nil || !errors.Is(err, store.ErrFull) && ctx.Err() == nil {
					t.Errorf("a creation on a full disk: %v, want ErrFull", err)
				}
				refused.Add(1)
			}
		})
		deleters.Go(func(ctx context.Context) {
			for i := range each {
				key := fmt.Sprintf("pods/%d-%d", c, i)
				w := store.Write{Key: key, Value: &Text{Text: "short"}, Expect: s.revisionOf(key)}
				switch i % 4 {
				case 0:
					w.Delete = true
				case 1:
					w.Value, w.Frees = &Text{Text: "longer, but it is being deleted"}, true
				case 2:
					w.Value, w.Volatile = &Text{Text: "a text long"}, true
				}
				if _, err := s.Commit(ctx, w); err != nil {
					t.Errorf("a write that frees space, on a full disk: %v", err)
				}
			}
		})
	}
	deleters.Wait()
	cancel()
	creators.Wait()
	s.remove(t, "leases/gone")
	if !errors.Is(s.Full(), store.ErrFull) || refused.Load() == 0 {
		t.Errorf("Full = %v after %d refused writes", s.Full(), refused.Load())
	}
	_, before := s.list(t, store.Query{Prefix: "pods/"}, store.Page{})
	s.crash()
	s = open(t, m, store.Options{})
	got, _ := s.list(t, store.Query{Prefix: "pods/"}, store.Page{})
	kept := 0
	for _, line := range lines(before.Records) {
		if strings.HasSuffix(line, "=a text long") { // volatile: the crash may have lost it
			line = strings.ReplaceAll(line, "a text long", "a long text")
		}
		for _, now := range got {
			if now == line || now == strings.ReplaceAll(line, "a long text", "a text long") {
				kept++
			}
		}
	}
	if kept != len(before.Records) || len(got) != kept {
		t.Errorf("after a crash %d of %d records are as they were, and there are %d", kept, len(before.Records), len(got))
	}
	if s.text(t, "leases/gone") != "" {
		t.Error("a record that was deleted on the full disk is back")
	}
	for i := range 10 {
		s.put(t, fmt.Sprintf("new/%d", i), "there is space again")
	}
}

func fullRecovers(t *testing.T, m Medium) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		opts := store.Options{Notify: func(n store.Notice) { told = append(told, fmt.Sprintf("%s %v", n.Reason, n.Warning)) }}
		s := start(t, m, opts)
		s.tap.setFull(true)
		for range 2 {
			if _, err := s.Commit(t.Context(), store.Write{Key: "pods/a", Value: &Text{}}); !errors.Is(err, store.ErrFull) {
				t.Errorf("Commit on a full disk = %v, want ErrFull", err)
			}
		}
		time.Sleep(time.Hour)
		if !errors.Is(s.Full(), store.ErrFull) {
			t.Errorf("Full = %v on a full disk, want ErrFull", s.Full())
		}
		s.tap.setFull(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if err := s.Full(); err != nil {
			t.Errorf("Full = %v though there is space", err)
		}
		equal(t, "notices", told, []string{"StoreFull true", "StoreSpaceRecovered false"})
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
}

// smallWritesDoNotEndFull checks that a store without space for most writes does not become well by
// a small one that still fits.
func smallWritesDoNotEndFull(t *testing.T, m Medium) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, m, store.Options{})
		s.tap.setLeft(true, 1000)
		large := store.Write{Key: "pods/large", Value: &Text{Text: strings.Repeat("x", 2000)}}
		if _, err := s.Commit(t.Context(), large); !errors.Is(err, store.ErrFull) {
			t.Errorf("Commit of more than there is space for = %v, want ErrFull", err)
		}
		for range 2 {
			s.put(t, "pods/small", "it fits")
			if !errors.Is(s.Full(), store.ErrFull) {
				t.Errorf("Full = %v after a small write, want ErrFull", s.Full())
			}
			time.Sleep(time.Minute)
		}
		s.tap.setFull(false)
		s.put(t, "pods/large", "there is space")
		if err := s.Full(); err != nil {
			t.Errorf("Full = %v after a write though there is space", err)
		}
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
}

// largeWrites checks that writes which wait for one sync do not make one batch of any size.
func largeWrites(t *testing.T, m Medium) {
	s := open(t, m, store.Options{})
	release := s.tap.hold()
	g := run.NewGroup(t.Context(), 0)
	g.Go(func(context.Context) { s.put(t, "pods/first", "x") })
	<-s.tap.atGate
	text := strings.Repeat("x", 1<<20)
	for i := range 40 {
		g.Go(func(context.Context) { s.put(t, fmt.Sprintf("pods/%d", i), text) })
	}
	release()
	g.Wait()
	if n := s.tap.largest(); n > 10<<20 {
		t.Errorf("a batch has %d bytes", n)
	}
	if _, err := s.Commit(t.Context(), store.Write{Key: "pods/huge", Value: &Text{Text: strings.Repeat(text, 17)}}); err == nil {
		t.Error("a value of 17 MiB was accepted")
	}
	s.put(t, "pods/after", "x")
}
