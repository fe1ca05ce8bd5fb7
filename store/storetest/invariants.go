package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

// Run tests stores over the backends that the media of make open. Each call of
// make gives an empty medium.
func Run(t *testing.T, make func(t *testing.T) Medium) {
	tests := []struct {
		name    string
		durable bool // needs a backend
		f       func(t *testing.T, m Medium)
	}{
		{"I1 revisions rise", false, revisionsRise},
		{"I1 a crash that lost volatile writes wastes no revision", true, noRevisionTwice},
		{"I1 an expectation on a lost volatile write conflicts for ever", true, lostExpectation},
		{"I2 a stale write changes nothing", false, staleWrite},
		{"I2 expectations see writes that are being synced", true, expectationsSeeAccepted},
		{"I3 a watch yields everything in order", false, watchTellsAll},
		{"I3 a watch sees records come into and go out of a term", false, watchTerm},
		{"I3 a waiting watch wakes for matching events", false, watchWoken},
		{"I3 a watch yields the writes before the stop", false, watchLast},
		{"I3 a forgotten revision is expired", false, forgotten},
		{"I3 a revision of the future is refused", false, future},
		{"I3 a slow watch is expired, an idle one is not", false, slowAndIdle},
		{"I3 an idle watch hears of progress", false, progress},
		{"I3 watches go on after a restart", true, recalls},
		{"I4 a list and a watch miss nothing", false, listThenWatch},
		{"I4 pages come from one revision", false, pages},
		{"I4 a list at an older revision", false, olderList},
		{"I4 an index lists what carries the term", false, index},
		{"I5 a value is encoded at most once and placed once", false, placedOnce},
		{"I6 no reader sees a write before it is on disk", true, notBeforeDurable},
		{"I6 acknowledged writes survive", true, survives},
		{"I6 a full disk fails writes and loses nothing", true, fullDisk},
		{"I6 a broken backend stops the store", true, broken},
		{"I8 volatile writes wake no disk", true, volatileWakesNoDisk},
		{"I8 volatile writes are saved with the next durable one", true, volatileRides},
		{"I8 volatile writes are saved at a clean stop", true, volatileCleanStop},
		{"I8 volatile writes keep their place in the order", true, volatileInOrder},
		{"I8 what a crash took away is expired", true, crashExpires},
		{"I8 volatile writes are saved when there are too many", true, volatileBound},
		{"I9 a record expires after its last write", false, expires},
		{"I9 a record expires while the store is stopped", true, expiresStopped},
		{"I10 a full store takes what frees space", true, fullTakesDeletions},
		{"I10 a full store finds out that it has space", true, fullRecovers},
		{"I10 a small write does not end that a store is full", true, smallWritesDoNotEndFull},
		{"I12 a write with a guard that does not hold changes nothing", false, guards},
		{"I12 a guard waits for a write under way", true, guardsWait},
		{"I12 a claim belongs to one key", false, claims},
		{"I12 a claim waits for a write under way", true, claimsWait},
		{"I12 a failed write gives back its claims", true, claimsFail},
		{"I12 claims are found at the start", true, claimsLoad},
		{"I12 a charge fails if others have charged", false, charges},
		{"I12 the revision of a failed charge is not waited for", true, chargesFail},
		{"I12 old charges are forgotten on the safe side", false, chargesForgotten},
		{"the changes since a revision", false, changes},
		{"large writes share no batch", true, largeWrites},
		{"a stopped store refuses writes and ends watches", false, stopped},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := make(t)
			if tt.durable {
				if b, err := m(); err != nil {
					t.Fatal(err)
				} else if b == nil {
					return // memory alone promises nothing of the kind
				} else if err := b.Close(); err != nil {
					t.Fatal(err)
				}
			}
			tt.f(t, m)
		})
	}
}

