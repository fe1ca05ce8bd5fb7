package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

// Claims finds the claims of a [*Text], as store.Options.Claims wants: its words that begin with an exclamation mark.
func Claims(_ string, v store.Value) []string {
	var claims []string
	for w := range strings.FieldsSeq(v.(*Text).Text) {
		if strings.HasPrefix(w, "!") {
			claims = append(claims, w)
		}
	}
	return claims
}

// try makes a write with the present expectation, and returns its error.
func (s *subject) try(w store.Write) error {
	w.Expect = s.revisionOf(w.Key)
	_, err := s.Commit(context.Background(), w)
	return err
}

// later makes a write in a goroutine and returns a channel with its error.
func (s *subject) later(g *run.Group, w store.Write) <-chan error {
	result := make(chan error, 1)
	w.Expect = s.revisionOf(w.Key)
	g.Go(func(ctx context.Context) {
		_, err := s.Commit(ctx, w)
		result <- err
	})
	return result
}

// unchanged runs a write that must fail with an error and change nothing.
func (s *subject) unchanged(t *testing.T, w store.Write, want error) {
	t.Helper()
	before := s.Revision()
	if err := s.try(w); !errors.Is(err, want) {
		t.Errorf("writing %s: %v, want %q", w.Key, err, want)
	}
	if after := s.Revision(); after != before {
		t.Errorf("a refused write went from revision %d to %d", before, after)
	}
}

func guards(t *testing.T, m Medium) {
	s := open(t, m, store.Options{})
	ns := s.put(t, "namespaces/a", "1")
	in := func(revision store.Revision, more ...store.Guard) store.Write {
		return store.Write{
			Key: "pods/a/x", Value: &Text{Text: "x"},
			Guards: append([]store.Guard{{Key: "namespaces/a", Revision: revision}}, more...),
		}
	}
	if err := s.try(in(ns.Revision, store.Guard{Key: "namespaces/none"})); err != nil {
		t.Fatalf("with guards that hold: %v", err)
	}
	s.unchanged(t, in(ns.Revision-1), store.ErrGuard)
	s.unchanged(t, in(ns.Revision, store.Guard{Key: "namespaces/none", Revision: 1}), store.ErrGuard)
	s.unchanged(t, in(0), store.ErrGuard)
	next := s.put(t, "namespaces/a", "2")
	s.unchanged(t, in(ns.Revision), store.ErrGuard)
	if err := s.try(in(next.Revision)); err != nil {
		t.Errorf("with the guard of now: %v", err)
	}
	s.remove(t, "namespaces/a")
	s.unchanged(t, in(next.Revision), store.ErrGuard)
	var e *store.GuardError
	if err := s.try(in(next.Revision)); !errors.As(err, &e) || e.Key != "namespaces/a" || e.Revision != next.Revision || e.Have != 0 {
		t.Errorf("the error is %#v", e)
	}
}

// guardsWait: a guard on a key that is being written is decided by the outcome of that write, which can then be read.
func guardsWait(t *testing.T, m Medium) {
	s := open(t, m, store.Options{})
	ns := s.put(t, "namespaces/a", "1")
	release := s.tap.hold()
	g := run.NewGroup(t.Context(), 0)
	g.Go(func(context.Context) { s.remove(t, "namespaces/a") })
	<-s.tap.atGate
	result := s.later(g, store.Write{Key: "pods/a/x", Value: &Text{Text: "x"}, Guards: []store.Guard{{Key: "namespaces/a", Revision: ns.Revision}}})
	release()
	g.Wait()
	if err := <-result; !errors.Is(err, store.ErrGuard) {
		t.Errorf("a creation in a namespace that was being deleted: %v", err)
	}
}

func claims(t *testing.T, m Medium) {
	s := open(t, m, store.Options{})
	s.put(t, "services/a", "!1 !2")
	w := func(key, text string) store.Write { return store.Write{Key: key, Value: &Text{Text: text}} }
	s.unchanged(t, w("services/b", "!3 !2"), store.ErrClaimed)
	var e *store.ClaimError
	if err := s.try(w("services/b", "!3 !2")); !errors.As(err, &e) || e.Claim != "!2" || e.Holder != "services/a" {
		t.Errorf("the error is %v", err)
	}
	s.put(t, "services/b", "!3") // the refused write took nothing
	s.put(t, "services/a", "!2 more")
	s.put(t, "services/b", "!3 !1") // given up by the update
	s.unchanged(t, w("services/a", "!2 !1"), store.ErrClaimed)
	s.remove(t, "services/b")
	s.put(t, "services/a", "!1 !2 !3")
	s.remove(t, "services/a")
	s.put(t, "addresses/x", "!1 !2 !3") // of whatever resource
	s.unchanged(t, w("services/a", "!1"), store.ErrClaimed)
}

