package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

func notBeforeDurable(t *testing.T, m Medium) {
	s := open(t, m, store.Options{})
	s.put(t, "pods/a", "old")
	release := s.tap.hold()
	g := run.NewGroup(t.Context(), 0)
	g.Go(func(context.Context) { s.put(t, "pods/a", "new") })
	<-s.tap.atGate
	if got := s.text(t, "pods/a"); got != "old" {
		t.Errorf("a write that is not durable is read: %q", got)
	}
	if got := eventLines(s.events(t, store.Query{Prefix: "pods/"}, 1)); len(got) != 0 {
		t.Errorf("a write that is not durable is watched: %q", got)
	}
	release()
	g.Wait()
	if got := s.text(t, "pods/a"); got != "new" {
		t.Errorf("got %q, want new", got)
	}
}

func survives(t *testing.T, m Medium) {
	s := start(t, m, store.Options{})
	a := s.put(t, "pods/a", "1")
	s.put(t, "pods/b", "1")
	b := s.put(t, "pods/b", "2")
	s.put(t, "pods/c", "")
	last := s.remove(t, "pods/a").Revision
	s.crash()
	s = start(t, m, store.Options{})
	check := func(when string) {
		t.Helper()
		got, l := s.list(t, store.Query{Prefix: "pods/"}, store.Page{})
		equal(t, when, got, []string{"pods/b=2", "pods/c="})
		if l.Revision != last || l.Records[0].Revision != b.Revision || l.Records[0].Created != b.Created {
			t.Errorf("%s: revision %d and %+v, want %d and %+v", when, l.Revision, l.Records[0], last, b)
		}
		if v := l.Records[0].Value.(*Text); v.revision != b.Revision || v.created != b.Created {
			t.Errorf("%s: a loaded value was placed at %d/%d", when, v.created, v.revision)
		}
		if err := s.firstError(store.Query{Prefix: "pods/"}, last-1); !errors.Is(err, store.ErrExpired) {
			t.Errorf("%s: a watch from before is %v, want ErrExpired", when, err)
		}
		if n := len(s.events(t, store.Query{Prefix: "pods/"}, last)); n != 0 {
			t.Errorf("%s: a watch from the last revision yields %d events", when, n)
		}
	}
	check("after a crash")
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	s = open(t, m, store.Options{})
	check("after a clean stop")
	if r := s.put(t, "pods/a", "again"); r.Created != last+1 || r.Created == a.Created {
		t.Errorf("a key made again is %+v", r)
	}
}

func fullDisk(t *testing.T, m Medium) {
	s := start(t, m, store.Options{})
	s.put(t, "pods/a", "1")
	s.volatile(t, "leases/a", "1")
	s.tap.setFault(fmt.Errorf("commit: %w", store.ErrFull))
	for range 3 {
		_, err := s.Commit(t.Context(), store.Write{Key: "pods/b", Value: &Text{Text: "1"}})
		if !errors.Is(err, store.ErrFull) {
			t.Errorf("Commit on a full disk = %v, want ErrFull", err)
		}
	}
	if s.text(t, "pods/a") != "1" || s.text(t, "pods/b") != "" {
		t.Errorf("a full disk left a=%q b=%q", s.text(t, "pods/a"), s.text(t, "pods/b"))
	}
	s.volatile(t, "leases/a", "2")
	s.tap.setFault(nil)
	s.put(t, "pods/b", "2")
	s.crash()
	s = open(t, m, store.Options{})
	for key, want := range map[string]string{"pods/a": "1", "pods/b": "2", "leases/a": "2"} {
		if got := s.text(t, key); got != want {
			t.Errorf("%s = %q after a full disk and a crash, want %q", key, got, want)
		}
	}
}

func broken(t *testing.T, m Medium) {
	s := start(t, m, store.Options{})
	s.put(t, "pods/a", "1")
	smoke := errors.New("smoke")
	s.tap.setFault(smoke)
	for range 2 {
		if _, err := s.Commit(t.Context(), store.Write{Key: "pods/b", Value: &Text{}}); !errors.Is(err, smoke) {
			t.Errorf("Commit on a broken backend = %v, want its error", err)
		}
		s.tap.setFault(nil) // too late
	}
	if err := s.stop(); !errors.Is(err, smoke) {
		t.Errorf("Run = %v, want the error of the backend", err)
	}
	if s.text(t, "pods/a") != "1" {
		t.Error("a broken store cannot be read")
	}
}