func revisionsRise(t *testing.T, m Medium) {
	s := open(t, m, store.Options{})
	const writers, each = 8, 50
	got := make(chan store.Revision, writers*each)
	g := run.NewGroup(t.Context(), 0)
	for w := range writers {
		g.Go(func(ctx context.Context) {
			var last store.Revision
			for i := range each {
				r, err := s.Commit(ctx, store.Write{Key: fmt.Sprintf("pods/ns/%d-%d", w, i), Value: &Text{Text: "x"}, Volatile: i%3 == 0})
				if err != nil || r.Revision <= last || r.Created != r.Revision {
					t.Errorf("Commit = %+v, %v after revision %d", r, err, last)
					return
				}
				last = r.Revision
				got <- last
			}
		})
	}
	g.Wait()
	close(got)
	var all []store.Revision
	for r := range got {
		all = append(all, r)
	}
	slices.Sort(all)
	if n := len(slices.Compact(all)); n != writers*each {
		t.Errorf("%d different revisions for %d writes", n, writers*each)
	}
	if s.Revision() != slices.Max(all) {
		t.Errorf("Revision() = %d, want that of the last write, %d", s.Revision(), slices.Max(all))
	}
}

func noRevisionTwice(t *testing.T, m Medium) {
	s := start(t, m, store.Options{})
	s.put(t, "pods/a", "1")
	var seen store.Revision
	for range 5 {
		seen = s.volatile(t, "leases/a", "x").Revision
	}
	s.crash()
	s = open(t, m, store.Options{})
	if r := s.Revision(); r < seen {
		t.Errorf("after the crash the store is at revision %d, a reader has seen %d", r, seen)
	}
	if r := s.put(t, "pods/b", "1").Revision; r <= seen {
		t.Errorf("the first write after the crash has revision %d, a reader has seen %d", r, seen)
	}
}

