package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

// A Medium opens a place where records are kept. Each call opens the same place,
// after the backend of the call before was closed. A nil backend means that
// there is none: the store lives in memory, and tests of durability are left out.
type Medium func() (store.Backend, error)

// A Text is the kit's value. Words of it that begin with # are its index terms.
type Text struct {
	Text string

	encoded  atomic.Int32
	placed   atomic.Int32
	created  store.Revision
	revision store.Revision
}

// Bytes implements [store.Value].
func (v *Text) Bytes() []byte {
	v.encoded.Add(1)
	return []byte(v.Text)
}

// Place implements [store.Value].
func (v *Text) Place(created, revision store.Revision) {
	v.placed.Add(1)
	v.created, v.revision = created, revision
}

// Decode makes a [*Text], as store.Options.Decode wants.
func Decode(_ string, data []byte) (store.Value, error) { return &Text{Text: string(data)}, nil }

// Restate returns the same text, as store.Options.Restate wants.
func Restate(v store.Value) store.Value { return &Text{Text: v.(*Text).Text} }

// Terms finds the index terms of a [*Text], as store.Options.Terms wants.
func Terms(_ string, v store.Value) []string {
	var terms []string
	for w := range strings.FieldsSeq(v.(*Text).Text) {
		if strings.HasPrefix(w, "#") {
			terms = append(terms, w)
		}
	}
	return terms
}

// tap stands between a store and its backend: it counts, holds up, refuses and
// cuts off.
type tap struct {
	store.Backend

	commits, reserves atomic.Int32

	mu     sync.Mutex
	gate   chan struct{} // guarded by mu; not nil: commits wait until it is closed
	atGate chan struct{} // one message for each commit that has come to the gate
	fault  error         // guarded by mu; what commits and reservations get
	full   bool          // guarded by mu; only batches that free space succeed, and those of up to left bytes
	left   int           // guarded by mu
	most   int           // guarded by mu; size of the largest batch
	cut    bool          // guarded by mu; the process is "dead"
}

var errCut = errors.New("the test has cut the backend off")

func (b *tap) enter() error {
	b.mu.Lock()
	gate := b.gate
	b.mu.Unlock()
	if gate != nil {
		b.atGate <- struct{}{}
		<-gate
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cut {
		return errCut
	}
	return b.fault
}

func (b *tap) Commit(ctx context.Context, batch store.Batch) error {
	if err := b.enter(); err != nil {
		return err
	}
	size := batch.Room
	for i, e := range batch.Entries {
		if i > 0 && e.Revision <= batch.Entries[i-1].Revision {
			return errors.New("the revisions of a batch do not rise")
		}
		size += len(e.Key) + e.Size()
	}
	if size > store.MaxBatch {
		return fmt.Errorf("a batch has %d bytes, more than MaxBatch", size)
	}
	b.mu.Lock()
	full := b.full && !batch.Frees && size > b.left
	if !full {
		b.most = max(b.most, size)
	}
	b.mu.Unlock()
	if full {
		return fmt.Errorf("the test has taken all space: %w", store.ErrFull)
	}
	if len(batch.Entries) == 0 {
		return nil
	}
	b.commits.Add(1)
	return b.Backend.Commit(ctx, batch)
}

func (b *tap) Reserve(ctx context.Context, ceiling store.Revision) error {
	if err := b.enter(); err != nil {
		return err
	}
	b.reserves.Add(1)
	return b.Backend.Reserve(ctx, ceiling)
}

func (b *tap) Close() error { return b.Backend.Close() }

func (b *tap) setFault(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault = err
}

func (b *tap) setFull(full bool) { b.setLeft(full, 0) }

func (b *tap) setLeft(full bool, left int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.full, b.left = full, left
}

func (b *tap) largest() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.most
}

// hold makes commits wait until the result is called.
func (b *tap) hold() (release func()) {
	gate := make(chan struct{})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gate = gate
	return func() {
		b.mu.Lock()
		b.gate = nil
		b.mu.Unlock()
		close(gate)
	}
}

// A subject is a running store under test.
type subject struct {
	*store.Store
	tap  *tap // nil: memory only
	stop func() error
}

