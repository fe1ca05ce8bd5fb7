package store_test

import (
	"context"
	"errors"
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

// The history of a resource that is no longer written to is dropped when its time has passed, by
// writes to other resources, and a watch that has received all of it goes on.
func TestAQuietHistoryIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := store.Open(t.Context(), nil, store.Options{Keep: 10 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		g := run.NewGroup(ctx, 0)
		g.Go(func(ctx context.Context) { _ = s.Run(ctx) })
		defer func() { cancel(); g.Wait() }()
		<-s.Ready()
		put := func(key string) {
			t.Helper()
			if _, err := s.Commit(t.Context(), store.Write{Key: key, Value: &storetest.Text{Text: "x"}}); err != nil {
				t.Fatal(err)
			}
		}
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