// claimsWait: a claim whose holder is being written is decided by the outcome of that write.
func claimsWait(t *testing.T, m Medium) {
	s := open(t, m, store.Options{})
	s.put(t, "services/a", "!1")
	release := s.tap.hold()
	g := run.NewGroup(t.Context(), 0)
	g.Go(func(context.Context) { s.remove(t, "services/a") })
	<-s.tap.atGate
	freed := s.later(g, store.Write{Key: "services/b", Value: &Text{Text: "!1"}})
	taken := s.later(g, store.Write{Key: "services/c", Value: &Text{Text: "!2"}})
	release()
	g.Wait()
	if err := <-freed; err != nil {
		t.Errorf("a claim that was being given up: %v", err)
	}
	if err := <-taken; err != nil {
		t.Errorf("another claim: %v", err)
	}
}

// claimsFail: a write that fails gives back its claims, and leaves those of the record before.
func claimsFail(t *testing.T, m Medium) {
	s := open(t, m, store.Options{})
	s.put(t, "services/a", "!1")
	s.tap.setFull(true)
	for range 2 {
		if err := s.try(store.Write{Key: "services/b", Value: &Text{Text: "!2"}}); !errors.Is(err, store.ErrFull) {
			t.Fatalf("on a full disk: %v", err)
		}
		if err := s.try(store.Write{Key: "services/a", Value: &Text{Text: "!3 and more"}}); !errors.Is(err, store.ErrFull) {
			t.Fatalf("on a full disk: %v", err)
		}
	}
	s.tap.setFull(false)
	s.put(t, "services/d", "") // finds that there is space
	s.put(t, "services/c", "!2 !3")
	s.unchanged(t, store.Write{Key: "services/c", Value: &Text{Text: "!2 !3 !1"}}, store.ErrClaimed)
}

// claimsLoad: claims are found again in the stored records, even if two have the same one.
func claimsLoad(t *testing.T, m Medium) {
	s := start(t, m, store.Options{})
	s.put(t, "services/a", "!1")
	s.put(t, "services/c", "!2")
	s.put(t, "services/d", "x")
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	// Before, other words were claims.
	s = start(t, m, store.Options{Claims: func(string, store.Value) []string { return nil }})
	s.put(t, "services/b", "!1")
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	s = open(t, m, store.Options{})
	s.unchanged(t, store.Write{Key: "services/d", Value: &Text{Text: "!2"}}, store.ErrClaimed)
	s.unchanged(t, store.Write{Key: "services/d", Value: &Text{Text: "!1"}}, store.ErrClaimed)
	s.put(t, "services/a", "!1 still") // both go on
	s.put(t, "services/b", "!1 still")
	s.remove(t, "services/a")
	s.unchanged(t, store.Write{Key: "services/d", Value: &Text{Text: "!1"}}, store.ErrClaimed)
	s.put(t, "services/b", "no more")
	s.put(t, "services/d", "!1")
}

func charges(t *testing.T, m Medium) {
	s := open(t, m, store.Options{})
	n := 0
	w := func(account, by string, since store.Revision) store.Write {
		n++
		return store.Write{Key: fmt.Sprintf("pods/a/%d", n), Value: &Text{Text: "x"}, Charge: &store.Charge{Account: account, By: by, Since: since}}
	}
	must := func(w store.Write) {
		t.Helper()
		if err := s.try(w); err != nil {
			t.Fatal(err)
		}
	}
	begin := s.put(t, "pods/a/begin", "x").Revision
	must(w("x", "A", begin))
	first := s.Revision()
	must(w("x", "A", begin)) // its own are in its memory
	last := s.Revision()
	s.unchanged(t, w("x", "B", begin), store.ErrCharged)
	s.unchanged(t, w("x", "B", first), store.ErrCharged)
	var e *store.ChargeError
	if err := s.try(w("x", "B", begin)); !errors.As(err, &e) || e.Seen != last || e.Account != "x" {
		t.Errorf("the error is %v", err)
	}
	must(w("y", "B", begin)) // another account
	must(w("x", "B", last))
	s.unchanged(t, w("x", "A", last), store.ErrCharged)
	s.unchanged(t, w("x", "C", last), store.ErrCharged)
	must(w("x", "B", last)) // A has not charged since
	must(w("x", "A", s.Revision()))
}

