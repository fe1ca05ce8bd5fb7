package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/disk"
)

// heavy is a value that takes much more memory than its bytes.
type heavy struct {
	blob
	memory int
}

func (h heavy) Footprint() int { return h.memory }

const mib = 1 << 20

// bounded runs a store with a quota and collects its notices.
func bounded(t *testing.T, backend store.Backend, o store.Options) (*store.Store, *[]string) {
	t.Helper()
	var notices []string
	o.Notify = func(n store.Notice) { notices = append(notices, n.Reason) }
	o.Decode = func(_ string, data []byte) (store.Value, error) { return heavy{data, mib}, nil }
	s, err := store.Open(t.Context(), backend, o)
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
	g.Go(func(ctx context.Context) { _ = s.Run(ctx) })
	t.Cleanup(g.Stop)
	<-s.Ready()
	return s, &notices
}

func TestQuotaRefusesWritesThatGrow(t *testing.T) {
	for name, backend := range map[string]store.Backend{"memory": nil, "backend": nowhere{}} {
		t.Run(name, func(t *testing.T) {
			s, notices := bounded(t, backend, store.Options{Quota: 16 * mib, History: 4})
			put := func(key string, memory int, w store.Write) error {
				w.Key, w.Value = key, heavy{blob("x"), memory}
				if rec, err := s.Get(key); err == nil {
					w.Expect = rec.Revision
				}
				_, err := s.Commit(t.Context(), w)
				return err
			}
			for i := range 15 {
				if err := put(fmt.Sprintf("pods/%d", i), mib, store.Write{}); err != nil {
					t.Fatal(err)
				}
			}
			before := s.Revision()
			if over := s.OverQuota(); over != nil {
				t.Errorf("before a write was refused: %v", over)
			}
			err := put("pods/more", mib, store.Write{})
			over, ok := errors.AsType[*store.QuotaError](err)
			if !ok || !errors.Is(err, store.ErrFull) || over.Quota != 16*mib || over.Needs < mib || over.Used < 15*mib {
				t.Fatalf("a write beyond the quota: %v", err)
			}
			if now := s.OverQuota(); now == nil || now.Quota != over.Quota || now.Used != over.Used || now.Needs != over.Needs {
				t.Errorf("the state of the quota is %v, want %v", now, over)
			}
			if s.Revision() != before {
				t.Error("it used a revision (store-I2)")
			}
			for _, tt := range []struct {
				name string
				key  string
				size int
				w    store.Write
				ok   bool
			}{
				{"a small one that fits", "pods/small", 1, store.Write{}, true},
				{"the same size", "pods/1", mib, store.Write{}, true},
				{"larger", "pods/1", 2 * mib, store.Write{}, false},
				{"volatile", "events/1", mib, store.Write{Volatile: true}, false},
				{"part of a deletion", "pods/2", mib * 9 / 8, store.Write{Frees: true}, true},
				{"a large part of a deletion", "pods/3", 4 * mib, store.Write{Frees: true}, false},
				{"recovery", "leases/1", mib, store.Write{Reserve: store.ForRecovery}, true},
				{"too much of recovery", "leases/2", 2 * mib, store.Write{Reserve: store.ForRecovery}, false},
				{"the mark of a deletion", "pods/4", 4 * mib, store.Write{Frees: true, Reserve: store.ForMark}, true},
				{"smaller", "pods/4", mib, store.Write{}, true},
			} {
				if err := put(tt.key, tt.size, tt.w); (err == nil) != tt.ok {
					t.Errorf("%s: %v", tt.name, err)
				}
			}
			if fmt.Sprint(*notices) != "[StoreQuotaExceeded]" {
				t.Errorf("notices %v", *notices)
			}
			for i := range 10 {
				rec, err := s.Get(fmt.Sprintf("pods/%d", i))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.Commit(t.Context(), store.Write{Key: rec.Key, Value: rec.Value, Delete: true, Expect: rec.Revision}); err != nil {
					t.Errorf("a deletion: %v", err)
				}
			}
			if err := put("pods/more", mib, store.Write{}); err != nil {
				t.Errorf("after the deletions: %v", err)
			}
			if fmt.Sprint(*notices) != "[StoreQuotaExceeded StoreQuotaRecovered]" {
				t.Errorf("notices %v", *notices)
			}
			if over := s.OverQuota(); over != nil {
				t.Errorf("after the deletions: %v", over)
			}
			if got := s.Stats(); got.Quota != 16*mib || got.Memory < 7*mib || got.Memory > 9*mib {
				t.Errorf("stats %+v", got)
			}
		})
	}
}