func volatileWakesNoDisk(t *testing.T, m Medium) {
	s := open(t, m, store.Options{})
	s.put(t, "pods/a", "1")
	s.volatile(t, "leases/a", "0") // may reserve revisions
	commits, reserves := s.tap.commits.Load(), s.tap.reserves.Load()
	for i := range 1000 {
		s.volatile(t, fmt.Sprintf("leases/%d", i%10), fmt.Sprint(i))
	}
	if c, r := s.tap.commits.Load(), s.tap.reserves.Load(); c != commits || r != reserves {
		t.Errorf("1000 volatile writes made %d commits and %d reservations", c-commits, r-reserves)
	}
}

func volatileRides(t *testing.T, m Medium) {
	s := start(t, m, store.Options{})
	for i := range 500 {
		s.volatile(t, fmt.Sprintf("leases/%d", i%10), fmt.Sprint(i))
	}
	s.volatile(t, "leases/gone", "x")
	s.remove(t, "leases/gone") // durable, takes all along
	s.volatile(t, "leases/0", "lost")
	s.crash()
	s = open(t, m, store.Options{})
	got, _ := s.list(t, store.Query{Prefix: "leases/"}, store.Page{})
	var want []string
	for i := range 10 {
		want = append(want, fmt.Sprintf("leases/%d=%d", i, 490+i))
	}
	equal(t, "leases", got, want)
}

func volatileCleanStop(t *testing.T, m Medium) {
	s := start(t, m, store.Options{})
	s.volatile(t, "leases/a", "1")
	last := s.volatile(t, "leases/a", "2").Revision
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	s = open(t, m, store.Options{})
	if got := s.text(t, "leases/a"); got != "2" || s.Revision() != last {
		t.Errorf("after a clean stop %q at revision %d, want 2 at %d", got, s.Revision(), last)
	}
	if r := s.put(t, "pods/a", "x").Revision; r != last+1 {
		t.Errorf("the next revision is %d, want %d", r, last+1)
	}
}

func volatileInOrder(t *testing.T, m Medium) {
	s := open(t, m, store.Options{})
	s.volatile(t, "leases/a", "0")
	release := s.tap.hold()
	g := run.NewGroup(t.Context(), 0)
	g.Go(func(context.Context) { s.put(t, "pods/a", "durable") })
	<-s.tap.atGate
	lease := make(chan store.Record, 1)
	g.Go(func(context.Context) { lease <- s.volatile(t, "leases/a", "1") })
	select {
	case r := <-lease:
		t.Errorf("a volatile write was answered at revision %d before the write under way", r.Revision)
	default:
	}
	release()
	g.Wait()
	if r, pod := <-lease, s.revisionOf("pods/a"); r.Revision != pod+1 && r.Revision != pod-1 {
		t.Errorf("the volatile write has revision %d, the durable one %d", r.Revision, pod)
	}
	if n := len(s.events(t, store.Query{Prefix: "leases/"}, 0)); n != 2 {
		t.Errorf("a watch yields %d writes, want 2", n)
	}
}

func crashExpires(t *testing.T, m Medium) {
	s := start(t, m, store.Options{})
	s.put(t, "leases/a", "kept")
	var lost store.Revision
	for range 3 {
		lost = s.volatile(t, "leases/a", "lost").Revision
	}
	s.crash()
	s = open(t, m, store.Options{})
	if got := s.text(t, "leases/a"); got != "kept" {
		t.Errorf("after the crash leases/a is %q", got)
	}
	for r := range lost + 1 {
		if err := s.firstError(store.Query{Prefix: "leases/"}, r); !errors.Is(err, store.ErrExpired) {
			t.Errorf("watch after %d: %v, want ErrExpired", r, err)
		}
		if r == 0 {
			continue
		}
		if _, err := s.List(store.Query{Prefix: "leases/"}, store.Page{At: r}); !errors.Is(err, store.ErrExpired) {
			t.Errorf("list at %d: %v, want ErrExpired", r, err)
		}
	}
}