// chargesFail: after a charge that failed, the caller is sent to a revision that can be read.
func chargesFail(t *testing.T, m Medium) {
	s := open(t, m, store.Options{})
	begin := s.put(t, "pods/a", "x").Revision
	charge := func(key, by string, since store.Revision) error {
		return s.try(store.Write{Key: key, Value: &Text{Text: "x"}, Charge: &store.Charge{Account: "x", By: by, Since: since}})
	}
	s.tap.setFull(true)
	if err := charge("pods/b", "A", begin); !errors.Is(err, store.ErrFull) {
		t.Fatalf("on a full disk: %v", err)
	}
	s.tap.setFull(false)
	if err := charge("pods/c", "B", begin); err != nil {
		t.Errorf("after a charge that failed: %v", err)
	}
}

// chargesForgotten: callers that have counted an account long ago have to count again if it may have been charged
// meanwhile.
func chargesForgotten(t *testing.T, m Medium) {
	s := open(t, m, store.Options{})
	begin := s.put(t, "pods/a", "x").Revision
	g := run.NewGroup(t.Context(), 0)
	const accounts, workers = 40_000, 16
	for w := range workers {
		g.Go(func(ctx context.Context) {
			for i := w; i < accounts; i += workers {
				err := store.ErrCharged
				for errors.Is(err, store.ErrCharged) { // the others make the store forget accounts meanwhile
					_, err = s.Commit(ctx, store.Write{
						Key: fmt.Sprint("pods/", i), Value: &Text{Text: "x"}, Volatile: true,
						Charge: &store.Charge{Account: fmt.Sprint(i), By: "A", Since: s.Revision()},
					})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	g.Wait()
	for _, account := range []int{0, accounts - 1} {
		w := store.Write{Key: fmt.Sprint("more/", account), Value: &Text{Text: "x"}, Charge: &store.Charge{Account: fmt.Sprint(account), By: "B", Since: begin}}
		s.unchanged(t, w, store.ErrCharged)
		var e *store.ChargeError
		if err := s.try(w); errors.As(err, &e) {
			w.Charge.Since = e.Seen
		}
		if err := s.try(w); err != nil {
			t.Errorf("with what the error said: %v", err)
		}
	}
}

// changes: the events of a watch, without waiting.
func changes(t *testing.T, m Medium) {
	s := open(t, m, store.Options{History: 4})
	if events, now, err := s.Changes(store.Query{Prefix: "pods/a/"}, 0); len(events) != 0 || now != 0 || err != nil {
		t.Errorf("of an empty store: %v, %d, %v", events, now, err)
	}
	first := s.put(t, "pods/a/x", "1").Revision
	s.put(t, "pods/b/x", "1")
	s.put(t, "pods/a/x", "2")
	s.remove(t, "pods/a/x")
	last := s.put(t, "nodes/a", "1").Revision
	events, now, err := s.Changes(store.Query{Prefix: "pods/a/"}, first)
	if err != nil || now != last {
		t.Fatalf("Changes = %d, %v, want %d", now, err, last)
	}
	equal(t, "changes", eventLines(events), []string{"~pods/a/x=2", "-pods/a/x=last words"})
	for range 4 {
		s.put(t, "pods/c/x", "1")
	}
	if _, _, err := s.Changes(store.Query{Prefix: "pods/a/"}, first); !errors.Is(err, store.ErrExpired) {
		t.Errorf("of a revision that is forgotten: %v", err)
	}
	if _, _, err := s.Changes(store.Query{Prefix: "pods/a/"}, s.Revision()+1); !errors.Is(err, store.ErrFuture) {
		t.Errorf("of a revision to come: %v", err)
	}
}

// A conditional is a write that succeeded, with its conditions.
type conditional struct {
	store.Write
	revision store.Revision
}

// Conditions runs clients of two servers against one store at the same time, and checks by the history that each write
// that succeeded had the conditions that it rested on, and that no two records had a claim at the same time.
func Conditions(t *testing.T, make func(t *testing.T) Medium) {
	for range 4 {
		if faults := race(t, make(t), store.Options{}, func(*store.Write) {}); len(faults) > 0 {
			t.Fatalf("%d faults, such as\n%s", len(faults), strings.Join(faults[:min(len(faults), 10)], "\n"))
		}
	}
}

// ConditionMutants checks that [Conditions] finds each of its faults within some runs.
func ConditionMutants(t *testing.T, make func(t *testing.T) Medium) {
	mutants := []struct {
		name  string
		opts  store.Options
		spoil func(w *store.Write)
	}{
		{"no guards", store.Options{}, func(w *store.Write) { w.Guards = nil }},
		{"no claims", store.Options{Claims: func(string, store.Value) []string { return nil }}, func(*store.Write) {}},
		{"no charges", store.Options{}, func(w *store.Write) { w.Charge = nil }},
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			for range 20 {
				if len(race(t, make(t), m.opts, m.spoil)) > 0 {
					return
				}
			}
			t.Error("no fault was found")
		})
	}
}

// race is one run of [Conditions]. It returns the faults that it found. Spoil changes the writes as they are made, and
// not as they are checked.
func race(t *testing.T, m Medium, opts store.Options, spoil func(w *store.Write)) []string {
	const clients, each = 8, 80
	opts.History, opts.Keep = 1<<16, time.Hour
	s := start(t, m, opts)
	base := s.Revision()
	var mu sync.Mutex
	var made []conditional
	g := run.NewGroup(t.Context(), 0)
	for c := range clients {
		g.Go(func(ctx context.Context) {
			for i := range each {
				w := s.anyWrite(c, i)
				spoiled := w
				spoil(&spoiled)
				rec, err := s.Commit(ctx, spoiled)
				switch {
				case err == nil:
					mu.Lock()
					made = append(made, conditional{w, rec.Revision})
					mu.Unlock()
				case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNotFound):
				case errors.Is(err, store.ErrGuard), errors.Is(err, store.ErrClaimed), errors.Is(err, store.ErrCharged):
				default:
					t.Error(err)
				}
			}
		})
	}
	g.Wait()
	var events []store.Event
	for _, prefix := range []string{"namespaces/", "services/", "pods/"} {
		found, _, err := s.Changes(store.Query{Prefix: prefix}, base)
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, found...)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(events, func(a, b store.Event) int { return cmp.Compare(a.Revision, b.Revision) })
	slices.SortFunc(made, func(a, b conditional) int { return cmp.Compare(a.revision, b.revision) })
	return broke(events, made)
}

// anyWrite returns a random write of a client, with the conditions that hold when it is made.
func (s *subject) anyWrite(client, i int) store.Write {
	namespace := fmt.Sprintf("namespaces/%d", rand.IntN(2))
	switch rand.IntN(4) {
	case 0:
		w := store.Write{Key: namespace, Value: &Text{Text: "x"}, Expect: s.revisionOf(namespace)}
		w.Delete = w.Expect > 0 && rand.IntN(3) == 0
		return w
	case 1:
		key := fmt.Sprintf("services/%d", rand.IntN(6))
		w := store.Write{Key: key, Value: &Text{Text: fmt.Sprintf("!%d !%d", rand.IntN(5), 5+rand.IntN(5))}, Expect: s.revisionOf(key)}
		w.Delete = w.Expect > 0 && rand.IntN(2) == 0
		return w
	default:
		return store.Write{
			Key: fmt.Sprintf("pods/%d/%d", client, i), Value: &Text{Text: "x"}, Volatile: rand.IntN(4) == 0,
			Guards: []store.Guard{{Key: namespace, Revision: s.revisionOf(namespace)}},
			Charge: &store.Charge{Account: namespace, By: fmt.Sprintf("server %d", client%2), Since: s.Revision()},
		}
	}
}

// broke replays events and returns the writes whose conditions did not hold, and the claims that two keys had.
func broke(events []store.Event, made []conditional) (faults []string) {
	live := map[string]store.Record{}
	holder := map[string]string{}
	lastCharge := map[[2]string]store.Revision{} // of an account by a server
	next := 0
	for _, e := range events {
		if next < len(made) && made[next].revision == e.Revision {
			w := made[next]
			next++
			for _, g := range w.Guards {
				if have := live[g.Key].Revision; have != g.Revision {
					faults = append(faults, fmt.Sprintf("the write of %s at revision %d rested on revision %d of %s, which was %d", w.Key, w.revision, g.Revision, g.Key, have))
				}
			}
			if c := w.Charge; c != nil {
				for by, last := range lastCharge {
					if by[0] == c.Account && by[1] != c.By && last > c.Since {
						faults = append(faults, fmt.Sprintf("%s charged %s at revision %d since revision %d, and %s at %d", c.By, c.Account, w.revision, c.Since, by[1], last))
					}
				}
				lastCharge[[2]string{c.Account, c.By}] = w.revision
			}
		}
		for _, c := range claimsOf(live[e.Key]) {
			if holder[c] == e.Key {
				delete(holder, c)
			}
		}
		if e.Deleted {
			delete(live, e.Key)
			continue
		}
		live[e.Key] = e.Record
		for _, c := range claimsOf(e.Record) {
			if other, held := holder[c]; held {
				faults = append(faults, fmt.Sprintf("%s took %s of %s at revision %d", e.Key, c, other, e.Revision))
			}
			holder[c] = e.Key
		}
	}
	if next < len(made) {
		faults = append(faults, fmt.Sprintf("%d of %d writes have no event", len(made)-next, len(made)))
	}
	return faults
}

func claimsOf(r store.Record) []string {
	if r.Value == nil {
		return nil
	}
	return Claims(r.Key, r.Value)
}
