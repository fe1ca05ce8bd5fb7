package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/store"
)

// LoadRecent implements [store.Recaller], for backends that are not as well.
func (b *tap) LoadRecent(ctx context.Context, each func(store.Entry) error, recent func(store.Entry, bool) error) (store.Recalled, error) {
	if r, ok := b.Backend.(store.Recaller); ok {
		return r.LoadRecent(ctx, each, recent)
	}
	last, err := b.Load(ctx, each)
	return store.Recalled{Last: last, Durable: last, Floor: last, Floors: map[string]store.Revision{}}, err
}

// recalls checks that watches from before a restart go on, or are expired: whatever was written, and however the
// store ended.
func recalls(t *testing.T, m Medium) {
	b, err := m()
	if err != nil {
		t.Fatal(err)
	}
	_, remembers := b.(store.Recaller)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	opts := store.Options{Recall: Decode, Restate: Restate}
	resources := []string{"pods/", "secrets/", "leases/", "empty/"}
	var told []store.Event // all events of the store, as a watcher has received them
	var lost [][2]store.Revision
	for round := range uint64(6) {
		s := start(t, m, opts)
		begin := s.Revision()
		r := rand.New(rand.NewPCG(1, round))
		for n := range 60 {
			switch key := fmt.Sprintf("%sk%d", resources[r.IntN(2)], r.IntN(4)); {
			case r.IntN(4) == 0:
				s.volatile(t, fmt.Sprintf("leases/k%d", r.IntN(3)), fmt.Sprint(n))
			case r.IntN(3) == 0 && s.revisionOf(key) > 0:
				s.remove(t, key)
			default:
				s.put(t, key, fmt.Sprintf("%d.%d #%d", round, n, r.IntN(3)))
			}
		}
		durable := s.put(t, "pods/last", fmt.Sprint(round)).Revision
		s.volatile(t, "leases/k0", "unsaved")
		for _, q := range resources {
			told = append(told, s.events(t, store.Query{Prefix: q}, begin)...)
		}
		slices.SortFunc(told, func(a, b store.Event) int { return int(a.Revision) - int(b.Revision) })
		seen := s.Revision()
		if crash := round%2 == 0; crash {
			s.crash()
		} else if err := s.stop(); err != nil {
			t.Fatal(err)
		} else {
			durable = seen
		}
		s = start(t, m, opts)
		if crashed := s.Revision() > seen; crashed {
			told = slices.DeleteFunc(told, func(e store.Event) bool { return e.Revision > durable })
			lost = append(lost, [2]store.Revision{durable, s.Revision()})
		}
		for after := store.Revision(0); after <= s.Revision() && after < 2000; after++ {
			for _, prefix := range resources {
				goesOn(t, s, prefix, after, told, lost)
			}
		}
		for _, prefix := range resources {
			if err := s.firstError(store.Query{Prefix: prefix}, durable); remembers && durable == seen && err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("round %d: a watch of %s from the newest revision before the restart ends with %v", round, prefix, err)
			}
		}
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// goesOn checks a watch from before a restart: it yields the events after the revision, but volatile writes that
// others have replaced.
func goesOn(t *testing.T, s *subject, prefix string, after store.Revision, told []store.Event, lost [][2]store.Revision) {
	t.Helper()
	if err := s.firstError(store.Query{Prefix: prefix}, after); errors.Is(err, store.ErrExpired) {
		return
	}
	for _, l := range lost {
		if after > l[0] && after < l[1] {
			t.Errorf("a watch of %s after revision %d goes on, which a crash took away", prefix, after)
		}
	}
	got := s.events(t, store.Query{Prefix: prefix}, after)
	var want []string
	for _, e := range told {
		kept := slices.ContainsFunc(got, func(g store.Event) bool { return g.Revision == e.Revision })
		if strings.HasPrefix(e.Key, prefix) && e.Revision > after && (kept || prefix != "leases/") {
			want = append(want, bare(e))
		}
	}
	var lines []string
	for _, e := range got {
		lines = append(lines, bare(e))
	}
	if !slices.Equal(lines, want) && !(prefix == "leases/" && len(lines) == len(want)) {
		equal(t, fmt.Sprintf("a watch of %s after revision %d", prefix, after), lines, want)
	}
}

// bare is the line of an event, without the value of a deletion: a backend does not have the one that the deletion
// was written with, and the event has the value before.
func bare(e store.Event) string {
	if e.Deleted {
		return "-" + e.Key
	}
	return line(e)
}