type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// start opens a store on the medium and runs it. The caller stops it.
func start(t tester, m Medium, opts store.Options) *subject {
	t.Helper()
	b, err := m()
	if err != nil {
		t.Fatalf("opening the backend: %v", err)
	}
	s := &subject{}
	var backend store.Backend
	if b != nil {
		s.tap = &tap{Backend: b, atGate: make(chan struct{}, 100)}
		backend = s.tap
	}
	opts.Decode, opts.Terms = Decode, Terms
	if opts.Claims == nil {
		opts.Claims = Claims
	}
	s.Store, err = store.Open(context.Background(), backend, opts)
	if err != nil {
		t.Fatalf("store.Open: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	g := run.NewGroup(ctx, 0)
	var end error
	g.Go(func(ctx context.Context) { end = s.Run(ctx) })
	s.stop = sync.OnceValue(func() error {
		cancel()
		g.Wait()
		return end
	})
	<-s.Ready()
	return s
}

// open is start for tests that stop once, at the end.
func open(t *testing.T, m Medium, opts store.Options) *subject {
	t.Helper()
	s := start(t, m, opts)
	t.Cleanup(func() {
		if err := s.stop(); err != nil && !errors.Is(err, errCut) {
			t.Errorf("Store.Run = %v, want nil", err)
		}
	})
	return s
}

// crash ends the store as a dead process would: nothing more reaches the backend.
func (s *subject) crash() {
	s.tap.mu.Lock()
	s.tap.cut = true
	s.tap.mu.Unlock()
	_ = s.stop() // its errors come from the cut
}

// put writes text at key, whatever stands there now, and must succeed.
func (s *subject) put(t tester, key, text string) store.Record {
	t.Helper()
	return s.write(t, store.Write{Key: key, Value: &Text{Text: text}})
}

// volatile is put for a write that may be lost.
func (s *subject) volatile(t tester, key, text string) store.Record {
	t.Helper()
	return s.write(t, store.Write{Key: key, Value: &Text{Text: text}, Volatile: true})
}

// remove deletes key and must succeed.
func (s *subject) remove(t tester, key string) store.Record {
	t.Helper()
	return s.write(t, store.Write{Key: key, Value: &Text{Text: "last words"}, Delete: true})
}

func (s *subject) write(t tester, w store.Write) store.Record {
	t.Helper()
	w.Expect = s.revisionOf(w.Key)
	r, err := s.Commit(context.Background(), w)
	if err != nil {
		t.Fatalf("Commit(%s): %v", w.Key, err)
	}
	return r
}

func (s *subject) revisionOf(key string) store.Revision {
	r, err := s.Get(key)
	if err != nil {
		return 0
	}
	return r.Revision
}

// text returns the value at key; "" for none.
func (s *subject) text(t tester, key string) string {
	t.Helper()
	r, err := s.Get(key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return ""
	case err != nil:
		t.Fatalf("Get(%s): %v", key, err)
	}
	return r.Value.(*Text).Text
}

// list returns the keys and texts of a listing, "key=text".
func (s *subject) list(t tester, q store.Query, p store.Page) ([]string, store.Listing) {
	t.Helper()
	l, err := s.List(q, p)
	if err != nil {
		t.Fatalf("List(%+v, %+v): %v", q, p, err)
	}
	return lines(l.Records), l
}

func lines(records []store.Record) []string {
	var out []string
	for _, r := range records {
		out = append(out, r.Key+"="+r.Value.(*Text).Text)
	}
	return out
}

// events returns the events that a watch yields until it is idle at the store's present revision.
func (s *subject) events(t tester, q store.Query, after store.Revision) []store.Event {
	t.Helper()
	var events []store.Event
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for e, err := range s.Watch(ctx, q, after) {
		switch {
		case err != nil:
			t.Fatalf("Watch(%+v, %d): %v after %d events", q, after, err, len(events))
		case e.Key == "":
			return events
		}
		events = append(events, e)
	}
	return events
}

// firstError returns the error that a watch begins with; nil if it does not.
func (s *subject) firstError(q store.Query, after store.Revision) error {
	for _, err := range s.Watch(context.Background(), q, after) {
		return err
	}
	return nil
}

// line describes an event in short: +key=text, ~key=text or -key=text.
func line(e store.Event) string {
	sign := "~"
	switch {
	case e.Deleted:
		sign = "-"
	case e.Prev.Key == "":
		sign = "+"
	}
	return sign + e.Key + "=" + e.Value.(*Text).Text
}

func eventLines(events []store.Event) []string {
	var out []string
	for _, e := range events {
		out = append(out, line(e))
	}
	return out
}

func equal(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n  %s\nwant:\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}
