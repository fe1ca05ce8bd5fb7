package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/storetest"
)

// A pastStore is a running store with a directory, for tests of its history.
type pastStore struct {
	*store.Store
	stop func()
}

// openPastStore runs a store on dir until stop or the end of the test.
func openPastStore(t *testing.T, dir string, opts Options) *pastStore {
	t.Helper()
	opts.Log = quiet.Log
	b, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), b, store.Options{Decode: storetest.Decode, Restate: storetest.Restate, History: 16})
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(context.Background(), 0)
	g.Go(func(ctx context.Context) {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stopped := false
	stop := func() {
		if !stopped {
			stopped = true
			g.Stop()
		}
	}
	t.Cleanup(stop)
	return &pastStore{s, stop}
}

// put writes a text, or deletes the key if it is empty, and returns the revision.
func (s *pastStore) put(t *testing.T, key, text string, by store.Author) store.Revision {
	t.Helper()
	w := store.Write{Key: key, Value: &storetest.Text{Text: text}, Delete: text == "", Author: by}
	if rec, err := s.Get(key); err == nil {
		w.Expect = rec.Revision
	}
	rec, err := s.Commit(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	return rec.Revision
}

// past returns the history.
func (s *pastStore) past(t *testing.T) store.Past {
	t.Helper()
	p, err := s.Past()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func everyKey([]byte) bool { return true }

func keyIs(key string) func([]byte) bool { return func(k []byte) bool { return string(k) == key } }

// stateAt returns the records at a revision by key.
func stateAt(t *testing.T, p store.Past, at store.Revision) (map[string]string, error) {
	t.Helper()
	got, last := map[string]string{}, ""
	err := p.State(t.Context(), at, everyKey, func(e store.Entry) error {
		if e.Key <= last {
			t.Errorf("%s comes after %s", e.Key, last)
		}
		last = e.Key
		got[e.Key] = string(e.Data)
		return nil
	})
	return got, err
}

// writesOf returns the writes that the history has.
func writesOf(t *testing.T, p store.Past, q store.PastQuery) (out []string) {
	t.Helper()
	if q.Match == nil {
		q.Match = everyKey
	}
	if q.Limit == 0 {
		q.Limit = 1 << 20
	}
	_, err := p.Writes(t.Context(), q, func(w store.PastWrite) error {
		out = append(out, shown(w.Revision, w.Key, string(w.Before.Data), string(w.Data), w.Author.User))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func shown(r store.Revision, key, before, after, user string) string {
	return fmt.Sprintf("%d %s %q->%q by %s", r, key, before, after, user)
}

// TestPastOfRandomWrites (store-I13) writes at random through folds, restarts and times without history; for each
// revision the state at it is the one that was, and the writes are the ones of the test.
func TestPastOfRandomWrites(t *testing.T) {
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(1, 2))
	with := Options{Segment: 4 << 10, History: History{Keep: time.Hour}}
	s := openPastStore(t, dir, Options{Segment: 4 << 10})
	live := map[string]string{}
	states := map[store.Revision]map[string]string{}
	var writes []string
	for i := range 1500 {
		if i == 100 || i > 100 && random.IntN(300) == 0 {
			s.stop()
			s = openPastStore(t, dir, with)
		}
		key := fmt.Sprintf("pods/%d/%d", random.IntN(3), random.IntN(8))
		text := strings.Repeat("x", random.IntN(200)) + fmt.Sprint(i)
		if live[key] != "" && random.IntN(5) == 0 {
			text = ""
		}
		if live[key] == "" && text == "" {
			continue
		}
		by := store.Author{User: fmt.Sprint("user-", random.IntN(5)), Agent: "test"}
		r := s.put(t, key, text, by)
		if i >= 100 {
			writes = append(writes, shown(r, key, live[key], text, by.User))
		}
		if live[key] = text; text == "" {
			delete(live, key)
		}
		if i >= 99 {
			states[r] = maps.Clone(live)
		}
	}
	if n := len(kept(t, s.past(t))); n < 5 {
		t.Fatalf("there are %d generations, want more for this test", n)
	}
	p := s.past(t)
	span, err := p.Span(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first := slices.Min(slices.Collect(maps.Keys(states)))
	if span.From > first || span.Since.IsZero() {
		t.Fatalf("the history begins at %+v, want at or before %d", span, first)
	}
	for r, want := range states {
		if random.IntN(20) > 0 {
			continue
		}
		got, err := stateAt(t, p, r)
		if err != nil || !maps.Equal(got, want) {
			t.Fatalf("at %d: %v, %v\nwant %v", r, got, err, want)
		}
	}
	if got := writesOf(t, p, store.PastQuery{After: first, To: s.Revision()}); !slices.Equal(got, writes) {
		t.Fatalf("%d writes, want %d", len(got), len(writes))
	}
	middle := len(writes) / 2
	var from store.Revision
	_, _ = fmt.Sscan(writes[middle-1], &from)
	got := writesOf(t, p, store.PastQuery{After: from, To: s.Revision(), Limit: 10})
	if want := writes[len(writes)-10:]; !slices.Equal(got, want) {
		t.Errorf("the newest are %q, want %q", got, want)
	}
	if got := writesOf(t, p, store.PastQuery{After: from, To: s.Revision()}); !slices.Equal(got, writes[middle:]) {
		t.Errorf("after %d there are %d writes, want %d", from, len(got), len(writes)-middle)
	}
	key := strings.Fields(writes[0])[1]
	var own []string
	for _, w := range writes {
		if strings.Fields(w)[1] == key {
			own = append(own, w)
		}
	}
	if got := writesOf(t, p, store.PastQuery{After: first, To: s.Revision(), Match: keyIs(key)}); !slices.Equal(got, own) {
		t.Errorf("writes of %s: %q, want %q", key, got, own)
	}

	// The store loads without history, which is then gone.
	now := maps.Clone(live)
	s.stop()
	s = openPastStore(t, dir, Options{Segment: 4 << 10})
	if _, err := s.Past(); !errors.Is(err, store.ErrNoHistory) {
		t.Errorf("without history: %v", err)
	}
	for key, text := range now {
		if rec, err := s.Get(key); err != nil || rec.Value.(*storetest.Text).Text != text {
			t.Errorf("%s without history: %v %v, want %q", key, rec, err, text)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, historyDir)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the history is still there: %v", err)
	}
}

// TestRevisionOfATime finds the newest revision at a time.
func TestRevisionOfATime(t *testing.T) {
	dir := t.TempDir()
	b, err := Open(dir, Options{Log: quiet.Log, History: History{Keep: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Load(t.Context(), func(store.Entry) error { return nil }); err != nil {
		t.Fatal(err)
	}
	base := time.Now()
	for i := range 10 {
		e := store.Entry{Key: "pods/a", Data: []byte("x"), Created: 1, Revision: store.Revision(i + 1), At: base.Add(time.Duration(i) * time.Second).UnixMilli()}
		if err := b.Commit(t.Context(), store.Batch{Entries: []store.Entry{e}}); err != nil {
			t.Fatal(err)
		}
		if i == 5 {
			b.(*directory).seal(t.Context())
		}
	}
	p := b.(store.Historian).Past()
	for after, want := range map[time.Duration]store.Revision{0: 1, 500 * time.Millisecond: 1, 4 * time.Second: 5, 8500 * time.Millisecond: 9, time.Hour: 10} {
		if got, err := p.RevisionAt(t.Context(), base.Add(after)); err != nil || got != want {
			t.Errorf("after %v: %d, %v, want %d", after, got, err, want)
		}
	}
	_, err = p.RevisionAt(t.Context(), base.Add(-time.Second))
	if expired, ok := errors.AsType[*store.ExpiredError](err); !ok || expired.Since.UnixMilli() != base.UnixMilli() {
		t.Errorf("before everything: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestLogWithoutHistoryIsAsBefore compares the log of a store without history with one that has no authors and times to
// write: not one byte is for the history, and not one allocation.
func TestLogWithoutHistoryIsAsBefore(t *testing.T) {
	logs := map[bool][]byte{}
	allocated := map[bool]float64{}
	for _, named := range []bool{false, true} {
		b, err := Open(t.TempDir(), Options{Log: quiet.Log})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Load(t.Context(), func(store.Entry) error { return nil }); err != nil {
			t.Fatal(err)
		}
		d := b.(*directory)
		from, r := d.end, store.Revision(0)
		entries := make([]store.Entry, 1)
		allocated[named] = testing.AllocsPerRun(100, func() {
			r++
			entries[0] = store.Entry{Key: "pods/a", Data: []byte("some text"), Created: 1, Revision: r}
			if named {
				entries[0].At, entries[0].Author = 1_800_000_000_000, store.Author{User: "user", Agent: "agent"}
			}
			if err := b.Commit(t.Context(), store.Batch{Entries: entries}); err != nil {
				t.Fatal(err)
			}
		})
		data, err := os.ReadFile(d.name)
		if err != nil {
			t.Fatal(err)
		}
		if v := d.head.version; v != plainVersion {
			t.Errorf("the log has version %d, which older programs do not read", v)
		}
		for at := from; at < d.end; { // checksums depend on the salt of the file
			n := frameSize + int64(uint32(data[at])|uint32(data[at+1])<<8)
			logs[named] = append(logs[named], data[at+frameSize:at+n]...)
			at += n
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(logs[false], logs[true]) {
		t.Error("the logs differ")
	}
	if allocated[false] != allocated[true] {
		t.Errorf("allocations: %v, and %v with authors", allocated[false], allocated[true])
	}
}

// TestPastIsReadWhileFilesMove reads the history while folds move files, old generations go and values are purged: each
// read is right, or says that the history begins later.
func TestPastIsReadWhileFilesMove(t *testing.T) {
	s := openPastStore(t, t.TempDir(), Options{Segment: 4 << 10, History: History{Keep: time.Hour, Max: 40 << 10}})
	p := s.past(t)
	var mu sync.Mutex
	newest, at := "", store.Revision(0) // of pods/a
	g := run.NewGroup(t.Context(), 0)
	reads := 0
	g.Go(func(ctx context.Context) {
		for ctx.Err() == nil {
			mu.Lock()
			want, r := newest, at
			mu.Unlock()
			if r == 0 {
				continue
			}
			got := ""
			err := p.State(ctx, r, keyIs("pods/a"), func(e store.Entry) error { got = string(e.Data); return nil })
			if _, expired := errors.AsType[*store.ExpiredError](err); expired || ctx.Err() != nil {
				continue
			}
			if err != nil || got != want {
				t.Errorf("at %d: %q, %v, want %q", r, got, err, want)
				return
			}
			if _, err := p.Writes(ctx, store.PastQuery{Match: everyKey, To: r, Limit: 100}, func(store.PastWrite) error { return nil }); err != nil && ctx.Err() == nil {
				t.Errorf("writes up to %d: %v", r, err)
				return
			}
			reads++
		}
	})
	for i := range 300 {
		text := strings.Repeat("x", 100) + fmt.Sprint(i)
		r := s.put(t, "pods/a", text, store.Author{User: "u"})
		s.put(t, "secrets/b", text, store.Author{User: "u"})
		mu.Lock()
		newest, at = text, r
		mu.Unlock()
		if i%100 == 99 {
			if err := s.Purge(t.Context(), keyIs("secrets/b")); err != nil {
				t.Fatal(err)
			}
		}
	}
	g.Stop()
	if reads == 0 {
		t.Error("nothing was read")
	}
}

// TestHistoryBeginsWithItsFirstWrite turns history on for a store with writes, which have neither times nor authors.
func TestHistoryBeginsWithItsFirstWrite(t *testing.T) {
	dir, author := t.TempDir(), store.Author{User: "u"}
	off := pastOptions
	off.History = History{}
	s := openPastStore(t, dir, off)
	s.put(t, "pods/a", "first", author)
	old := s.put(t, "pods/a", "second", author)
	s.stop()
	s = openPastStore(t, dir, pastOptions)
	now := s.put(t, "pods/a", "third", author)
	got := writesOf(t, s.past(t), store.PastQuery{Match: everyKey, To: now, Limit: 10})
	if want := []string{shown(now, "pods/a", "second", "third", "u")}; !slices.Equal(got, want) {
		t.Errorf("the history has %v, want %v", got, want)
	}
	if state, err := stateAt(t, s.past(t), now-1); err != nil || state["pods/a"] != "second" {
		t.Errorf("before the first write with history: %v, %v", state, err)
	}
	if state, err := stateAt(t, s.past(t), old-1); !errors.Is(err, store.ErrExpired) {
		t.Errorf("before the beginning: %v, %v, want that it is expired", state, err)
	}
}