// lostExpectation has clients keep the revision of a volatile write over crashes that lose
// it: no other write may ever be taken for it.
func lostExpectation(t *testing.T, m Medium) {
	s := start(t, m, store.Options{})
	s.put(t, "leases/a", "durable")
	var held []store.Revision
	for i := range 4 {
		for range 3 {
			held = append(held, s.volatile(t, "leases/a", fmt.Sprintf("lost %d", i)).Revision)
		}
		s.crash()
		s = start(t, m, store.Options{})
		if got := s.text(t, "leases/a"); got != "durable" {
			t.Fatalf("after crash %d the record is %q", i, got)
		}
		for _, r := range held {
			for _, volatile := range []bool{false, true} {
				_, err := s.Commit(t.Context(), store.Write{Key: "leases/a", Value: &Text{Text: "stale"}, Expect: r, Volatile: volatile})
				if !errors.Is(err, store.ErrConflict) {
					t.Errorf("after crash %d, a write that expects the lost revision %d: %v, want a conflict", i, r, err)
				}
			}
		}
		if i%2 == 0 { // with and without a durable write between the crashes
			s.put(t, "leases/a", "durable")
		}
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
}

func staleWrite(t *testing.T, m Medium) {
	s := open(t, m, store.Options{})
	first := s.put(t, "pods/a", "1")
	second := s.put(t, "pods/a", "2")
	before := s.Revision()
	for _, w := range []store.Write{
		{Key: "pods/a", Expect: 0},
		{Key: "pods/a", Expect: first.Revision},
		{Key: "pods/a", Expect: second.Revision + 1},
		{Key: "pods/a", Expect: first.Revision, Delete: true},
		{Key: "pods/a", Expect: first.Revision, Volatile: true},
		{Key: "pods/b", Expect: second.Revision},
	} {
		w.Value = &Text{Text: "stale"}
		_, err := s.Commit(t.Context(), w)
		var c *store.ConflictError
		if !errors.Is(err, store.ErrConflict) || !errors.As(err, &c) || c.Key != w.Key || c.Expect != w.Expect || c.Have != s.revisionOf(w.Key) {
			t.Errorf("Commit(%+v) = %v, want a ConflictError with the revision of the key", w, err)
		}
	}
	if _, err := s.Commit(t.Context(), store.Write{Key: "pods/none", Value: &Text{}, Delete: true}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("deleting nothing: %v, want ErrNotFound", err)
	}
	if s.text(t, "pods/a") != "2" || s.Revision() != before {
		t.Errorf("stale writes left %q at revision %d, want 2 at %d", s.text(t, "pods/a"), s.Revision(), before)
	}
	if r := s.put(t, "pods/a", "3"); r.Revision != before+1 || r.Created != first.Revision {
		t.Errorf("the next write is %+v, want revision %d created %d", r, before+1, first.Revision)
	}
}

func expectationsSeeAccepted(t *testing.T, m Medium) {
	s := open(t, m, store.Options{})
	release := s.tap.hold()
	g := run.NewGroup(t.Context(), 0)
	g.Go(func(ctx context.Context) { s.put(t, "pods/a", "first") })
	<-s.tap.atGate
	// The key is taken although the write is not visible yet. The answer to a second creation is
	// the conflict that its caller can then read about, not sooner.
	early := make(chan error, 1)
	g.Go(func(ctx context.Context) {
		_, err := s.Commit(ctx, store.Write{Key: "pods/a", Value: &Text{Text: "second"}})
		if r, gerr := s.Get("pods/a"); gerr != nil || r.Value.(*Text).Text == "second" {
			t.Errorf("after the conflict the key holds %+v, %v", r, gerr)
		}
		early <- err
	})
	g.Go(func(ctx context.Context) {
		if _, err := s.Commit(ctx, store.Write{Key: "pods/a", Value: &Text{Text: "third"}, Expect: 1}); err != nil {
			t.Errorf("an update of an object that is being created: %v", err)
		}
	})
	release()
	g.Wait()
	if err := <-early; !errors.Is(err, store.ErrConflict) {
		t.Errorf("creating what is being created: %v, want a conflict", err)
	}
	if got := s.text(t, "pods/a"); got != "third" {
		t.Errorf("got %q, want third", got)
	}
}

func watchTellsAll(t *testing.T, m Medium) {
	s := open(t, m, store.Options{})
	s.put(t, "pods/x/a", "1")
	after := s.put(t, "pods/y/a", "1").Revision
	s.put(t, "nodes/n", "1")
	s.put(t, "pods/x/a", "2")
	s.put(t, "pods/x/b", "1")
	s.put(t, "pods/xx/a", "1")
	s.remove(t, "pods/x/a")
	s.volatile(t, "pods/x/a", "3")
	equal(t, "all pods", eventLines(s.events(t, store.Query{Prefix: "pods/"}, 0)), []string{
		"+pods/x/a=1", "+pods/y/a=1", "~pods/x/a=2", "+pods/x/b=1", "+pods/xx/a=1", "-pods/x/a=last words", "+pods/x/a=3",
	})
	events := s.events(t, store.Query{Prefix: "pods/x/"}, after)
	equal(t, "pods of x", eventLines(events), []string{
		"~pods/x/a=2", "+pods/x/b=1", "-pods/x/a=last words", "+pods/x/a=3",
	})
	if e := events[0]; e.Prev.Value.(*Text).Text != "1" || e.Created != 1 || e.Prev.Revision != 1 {
		t.Errorf("the event of an update is %+v", e)
	}
	if e := events[2]; e.Prev.Value.(*Text).Text != "2" || e.Revision <= e.Prev.Revision || e.Created != 1 {
		t.Errorf("the event of a deletion is %+v", e)
	}
	if e := events[3]; e.Created != e.Revision {
		t.Errorf("the event of a key made again is %+v, want a new Created", e)
	}
	equal(t, "one pod", eventLines(s.events(t, store.Query{Prefix: "pods/x/b"}, after)), []string{"+pods/x/b=1"})

	// And while it happens.
	g := run.NewGroup(t.Context(), 0)
	const n = 300
	at := s.Revision()
	for _, q := range []store.Query{{Prefix: "pods/"}, {Prefix: "pods/x/"}, {Prefix: "pods/x/b"}, {Prefix: "pods/", Term: "#t"}} {
		g.Go(func(ctx context.Context) {
			want := 0
			last := at
			for e, err := range s.Watch(ctx, q, at) {
				if err != nil {
					t.Errorf("%+v: %v", q, err)
					return
				}
				if e.Key == "" {
					continue
				}
				if e.Revision <= last || e.Value.(*Text).Text != fmt.Sprintf("#t %d", want) {
					t.Errorf("%+v: got %s at %d after %d, want number %d", q, line(e), e.Revision, last, want)
					return
				}
				last = e.Revision
				if want++; want == n {
					return
				}
			}
		})
	}
	for i := range n {
		s.put(t, "pods/x/b", fmt.Sprintf("#t %d", i))
	}
	g.Wait()
}

func watchTerm(t *testing.T, m Medium) {
	s := open(t, m, store.Options{})
	s.put(t, "pods/a", "#node1 pending")
	s.put(t, "pods/b", "#node2")
	s.put(t, "pods/a", "#node1 running")
	s.put(t, "pods/a", "#node2")
	s.put(t, "pods/a", "#node1 back")
	s.remove(t, "pods/a")
	equal(t, "node1", eventLines(s.events(t, store.Query{Prefix: "pods/", Term: "#node1"}, 0)), []string{
		"+pods/a=#node1 pending", "~pods/a=#node1 running", "~pods/a=#node2", "~pods/a=#node1 back", "-pods/a=last words",
	})
}

// watchWoken writes each time that the watch is about to wait.
func watchWoken(t *testing.T, m Medium) {
	s := open(t, m, store.Options{Progress: time.Millisecond})
	s.put(t, "pods/x/a", "#node1")
	put := func(text string) func() { return func() { s.put(t, "pods/x/a", text) } }
	steps := []struct {
		write func()
		want  string
	}{
		{put("#node1 running"), "~pods/x/a=#node1 running"},
		{put("#node2"), "~pods/x/a=#node2"}, // it leaves the term
		{put("#node1 back"), "~pods/x/a=#node1 back"},
		{func() { s.remove(t, "pods/x/a") }, "-pods/x/a=last words"},
	}
	for _, q := range []store.Query{{Prefix: "pods/", Term: "#node1"}, {Prefix: "pods/x/"}, {Prefix: "pods/x/a"}} {
		s.put(t, "pods/x/a", "#node1")
		n, written := 0, false
		for e, err := range s.Watch(t.Context(), q, s.Revision()) {
			switch {
			case err != nil:
				t.Fatalf("%+v: %v", q, err)
			case e.Key == "" && written:
				t.Fatalf("%+v: got progress to %d, but not %s", q, e.Revision, steps[n].want)
			case e.Key == "":
				steps[n].write()
				written = true
				continue
			case line(e) != steps[n].want:
				t.Fatalf("%+v: got %s, want %s", q, line(e), steps[n].want)
			}
			if n, written = n+1, false; n == len(steps) {
				break
			}
		}
	}
}

// watchLast has a watch find out at the same time that there is an event and that the
// store has stopped. Which of them it sees first is left to chance, so there are some tries.
func watchLast(t *testing.T, m Medium) {
	for range 20 {
		s := start(t, m, store.Options{})
		s.put(t, "pods/a", "first")
		stopped, told := false, false
		for e, err := range s.Watch(t.Context(), store.Query{Prefix: "pods/"}, s.Revision()) {
			switch {
			case errors.Is(err, store.ErrStopped) && stopped:
			case err != nil:
				t.Fatal(err)
			case e.Key != "":
				told = true
			case !stopped:
				s.put(t, "pods/a", "last")
				if err := s.stop(); err != nil {
					t.Fatal(err)
				}
				stopped = true
			}
		}
		if !told {
			t.Fatal("the watch ended without the last write")
		}
	}
}

func forgotten(t *testing.T, m Medium) {
	s := open(t, m, store.Options{History: 10})
	for i := range 30 {
		s.put(t, "pods/a", fmt.Sprint(i))
	}
	q := store.Query{Prefix: "pods/"}
	if err := s.firstError(q, 19); !errors.Is(err, store.ErrExpired) {
		t.Errorf("watch after 19 of 30 with a history of 10: %v, want ErrExpired", err)
	}
	if _, err := s.List(q, store.Page{At: 19}); !errors.Is(err, store.ErrExpired) {
		t.Errorf("list at 19 of 30 with a history of 10: %v, want ErrExpired", err)
	}
	if n := len(s.events(t, q, 20)); n != 10 {
		t.Errorf("watch after 20 of 30 yields %d events, want 10", n)
	}
	if got, _ := s.list(t, q, store.Page{At: 20}); !slices.Equal(got, []string{"pods/a=19"}) {
		t.Errorf("list at 20 = %q", got)
	}
	// Each resource has a history of its own.
	if n := len(s.events(t, store.Query{Prefix: "nodes/"}, 0)); n != 0 {
		t.Errorf("a watch of nodes yields %d events", n)
	}
}

func future(t *testing.T, m Medium) {
	s := open(t, m, store.Options{})
	r := s.put(t, "pods/a", "1").Revision
	for _, prefix := range []string{"pods/", "nodes/"} {
		if err := s.firstError(store.Query{Prefix: prefix}, r+1); !errors.Is(err, store.ErrFuture) {
			t.Errorf("watch of %s from the future: %v, want ErrFuture", prefix, err)
		}
		if _, err := s.List(store.Query{Prefix: prefix}, store.Page{At: r + 1}); !errors.Is(err, store.ErrFuture) {
			t.Errorf("list of %s from the future: %v, want ErrFuture", prefix, err)
		}
	}
	if _, err := s.List(store.Query{}, store.Page{}); err == nil {
		t.Error("a list of no resource is answered")
	}
}

func slowAndIdle(t *testing.T, m Medium) {
	s := open(t, m, store.Options{History: 10})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	idle, slow := make(chan string), make(chan string)
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	for _, w := range []struct {
		q   store.Query
		out chan string
	}{{store.Query{Prefix: "pods/idle"}, idle}, {store.Query{Prefix: "pods/"}, slow}} {
		g.Go(func(ctx context.Context) {
			for e, err := range s.Watch(ctx, w.q, 0) {
				text := "idle"
				switch {
				case errors.Is(err, store.ErrExpired):
					text = "expired"
				case err != nil:
					text = err.Error()
				case e.Key != "":
					text = line(e)
				}
				select {
				case w.out <- text:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	expect := func(from chan string, want string) {
		t.Helper()
		if got := <-from; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	expect(idle, "idle")
	expect(slow, "idle")
	for i := range 100 {
		s.put(t, "pods/busy", fmt.Sprint(i))
	}
	s.put(t, "pods/idle", "now")
	expect(idle, "+pods/idle=now")
	expect(idle, "idle")
	// The slow one was given some events before it fell behind.
	for got := ""; got != "expired"; {
		if got = <-slow; got == "~pods/busy=99" || got == "idle" {
			t.Errorf("a watcher that slept through 100 writes with a history of 10 got %q", got)
			break
		}
	}
}

func progress(t *testing.T, m Medium) {
	s := open(t, m, store.Options{Progress: time.Millisecond})
	wrote := make(chan store.Revision, 1)
	var want store.Revision
	for e, err := range s.Watch(t.Context(), store.Query{Prefix: "pods/", Progress: true}, 0) {
		switch {
		case err != nil || e.Key != "":
			t.Fatalf("got %+v, %v", e, err)
		case want == 0:
			want = s.put(t, "nodes/a", "1").Revision
			wrote <- want
		case e.Revision == want:
			return
		default:
			t.Fatalf("got revision %d, want %d", e.Revision, want)
		}
	}
}

func listThenWatch(t *testing.T, m Medium) {
	s := open(t, m, store.Options{})
	const writers, each = 4, 100
	g := run.NewGroup(t.Context(), 0)
	for w := range writers {
		g.Go(func(context.Context) {
			for i := range each {
				key := fmt.Sprintf("pods/%d/%d", w, i%10)
				if i%7 == 6 && s.revisionOf(key) != 0 {
					s.remove(t, key)
				} else {
					s.put(t, key, fmt.Sprint(i))
				}
			}
		})
	}
	var snapshots []store.Listing
	for s.Revision() < writers*each {
		_, l := s.list(t, store.Query{Prefix: "pods/"}, store.Page{})
		if n := len(snapshots); n == 0 || l.Revision >= snapshots[n-1].Revision+writers*each/50 {
			snapshots = append(snapshots, l) // some, to be looked at below
		}
	}
	g.Wait()
	want, _ := s.list(t, store.Query{Prefix: "pods/"}, store.Page{})
	for _, l := range snapshots {
		state := map[string]store.Record{}
		for _, r := range l.Records {
			state[r.Key] = r
		}
		for _, e := range s.events(t, store.Query{Prefix: "pods/"}, l.Revision) {
			if have := state[e.Key]; have.Revision != e.Prev.Revision {
				t.Fatalf("list at %d, then %s replaces revision %d, but the list has %d", l.Revision, line(e), e.Prev.Revision, have.Revision)
			}
			if e.Deleted {
				delete(state, e.Key)
			} else {
				state[e.Key] = e.Record
			}
		}
		var records []store.Record
		for _, r := range state {
			records = append(records, r)
		}
		got := lines(records)
		slices.Sort(got)
		equal(t, fmt.Sprintf("list at %d and watch", l.Revision), got, want)
	}
}

func pages(t *testing.T, m Medium) {
	s := open(t, m, store.Options{})
	for i := range 1000 {
		s.volatile(t, fmt.Sprintf("pods/%03d", i), "before #even"[:6+6*((i+1)%2)])
	}
	for _, q := range []store.Query{{Prefix: "pods/"}, {Prefix: "pods/", Term: "#even"}} {
		want, all := s.list(t, q, store.Page{})
		var got []string
		page := store.Page{Limit: 64}
		for n := 0; ; n++ {
			text, l := s.list(t, q, page)
			got = append(got, text...)
			if l.Revision != all.Revision {
				t.Fatalf("page %d is from revision %d, the first from %d", n, l.Revision, all.Revision)
			}
			if !l.More {
				break
			}
			if l.Left != len(want)-len(got) {
				t.Errorf("page %d says that %d are left of %d after %d", n, l.Left, len(want), len(got))
			}
			page.After, page.At = l.Records[len(l.Records)-1].Key, l.Revision
			// Changes between the pages, before and behind the place.
			s.volatile(t, fmt.Sprintf("pods/%03d", 10*n), "changed")
			s.volatile(t, fmt.Sprintf("pods/%03d", 999-10*n), "changed #even")
			s.volatile(t, fmt.Sprintf("pods/%03d-%s", 900-10*n, q.Term), "new")
			s.remove(t, fmt.Sprintf("pods/%03d", 500+n+20*len(q.Term)))
		}
		equal(t, "pages", got, want)
	}
}

func olderList(t *testing.T, m Medium) {
	s := open(t, m, store.Options{})
	var want [][]string
	query := store.Query{Prefix: "pods/", Term: "#x"}
	step := func() {
		text, _ := s.list(t, store.Query{Prefix: "pods/"}, store.Page{})
		x, _ := s.list(t, query, store.Page{})
		one, _ := s.list(t, store.Query{Prefix: "pods/b"}, store.Page{})
		want = append(want, text, x, one)
	}
	first := s.put(t, "pods/b", "1 #x").Revision
	step()
	for _, f := range []func(){
		func() { s.put(t, "pods/a", "1") },
		func() { s.put(t, "pods/a", "2 #x") },
		func() { s.remove(t, "pods/b") },
		func() { s.put(t, "pods/c", "1") },
		func() { s.put(t, "pods/b", "again") },
		func() { s.put(t, "pods/a", "3") },
	} {
		f()
		step()
	}
	for i := 0; i < len(want); i += 3 {
		at := first + store.Revision(i/3)
		got, l := s.list(t, store.Query{Prefix: "pods/"}, store.Page{At: at})
		equal(t, fmt.Sprintf("list at %d", at), got, want[i])
		x, _ := s.list(t, query, store.Page{At: at})
		equal(t, fmt.Sprintf("list of #x at %d", at), x, want[i+1])
		one, _ := s.list(t, store.Query{Prefix: "pods/b"}, store.Page{At: at})
		equal(t, fmt.Sprintf("list of one key at %d", at), one, want[i+2])
		if l.Revision != at {
			t.Errorf("list at %d says revision %d", at, l.Revision)
		}
	}
}

func index(t *testing.T, m Medium) {
	s := open(t, m, store.Options{})
	s.put(t, "pods/x/b", "#n1")
	s.put(t, "pods/x/a", "#n1 #blue")
	s.put(t, "pods/y/a", "#n1")
	s.put(t, "pods/y/b", "#n10")
	s.put(t, "nodes/n1", "#n1")
	check := func(q store.Query, want ...string) {
		t.Helper()
		got, _ := s.list(t, q, store.Page{})
		equal(t, fmt.Sprintf("%+v", q), got, want)
	}
	check(store.Query{Prefix: "pods/", Term: "#n1"}, "pods/x/a=#n1 #blue", "pods/x/b=#n1", "pods/y/a=#n1")
	check(store.Query{Prefix: "pods/y/", Term: "#n1"}, "pods/y/a=#n1")
	check(store.Query{Prefix: "pods/x/a", Term: "#blue"}, "pods/x/a=#n1 #blue")
	check(store.Query{Prefix: "pods/x/b", Term: "#blue"})
	s.put(t, "pods/x/a", "#n2")
	s.remove(t, "pods/y/a")
	check(store.Query{Prefix: "pods/", Term: "#n1"}, "pods/x/b=#n1")
	check(store.Query{Prefix: "pods/", Term: "#blue"})
	check(store.Query{Prefix: "pods/", Term: "#n2"}, "pods/x/a=#n2")
}

func placedOnce(t *testing.T, m Medium) {
	s := start(t, m, store.Options{})
	var values []*Text
	for i, w := range []store.Write{
		{Key: "pods/a"}, {Key: "pods/b", Volatile: true}, {Key: "pods/c", Volatile: true}, {Key: "pods/a", Expect: 1}, {Key: "pods/b", Delete: true, Expect: 2},
	} {
		v := &Text{Text: fmt.Sprint(i)}
		values = append(values, v)
		w.Value = v
		r, err := s.Commit(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		if r.Value != store.Value(v) || v.revision != r.Revision || v.created != r.Created {
			t.Errorf("write %d: value was placed at %d/%d, record is %+v", i, v.created, v.revision, r)
		}
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	for i, v := range values {
		if v.placed.Load() != 1 || v.encoded.Load() > 1 {
			t.Errorf("value %d was placed %d times and encoded %d times", i, v.placed.Load(), v.encoded.Load())
		}
	}
}

func stopped(t *testing.T, m Medium) {
	s := start(t, m, store.Options{})
	s.put(t, "pods/a", "1")
	var end error
	for e, err := range s.Watch(t.Context(), store.Query{Prefix: "pods/"}, 0) {
		if err != nil {
			end = err
		} else if e.Key == "" {
			if err := s.stop(); err != nil {
				t.Error(err)
			}
		}
	}
	if !errors.Is(end, store.ErrStopped) {
		t.Errorf("the watch ended with %v, want ErrStopped", end)
	}
	if _, err := s.Commit(t.Context(), store.Write{Key: "pods/b", Value: &Text{}}); !errors.Is(err, store.ErrStopped) {
		t.Errorf("Commit = %v, want ErrStopped", err)
	}
	if s.text(t, "pods/a") != "1" {
		t.Error("a stopped store cannot be read")
	}
}