// TestScarceMemoryIsShared has one namespace take all that it can, beside which the others go on.
func TestScarceMemoryIsShared(t *testing.T) {
	const quota = 512 * mib
	s, _ := bounded(t, nil, store.Options{Quota: quota, History: 4})
	sizes := map[string]int{}
	put := func(key string, size int, w store.Write) error {
		w.Key, w.Value = key, heavy{blob("x"), size}
		if rec, err := s.Get(key); err == nil {
			w.Expect = rec.Revision
		}
		_, err := s.Commit(t.Context(), w)
		if err == nil {
			sizes[key] = size
		}
		return err
	}
	remove := func(key string, w store.Write) {
		t.Helper()
		rec, err := s.Get(key)
		if err != nil {
			t.Fatal(err)
		}
		w.Key, w.Value, w.Delete, w.Expect = key, rec.Value, true, rec.Revision
		if _, err := s.Commit(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	eve, bob, ann := store.Write{Account: "namespace eve"}, store.Write{Account: "namespace bob"}, store.Write{Account: "namespace ann"}
	for n := 0; put(fmt.Sprintf("configmaps/eve/%d", n), mib, eve) == nil; n++ {
	}
	near := func(what string, want int64) {
		t.Helper()
		if used := s.Stats().Memory; used < want-4*mib || used > want+4*mib {
			t.Errorf("%s: the records take %d MiB, want about %d MiB", what, used/mib, want/mib)
		}
	}
	near("one namespace takes half of the last sixteenth", quota-quota/32)
	// The writes of controllers for eve leave half of the reserve.
	controller := func(w store.Write) store.Write { w.Reserve = store.ForRecovery; return w }
	for size := mib; put("pods/eve/a", size, controller(eve)) == nil; size += mib {
	}
	near("one namespace makes controllers take half", quota+quota/32)
	if over, ok := errors.AsType[*store.QuotaError](put("pods/eve/a", sizes["pods/eve/a"]+mib, controller(eve))); !ok || over.Account != "namespace eve" {
		t.Errorf("the error %v does not say that the namespace has its share", over)
	}
	if err := put("pods/bob/a", mib, controller(bob)); err != nil {
		t.Errorf("another namespace: %v", err)
	}
	if err := put("pods/bob/b", mib, bob); err == nil {
		t.Error("a write without a reserve succeeds beyond the quota")
	}
	for size := mib; put("pods/ann/a", size, controller(ann)) == nil; size += mib {
	}
	if err := put("pods/bob/a", 2*mib, controller(bob)); err != nil {
		t.Errorf("beside two that take all: %v", err)
	}
	// Administrators have their own part, however much of the others is used.
	admin := store.Write{Account: "namespace bob", Reserve: store.ForAdministration}
	n := 0
	for ; put(fmt.Sprintf("secrets/bob/%d", n), mib, admin) == nil; n++ {
	}
	if n < 30 || n > 32 {
		t.Errorf("administrators wrote %d MiB, want 32", n)
	}
	if used := s.Stats().Memory; used > quota+quota*3/16 {
		t.Errorf("the records take %d MiB", used/mib)
	}
	remove("secrets/bob/0", admin)
	if err := put("secrets/bob/again", mib, admin); err != nil {
		t.Errorf("after a deletion by an administrator: %v", err)
	}
	// However much an administrator makes free, eve cannot take all of it.
	for i := 0; i < 300; i += 100 {
		for n := range 100 {
			remove(fmt.Sprintf("configmaps/eve/%d", i+n), admin)
		}
		n := 0
		for ; put(fmt.Sprintf("configmaps/eve/new-%d-%d", i, n), mib, eve) == nil; n++ {
		}
		if err := put("pods/bob/b", (i/100+1)*mib, bob); err != nil {
			t.Errorf("after deletions by an administrator, and %d MiB more of one namespace: %v", n, err)
		}
	}
}

// TestAdministratorsOweNothingForMemoryOthersFreed has administrators write beyond the quota, and others free as much each time.
func TestAdministratorsOweNothingForMemoryOthersFreed(t *testing.T) {
	const quota = 64 * mib
	s, _ := bounded(t, nil, store.Options{Quota: quota})
	write := func(key string, size int, w store.Write) error {
		w.Key, w.Value = key, heavy{blob("x"), size}
		_, err := s.Commit(t.Context(), w)
		return err
	}
	eve, bob := store.Write{Account: "namespace eve"}, store.Write{Account: "namespace bob"}
	n := 0
	for ; write(fmt.Sprintf("configmaps/eve/%d", n), mib, eve) == nil; n++ {
	}
	for i := 0; write(fmt.Sprintf("configmaps/bob/%d", i), mib/4, bob) == nil; i++ {
	}
	for i := range n / 4 {
		if err := write(fmt.Sprintf("configmaps/default/%d", i), 4*mib, store.Write{Account: "namespace default", Reserve: store.ForAdministration}); err != nil {
			t.Fatalf("write %d of an administrator: %v", i, err)
		}
		for k := range 4 {
			rec, err := s.Get(fmt.Sprintf("configmaps/eve/%d", 4*i+k))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Commit(t.Context(), store.Write{Key: rec.Key, Value: rec.Value, Delete: true, Expect: rec.Revision, Account: eve.Account}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestFailedWritesGiveTheirMemoryBack has a backend without space fail writes, which then do not count.
func TestFailedWritesGiveTheirMemoryBack(t *testing.T) {
	s, _ := bounded(t, noSpace{}, store.Options{Quota: 16 * mib})
	for i := range 40 {
		_, err := s.Commit(t.Context(), store.Write{Key: fmt.Sprintf("pods/%d", i), Value: heavy{blob("x"), mib}})
		if over, ok := errors.AsType[*store.QuotaError](err); ok || !errors.Is(err, store.ErrFull) {
			t.Fatalf("write %d: %v, %+v", i, err, over)
		}
	}
	if got := s.Stats().Memory; got != 0 {
		t.Errorf("%d bytes are used", got)
	}
}

type noSpace struct{ nowhere }

func (noSpace) Commit(context.Context, store.Batch) error { return store.ErrFull }

// TestHistoriesAreBoundedInMemory has one resource with large values lose its history, and another one keep it.
func TestHistoriesAreBoundedInMemory(t *testing.T) {
	s, _ := bounded(t, nil, store.Options{Quota: 64 * mib})
	first, err := s.Commit(t.Context(), store.Write{Key: "pods/a", Value: heavy{blob("x"), 1000}})
	if err != nil {
		t.Fatal(err)
	}
	var expect store.Revision
	for i := range 100 {
		rec, err := s.Commit(t.Context(), store.Write{Key: "configmaps/a", Value: heavy{blob("x"), mib}, Expect: expect})
		if err != nil {
			t.Fatal(err)
		}
		expect = rec.Revision
		if got := s.Stats().HistoryMemory; got > 16*mib {
			t.Fatalf("after %d writes the histories take %d bytes", i, got)
		}
	}
	if _, err := s.List(store.Query{Prefix: "pods/"}, store.Page{At: first.Revision}); err != nil {
		t.Errorf("the history of pods: %v", err)
	}
	if _, err := s.List(store.Query{Prefix: "configmaps/"}, store.Page{At: first.Revision + 1}); !errors.Is(err, store.ErrExpired) {
		t.Errorf("the history of large values: %v, want ErrExpired", err)
	}
	if _, err := s.List(store.Query{Prefix: "configmaps/"}, store.Page{At: expect - 5}); err != nil {
		t.Errorf("the newest values: %v", err)
	}
	if got := s.Stats(); got.HistoryMemory < 8*mib {
		t.Errorf("the histories take %d bytes: more was dropped than necessary", got.HistoryMemory)
	}
}

func TestOpenReportsTooLittleMemory(t *testing.T) {
	dir := t.TempDir()
	open := func(o store.Options) (*store.Store, error) {
		b, err := disk.Open(dir, disk.Options{})
		if err != nil {
			t.Fatal(err)
		}
		o.Decode = func(_ string, data []byte) (store.Value, error) { return heavy{data, mib}, nil }
		return store.Open(t.Context(), b, o)
	}
	s, err := open(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
	g.Go(func(ctx context.Context) { _ = s.Run(ctx) })
	<-s.Ready()
	for i := range 20 {
		if _, err := s.Commit(t.Context(), store.Write{Key: fmt.Sprintf("pods/%d", i), Value: heavy{make(blob, 64<<10), mib}}); err != nil {
			t.Fatal(err)
		}
	}
	g.Stop()
	for limit, want := range map[int64]int64{
		10 * mib:  20 * mib,   // counted while loading
		512 << 10: 1280 << 10, // the files alone are too large
	} {
		_, err := open(store.Options{LoadLimit: limit})
		short, ok := errors.AsType[*store.MemoryError](err)
		if !ok || short.Limit != limit || short.Needs < want || short.Needs > want+want/4 {
			t.Errorf("limit %d: %v, want a need of %d", limit, err, want)
		}
	}
	if s, err = open(store.Options{LoadLimit: 30 * mib, Quota: 16 * mib}); err != nil {
		t.Fatalf("with enough memory: %v", err)
	}
	if got := s.Stats(); got.Memory < 20*mib || got.Records != 20 {
		t.Errorf("loaded %+v", got)
	}
}
