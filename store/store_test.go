package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/storetest"
)

func memory(*testing.T) storetest.Medium {
	return func() (store.Backend, error) { return nil, nil }
}

func TestMemory(t *testing.T)         { storetest.Run(t, memory) }
func TestMemoryIsAMap(t *testing.T)   { storetest.Model(t, memory) }
func TestMemoryIsLinear(t *testing.T) { storetest.Linear(t, memory) }

func TestConditionsInMemory(t *testing.T) { storetest.Conditions(t, memory) }

// keeping runs a store in memory that keeps its history for a time, until the test ends. It returns a function that stores a record.
func keeping(t *testing.T, keep time.Duration) (s *store.Store, put func(key string)) {
	t.Helper()
	s, err := store.Open(t.Context(), nil, store.Options{Keep: keep})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	g := run.NewGroup(ctx, 0)
	g.Go(func(ctx context.Context) { _ = s.Run(ctx) })
	t.Cleanup(func() { cancel(); g.Wait() })
	<-s.Ready()
	return s, func(key string) {
		t.Helper()
		if _, err := s.Commit(t.Context(), store.Write{Key: key, Value: &storetest.Text{Text: "x"}}); err != nil {
			t.Fatal(err)
		}
	}
}

// The history of a resource that is no longer written to is dropped when its time has passed, by
// writes to other resources, and a watch that has received all of it goes on.
func TestAQuietHistoryIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, put := keeping(t, 10*time.Minute)
		// first returns the first error of a watch from the beginning.
		first := func() (err error) {
			for _, err = range s.Watch(t.Context(), store.Query{Prefix: "quiet/"}, 0) {
				break
			}
			return err
		}
		put("quiet/a")
		time.Sleep(9 * time.Minute)
		put("busy/a")
		if err := first(); err != nil {
			t.Errorf("before its time the history gives %v", err)
		}
		time.Sleep(2 * time.Minute)
		put("busy/b")
		if err := first(); !errors.Is(err, store.ErrExpired) {
			t.Errorf("after its time the history gives %v, want ErrExpired", err)
		}
		l, err := s.List(store.Query{Prefix: "quiet/"}, store.Page{})
		if err != nil || len(l.Records) != 1 {
			t.Errorf("List = %+v, %v, want what is there still", l, err)
		}
		for e, err := range s.Watch(t.Context(), store.Query{Prefix: "quiet/"}, l.Revision) {
			if err != nil || e.Key != "" {
				t.Errorf("a watch from the list's revision gives %+v, %v", e, err)
			}
			break
		}
	})
}

// A revision can be listed for a while after it was the newest one, also of a resource that has not changed since.
func TestOldRevisionsCannotBeListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, put := keeping(t, 10*time.Minute)
		put("quiet/a")
		l, err := s.List(store.Query{Prefix: "quiet/"}, store.Page{})
		if err != nil {
			t.Fatal(err)
		}
		list := func() error {
			_, err := s.List(store.Query{Prefix: "quiet/"}, store.Page{At: l.Revision})
			return err
		}
		time.Sleep(time.Hour)
		if err := list(); err != nil {
			t.Errorf("the newest revision gives %v after an hour", err)
		}
		put("busy/a")
		time.Sleep(9 * time.Minute)
		put("busy/b")
		if err := list(); err != nil {
			t.Errorf("nine minutes after another one came the revision gives %v", err)
		}
		time.Sleep(2 * time.Minute)
		put("busy/c")
		if err := list(); !errors.Is(err, store.ErrExpired) {
			t.Errorf("eleven minutes after another one came the revision gives %v, want ErrExpired", err)
		}
	})
}

// A waiting watch that asks for progress is woken once after a write that it has no event for, and never
// without one. Other watches are not woken at all.
func TestOnlyWritesCauseProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := store.Open(t.Context(), nil, store.Options{Progress: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		g := run.NewGroup(ctx, 0)
		g.Go(func(ctx context.Context) { _ = s.Run(ctx) })
		defer func() { cancel(); g.Wait() }()
		<-s.Ready()
		n := 0
		put := func() store.Revision {
			t.Helper()
			n++
			r, err := s.Commit(t.Context(), store.Write{Key: fmt.Sprintf("other/%d", n), Value: &storetest.Text{Text: "x"}})
			if err != nil {
				t.Fatal(err)
			}
			return r.Revision
		}
		var told, deaf []store.Revision
		follow := func(q store.Query, to *[]store.Revision) {
			g.Go(func(ctx context.Context) {
				for e, err := range s.Watch(ctx, q, 0) {
					if err == nil {
						*to = append(*to, e.Revision)
					}
				}
			})
		}
		follow(store.Query{Prefix: "quiet/", Progress: true}, &told)
		follow(store.Query{Prefix: "quiet/"}, &deaf)
		want := []store.Revision{0}
		for range 2 {
			time.Sleep(time.Hour)
			put()
			want = append(want, put())
			time.Sleep(61 * time.Second)
			synctest.Wait()
			if !slices.Equal(told, want) {
				t.Errorf("with Progress the watch reported revisions %d, want %d", told, want)
			}
		}
		if len(deaf) != 1 {
			t.Errorf("without Progress the watch reported revisions %d, want the first alone", deaf)
		}
	})
}

// Settled waits for the write that was accepted and not yet committed.
func TestSettledWaitsForTheWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		s, err := store.Open(t.Context(), gated{gate}, store.Options{Decode: func(string, []byte) (store.Value, error) { return &storetest.Text{}, nil }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		g := run.NewGroup(ctx, 0)
		g.Go(func(ctx context.Context) { _ = s.Run(ctx) })
		defer func() { cancel(); g.Wait() }()
		g.Go(func(ctx context.Context) {
			if _, err := s.Commit(ctx, store.Write{Key: "a/1", Value: &storetest.Text{Text: "x"}}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if err := s.Settled(t.Context(), "a/2"); err != nil {
			t.Errorf("Settled of another key = %v", err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if err := s.Settled(ended, "a/1"); !errors.Is(err, context.Canceled) {
			t.Errorf("Settled = %v before the write is decided", err)
		}
		settled := false
		g.Go(func(ctx context.Context) { settled = s.Settled(ctx, "a/1") == nil })
		synctest.Wait()
		if settled {
			t.Error("Settled did not wait")
		}
		close(gate)
		synctest.Wait()
		if _, err := s.Get("a/1"); !settled || err != nil {
			t.Errorf("after the write Settled returned %t, and Get %v", settled, err)
		}
	})
}

// gated is a backend whose commits wait for a channel to be closed.
type gated struct{ gate <-chan struct{} }

func (gated) Load(context.Context, func(store.Entry) error) (store.Revision, error) { return 0, nil }

func (g gated) Commit(context.Context, store.Batch) error   { <-g.gate; return nil }
func (gated) Reserve(context.Context, store.Revision) error { return nil }
func (gated) Close() error                                  { return nil }
