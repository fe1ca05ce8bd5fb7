package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/store"
)

// Model plays random operations, clean stops and crashes on stores over the media
// of make, and compares everything that can be read with a plain map and a plain
// list of events.
func Model(t *testing.T, make func(t *testing.T) Medium) {
	rapid.Check(t, func(rt *rapid.T) {
		medium := make(t)
		b, err := medium()
		if err != nil {
			rt.Fatalf("%v", err)
		}
		durable := b != nil
		if durable {
			if err := b.Close(); err != nil {
				rt.Fatalf("%v", err)
			}
		}
		m := &model{medium: medium, live: map[string]store.Record{}}
		m.open(rt)
		defer func() { _ = m.s.stop() }() // a failure was reported before
		actions := map[string]func(*rapid.T){
			"put":    m.put,
			"put 2":  m.put, // more often
			"delete": m.remove,
			"stale":  m.stale,
			"list":   m.list,
			"watch":  m.watch,
		}
		if durable {
			actions["stop"] = m.stop
			actions["crash"] = m.crash
		}
		rt.Repeat(actions)
		if err := m.s.stop(); err != nil {
			rt.Fatalf("stopping: %v", err)
		}
	})
}

const modelHistory = 16

// model is the expected state of a store.
type model struct {
	medium Medium
	s      *subject

	live   map[string]store.Record
	saved  map[string]store.Record // what a crash leaves
	events []store.Event           // since the store was opened
	base   store.Revision          // at which it was opened
	last   store.Revision
}

func (m *model) open(t *rapid.T) {
	m.s = start(t, m.medium, store.Options{History: modelHistory, Keep: time.Hour})
	if r := m.s.Revision(); r < m.last {
		t.Fatalf("opened at revision %d, was at %d (I1)", r, m.last)
	}
	m.base = m.s.Revision()
	m.last, m.events = m.base, nil
	if m.saved == nil {
		m.saved = map[string]store.Record{}
	}
}

// stop is a clean stop and a start: everything is there, and nothing is expired.
func (m *model) stop(t *rapid.T) {
	was := m.last
	if err := m.s.stop(); err != nil {
		t.Fatalf("stopping: %v", err)
	}
	m.saved = copyOf(m.live)
	m.open(t)
	if m.base != was {
		t.Fatalf("a clean stop went from revision %d to %d", was, m.base)
	}
	m.compare(t)
}

func (m *model) crash(t *rapid.T) {
	m.s.crash()
	m.live = copyOf(m.saved)
	m.open(t)
	m.compare(t)
}

func copyOf(m map[string]store.Record) map[string]store.Record {
	out := map[string]store.Record{}
	maps.Copy(out, m)
	return out
}

var (
	anyKey  = rapid.SampledFrom([]string{"pods/x/a", "pods/x/b", "pods/xx/a", "pods/y/a", "nodes/a", "nodes/b"})
	anyText = rapid.SampledFrom([]string{"1", "2 #blue", "3 #red", "4 #blue #red", ""})
)

func (m *model) put(t *rapid.T) {
	key := anyKey.Draw(t, "key")
	m.write(t, store.Write{
		Key: key, Value: &Text{Text: anyText.Draw(t, "text")},
		Expect: m.live[key].Revision, Volatile: rapid.Bool().Draw(t, "volatile"),
	})
}

func (m *model) remove(t *rapid.T) {
	key := anyKey.Draw(t, "key")
	w := store.Write{
		Key: key, Value: &Text{Text: "gone"}, Delete: true,
		Expect: m.live[key].Revision, Volatile: rapid.Bool().Draw(t, "volatile"),
	}
	if _, ok := m.live[key]; ok {
		m.write(t, w)
	} else if _, err := m.s.Commit(context.Background(), w); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("deleting nothing: %v", err)
	}
}

func (m *model) write(t *rapid.T, w store.Write) {
	r, err := m.s.Commit(context.Background(), w)
	if err != nil {
		t.Fatalf("Commit(%+v): %v", w, err)
	}
	if r.Revision != m.last+1 {
		t.Fatalf("the write after revision %d has %d", m.last, r.Revision)
	}
	prev := m.live[w.Key]
	want := prev.Created
	if prev.Key == "" {
		want = r.Revision
	}
	if r.Created != want {
		t.Fatalf("%s was created at %d, want %d", w.Key, r.Created, want)
	}
	m.last = r.Revision
	m.events = append(m.events, store.Event{Record: r, Prev: prev, Deleted: w.Delete})
	if w.Delete {
		delete(m.live, w.Key)
	} else {
		m.live[w.Key] = r
	}
	if !w.Volatile {
		m.saved = copyOf(m.live) // it takes all volatile writes along
	}
}

func (m *model) stale(t *rapid.T) {
	key := anyKey.Draw(t, "key")
	w := store.Write{Key: key, Value: &Text{}, Expect: store.Revision(rapid.Uint64Range(0, uint64(m.last)+2).Draw(t, "expect")), Delete: rapid.Bool().Draw(t, "delete")}
	if w.Expect == m.live[key].Revision {
		return
	}
	if _, err := m.s.Commit(context.Background(), w); !errors.Is(err, store.ErrConflict) {
		t.Fatalf("a stale write: %v, want a conflict", err)
	}
}

