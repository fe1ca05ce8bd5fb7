package disk_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/disk"
	"github.com/sampan-io/sampan/store/storetest"
)

// TestHistoryOfAFreshStart checks that a store begins with the newest writes of its log as history, that quiet
// resources go on from any revision since their last write, and that a value that cannot be decoded any more shortens
// the history of its resource alone.
func TestHistoryOfAFreshStart(t *testing.T) {
	dir := t.TempDir()
	use := func(recall func(string, []byte) (store.Value, error), do func(*store.Store)) {
		t.Helper()
		b, err := disk.Open(dir, disk.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := store.Open(t.Context(), b, store.Options{Decode: storetest.Decode, Terms: storetest.Terms, Restate: storetest.Restate, Recall: recall})
		if err != nil {
			t.Fatal(err)
		}
		g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
		g.Go(func(ctx context.Context) {
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		<-s.Ready()
		do(s)
		g.Stop()
	}
	put := func(s *store.Store, key string, expect store.Revision) store.Revision {
		rec, err := s.Commit(t.Context(), store.Write{Key: key, Value: &storetest.Text{Text: "x"}, Expect: expect})
		if err != nil {
			t.Fatal(err)
		}
		return rec.Revision
	}
	watch := func(s *store.Store, prefix string, after store.Revision) (keys []string, err error) {
		for ev, err := range s.Watch(t.Context(), store.Query{Prefix: prefix}, after) {
			if err != nil || ev.Key == "" {
				return keys, err
			}
			keys = append(keys, fmt.Sprint(ev.Key, "@", ev.Revision))
		}
		return keys, nil
	}
	const many = 3000 // more than are kept
	use(storetest.Decode, func(s *store.Store) {
		put(s, "quiet/a", 0)
		last := store.Revision(0)
		for range many {
			last = put(s, "pods/a", last)
		}
		put(s, "pods/b", 0)
	})
	use(storetest.Decode, func(s *store.Store) {
		newest := s.Revision()
		for _, tt := range []struct {
			prefix string
			after  store.Revision
			want   int // events; -1: expired
		}{
			{"pods/", newest, 0},
			{"pods/", newest - 1, 1},
			{"pods/", newest - 100, 100},
			{"pods/", 2, -1},
			{"quiet/", 1, 0},
			{"quiet/", newest - 1, 0},
			{"none/", 0, 0},
		} {
			got, err := watch(s, tt.prefix, tt.after)
			if expired := errors.Is(err, store.ErrExpired); expired != (tt.want < 0) || !expired && len(got) != tt.want {
				t.Errorf("watch of %s after %d: %d events, %v; want %d", tt.prefix, tt.after, len(got), err, tt.want)
			}
		}
		if l, err := s.List(store.Query{Prefix: "pods/"}, store.Page{At: newest - 1}); err != nil || len(l.Records) != 1 {
			t.Errorf("list before the last write: %d records, %v", len(l.Records), err)
		}
	})
	use(func(string, []byte) (store.Value, error) { return nil, errors.New("the key is gone") }, func(s *store.Store) {
		newest := s.Revision()
		if _, err := watch(s, "pods/", newest-3); !errors.Is(err, store.ErrExpired) {
			t.Errorf("watch from before a value that cannot be read: %v", err)
		}
		if got, err := watch(s, "pods/", newest-1); err != nil || len(got) != 1 {
			t.Errorf("watch from after it: %q, %v", got, err)
		}
		if got, err := watch(s, "quiet/", 1); err != nil || len(got) != 0 {
			t.Errorf("watch of another resource: %q, %v", got, err)
		}
		if rec, err := s.Get("pods/a"); err != nil || rec.Revision != newest-1 {
			t.Errorf("the record itself: %+v, %v", rec, err)
		}
	})
}