// floor is the oldest revision from which the store must still serve a resource.
func (m *model) floor(resource string) store.Revision {
	floor, n := m.base, 0
	for _, e := range slices.Backward(m.events) {
		if strings.HasPrefix(e.Key, resource+"/") {
			if n++; n > modelHistory {
				return e.Revision
			}
		}
	}
	return floor
}

// at returns the live records at a revision since the store was opened.
func (m *model) at(r store.Revision) map[string]store.Record {
	live := copyOf(m.live)
	for _, e := range slices.Backward(m.events) {
		if e.Revision <= r {
			break
		}
		if delete(live, e.Key); e.Prev.Key != "" {
			live[e.Key] = e.Prev
		}
	}
	return live
}

// query draws a query and its resource, and returns the test that a record must pass for it.
func query(t *rapid.T) (q store.Query, resource string, covers func(store.Record) bool) {
	q.Prefix = rapid.SampledFrom([]string{"pods/", "pods/x/", "pods/x/a", "nodes/", "nodes/b", "none/"}).Draw(t, "prefix")
	q.Term = rapid.SampledFrom([]string{"", "#blue", "#red", "#none"}).Draw(t, "term")
	resource, _, _ = strings.Cut(q.Prefix, "/")
	return q, resource, func(r store.Record) bool {
		if r.Key == "" || r.Key != q.Prefix && !(strings.HasSuffix(q.Prefix, "/") && strings.HasPrefix(r.Key, q.Prefix)) {
			return false
		}
		return q.Term == "" || slices.Contains(strings.Fields(r.Value.(*Text).Text), q.Term)
	}
}

// revision draws a revision, mostly a recent one.
func (m *model) revision(t *rapid.T) store.Revision {
	back := rapid.Uint64Range(0, 3*modelHistory).Draw(t, "back")
	if back > uint64(m.last) {
		return 0
	}
	return m.last - store.Revision(back)
}

func (m *model) list(t *rapid.T) {
	q, resource, covers := query(t)
	p := store.Page{Limit: rapid.IntRange(0, 3).Draw(t, "limit"), At: m.revision(t)}
	if rapid.Bool().Draw(t, "after") {
		p.After = anyKey.Draw(t, "after key")
	}
	got, err := m.s.List(q, p)
	if p.At != 0 && p.At < m.floor(resource) {
		if !errors.Is(err, store.ErrExpired) {
			t.Fatalf("List(%+v, %+v) = %v, want ErrExpired", q, p, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("List(%+v, %+v): %v", q, p, err)
	}
	at := p.At
	if at == 0 {
		at = m.last
	}
	var want []store.Record
	for _, r := range m.at(at) {
		if covers(r) && r.Key > p.After {
			want = append(want, r)
		}
	}
	slices.SortFunc(want, func(a, b store.Record) int { return strings.Compare(a.Key, b.Key) })
	left := 0
	if p.Limit > 0 && len(want) > p.Limit {
		left = len(want) - p.Limit
		want = want[:p.Limit]
	}
	if !sameRecords(got.Records, want) || got.Revision != at || got.Left != left || got.More != (left > 0) {
		t.Fatalf("List(%+v, %+v) = %q at %d, %d left; want %q at %d, %d left", q, p, lines(got.Records), got.Revision, got.Left, lines(want), at, left)
	}
}

func (m *model) watch(t *rapid.T) {
	q, resource, covers := query(t)
	after := m.revision(t)
	if after < m.floor(resource) {
		if err := m.s.firstError(q, after); !errors.Is(err, store.ErrExpired) {
			t.Fatalf("Watch(%+v, %d) = %v, want ErrExpired", q, after, err)
		}
		return
	}
	var want []store.Event
	for _, e := range m.events {
		if e.Revision > after && (covers(e.Record) || covers(e.Prev)) {
			want = append(want, e)
		}
	}
	got := m.s.events(t, q, after)
	if !slices.EqualFunc(got, want, func(a, b store.Event) bool {
		return a.Deleted == b.Deleted && sameRecord(a.Record, b.Record) && sameRecord(a.Prev, b.Prev)
	}) {
		t.Fatalf("Watch(%+v, %d) yields %q, want %q", q, after, eventLines(got), eventLines(want))
	}
}

// compare reads everything.
func (m *model) compare(t *rapid.T) {
	for _, resource := range []string{"pods/", "nodes/"} {
		l, err := m.s.List(store.Query{Prefix: resource}, store.Page{})
		if err != nil {
			t.Fatalf("%v", err)
		}
		n := 0
		for _, r := range l.Records {
			if !sameRecord(r, m.live[r.Key]) {
				t.Fatalf("%s is %s, want %s", r.Key, describe(r), describe(m.live[r.Key]))
			}
			m.live[r.Key] = r // the value was made again
		}
		for k := range m.live {
			if strings.HasPrefix(k, resource) {
				n++
			}
		}
		if n != len(l.Records) {
			t.Fatalf("%d %s, want %d", len(l.Records), resource, n)
		}
	}
	m.saved = copyOf(m.live)
}

func sameRecords(a, b []store.Record) bool { return slices.EqualFunc(a, b, sameRecord) }

func sameRecord(a, b store.Record) bool {
	if (a.Key == "") != (b.Key == "") {
		return false
	}
	return a.Key == "" || describe(a) == describe(b)
}

func describe(r store.Record) string {
	if r.Key == "" {
		return "nothing"
	}
	return fmt.Sprintf("%s=%s created %d revision %d", r.Key, r.Value.(*Text).Text, r.Created, r.Revision)
}
