package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// writes is the state of accepted writes that readers cannot see yet.
type writes struct {
	mu      sync.Mutex
	last    Revision           // newest revision given to a write
	ceiling Revision           // volatile writes up to here may become visible
	pending map[string]pending // the newest accepted write to a key, while it is not published
	open    *batch             // collects writes for the next sync
	flying  bool               // a batch is on its way
	unsaved unsaved
	refuse  error // not nil: no more writes, and why
}

// A pending is what a key will hold.
type pending struct {
	rec     *record
	deleted bool
	outcome *outcome // of the batch that it is in
}

// A queued is an accepted write in a batch.
type queued struct {
	pending
	data []byte
}

// A batch is a run of writes, in the order of their revisions, that share a
// sync. The volatile ones before the first durable one need not wait for it.
type batch struct {
	items []queued
	early int      // number of leading volatile writes
	seen  *outcome // of the early ones
	done  *outcome // of the rest
}

// An outcome is what became of some writes.
type outcome struct {
	known chan struct{}
	err   error // set before known is closed
}

func newBatch() *batch {
	return &batch{
		seen: &outcome{known: make(chan struct{})},
		done: &outcome{known: make(chan struct{})},
	}
}

// tell says once what became of the writes; only the first time counts.
func (o *outcome) tell(err error) {
	select {
	case <-o.known:
	default:
		o.err = err
		close(o.known)
	}
}

// reserveBlock is the number of revisions reserved at a time for volatile
// writes. A cluster that only renews leases reserves about once in a year per
// node; a crash costs at most this many of the 2^63 revisions.
const reserveBlock = 1 << 20

// Commit makes one write and returns the record as written; after a deletion
// this is the last state, with the revision of the deletion. It blocks until the
// write is durable (or, if volatile, visible).
//
// A failed expectation is a [*ConflictError], told once the caller can read what it
// lost against; to delete a key that does not exist is ErrNotFound. If ctx ends first the write may still happen. ErrFull means
// that there was no space and that nothing was written. Any other error means
// that the backend is broken; the store then refuses all further writes.
func (s *Store) Commit(ctx context.Context, w Write) (Record, error) {
	switch {
	case w.Value == nil:
		return Record{}, fmt.Errorf("store: write to %q without a value", w.Key)
	case w.Key == "" || strings.HasPrefix(w.Key, "/") || strings.HasSuffix(w.Key, "/"):
		return Record{}, fmt.Errorf("store: bad key %q", w.Key)
	case ctx.Err() != nil:
		return Record{}, context.Cause(ctx)
	}
	q := queued{pending: pending{rec: &record{Record: Record{Key: w.Key, Value: w.Value}}, deleted: w.Delete}}
	q.rec.terms = s.opts.Terms(w.Key, w.Value)
	if s.backend != nil && !w.Delete {
		q.data = w.Value.Bytes()
		if q.data == nil {
			q.data = []byte{} // nil deletes
		}
	}
	for {
		o, taken, err := s.take(w, q)
		if err != nil {
			return Record{}, err
		}
		if o != nil {
			select {
			case <-o.known:
			case <-ctx.Done():
				return Record{}, context.Cause(ctx)
			}
		}
		switch {
		case !taken:
			// What stood in the way is decided now.
		case o != nil && o.err != nil:
			return Record{}, o.err
		default:
			return q.rec.Record, nil
		}
	}
}

// take accepts a write or says why not. If there is an outcome, it has to be
// waited for: that of the write, if it was taken, and otherwise that of an
// earlier one to the same key, which will make the expectation fail, or leave
// nothing to delete, if it succeeds. To answer before would tell of a write that nobody can read yet, and
// have the caller read and fail again and again until it can be.
func (s *Store) take(w Write, q queued) (o *outcome, taken bool, err error) {
	a := &s.accept
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refuse != nil {
		return nil, false, a.refuse
	}
	now, exists := s.published(w.Key)
	p, inFlight := a.pending[w.Key]
	if inFlight {
		switch fits := expected(w, p.rec, !p.deleted); {
		case fits && w.Delete && p.deleted, !fits && expected(w, now, exists):
			return p.outcome, false, nil
		case fits:
			now, exists = p.rec, !p.deleted
		}
	}
	switch {
	case !expected(w, now, exists):
		c := &ConflictError{Key: w.Key, Expect: w.Expect}
		if exists {
			c.Have = now.Revision
		}
		return nil, false, c
	case w.Delete && !exists:
		return nil, false, fmt.Errorf("%s: %w", w.Key, ErrNotFound)
	}
	a.last++
	q.rec.Revision, q.rec.Created = a.last, a.last
	if exists {
		// The key of the first write stays, so that one key is one string.
		q.rec.Key, q.rec.Created = now.Key, now.Created
	}
	if s.backend == nil {
		s.publish(q)
		return nil, true, nil
	}
	if w.Volatile && !a.flying && len(a.open.items) == 0 && a.last <= a.ceiling {
		s.publish(q)
		a.unsaved.add(q)
		return nil, true, nil
	}
	b := a.open
	o = b.done
	if w.Volatile && b.early == len(b.items) {
		b.early++
		o = b.seen
	}
	q.outcome = o
	a.pending[q.rec.Key] = q.pending
	b.items = append(b.items, q)
	if len(b.items) == 1 {
		select {
		case s.kick <- struct{}{}:
		default:
		}
	}
	return o, true, nil
}

// expected reports whether what stands at its key is what a write expects.
func expected(w Write, rec *record, exists bool) bool {
	if !exists {
		return w.Expect == 0
	}
	return w.Expect == rec.Revision
}

// published returns what readers see at a key.
func (s *Store) published(key string) (*record, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if r := s.resources[resourceOf(key)]; r != nil {
		return r.live.Get(key)
	}
	return nil, false
}

// publish makes writes visible to readers and watchers, in order. Only one
// goroutine publishes at a time: the one that holds accept.mu while no batch is
// flying, or the commit loop while one is.
func (s *Store) publish(items ...queued) {
	if len(items) == 0 {
		return
	}
	for _, q := range items {
		q.rec.Value.Place(q.rec.Created, q.rec.Revision)
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range items {
		s.resource(resourceOf(q.rec.Key)).apply(q.rec, q.deleted, now)
		s.last = q.rec.Revision
	}
	// All histories at once and seldom: a resource that is never written
	// again must let go of its old values as well.
	if now.Sub(s.trimmed) > s.opts.Keep/16 {
		s.trimmed = now
		for _, r := range s.resources {
			r.history.trim(now.Add(-s.opts.Keep))
		}
	}
}

// Run commits writes until ctx is over. Then it takes no more, makes durable what
// was accepted, volatile writes included, and closes the backend. It returns an
// error if the backend broke; what was read from the store before can be read
// afterwards, too. Run may be called once.
func (s *Store) Run(ctx context.Context) error {
	close(s.ready)
	defer close(s.stopped)
	if s.backend == nil {
		<-ctx.Done()
		s.refuseWrites(ErrStopped)
		return nil
	}
	// A backend is never interrupted in the middle of a batch.
	work := context.WithoutCancel(ctx)
	for ctx.Err() == nil {
		select {
		case <-s.kick:
		case <-ctx.Done():
			s.refuseWrites(ErrStopped)
		}
		if err := s.drain(work); err != nil {
			return errors.Join(err, s.backend.Close())
		}
	}
	s.refuseWrites(ErrStopped)
	if err := s.drain(work); err != nil {
		return errors.Join(err, s.backend.Close())
	}
	return errors.Join(s.save(work), s.backend.Close())
}

func (s *Store) refuseWrites(why error) {
	s.accept.mu.Lock()
	defer s.accept.mu.Unlock()
	s.accept.refuse = cmp.Or(s.accept.refuse, why)
}

// drain commits batches until none is open. An error means that the backend is
// broken.
func (s *Store) drain(ctx context.Context) error {
	a := &s.accept
	for {
		s.gather()
		a.mu.Lock()
		b := a.open
		a.flying = len(b.items) > 0
		if !a.flying {
			a.mu.Unlock()
			return nil
		}
		a.open = newBatch()
		a.mu.Unlock()

		err := s.commit(ctx, b)
		if full := errors.Is(err, ErrFull); full != s.full {
			s.full = full
			if full {
				s.opts.Log.ErrorContext(ctx, "the store has no space left: writes fail, reads go on", "err", err)
			} else {
				s.opts.Log.InfoContext(ctx, "the store has space again")
			}
		}
		switch {
		case s.full:
			s.fail(b, err, nil)
		case err != nil:
			err = fmt.Errorf("the store is broken: %w", err)
			s.fail(b, err, err)
			return err
		default:
			s.settle(b)
		}
	}
}

// gather lets the open batch grow for as long as others are at work on more: whoever can
// run now may be about to write, and what they write shares the sync. Where nobody waits
// to run it returns at once.
func (s *Store) gather() {
	const rounds = 8 // a batch must not wait for ever
	a := &s.accept
	for before, i := -1, 0; i < rounds; i++ {
		a.mu.Lock()
		n := len(a.open.items)
		a.mu.Unlock()
		if n == before || n == 0 {
			return
		}
		before = n
		runtime.Gosched()
	}
}

// commit makes a batch durable and visible.
func (s *Store) commit(ctx context.Context, b *batch) error {
	a := &s.accept
	if early := b.items[:b.early]; len(early) > 0 {
		if err := s.reserve(ctx, early[len(early)-1].rec.Revision); err != nil {
			return err
		}
		s.publish(early...)
		a.mu.Lock()
		for _, q := range early {
			a.unsaved.add(q)
		}
		a.mu.Unlock()
		b.seen.tell(nil)
	}
	rest := b.items[b.early:]
	if len(rest) == 0 {
		return nil
	}
	a.mu.Lock()
	entries := a.unsaved.entries(len(rest)) // nobody else adds to it while a batch is flying
	a.mu.Unlock()
	for _, q := range rest {
		entries = append(entries, q.entry())
	}
	if err := s.backend.Commit(ctx, entries); err != nil {
		return err
	}
	s.publish(rest...)
	a.mu.Lock()
	a.unsaved.clear()
	a.mu.Unlock()
	return nil
}

// reserve sees to it that volatile writes up to r may become visible (I1).
func (s *Store) reserve(ctx context.Context, r Revision) error {
	s.accept.mu.Lock()
	enough := r <= s.accept.ceiling
	s.accept.mu.Unlock()
	if enough {
		return nil
	}
	ceiling := r + reserveBlock
	if err := s.backend.Reserve(ctx, ceiling); err != nil {
		return err
	}
	s.accept.mu.Lock()
	s.accept.ceiling = ceiling
	s.accept.mu.Unlock()
	return nil
}

// settle ends a batch that went well.
func (s *Store) settle(b *batch) {
	a := &s.accept
	a.mu.Lock()
	for _, q := range b.items {
		if a.pending[q.rec.Key].rec == q.rec {
			delete(a.pending, q.rec.Key)
		}
	}
	a.mu.Unlock()
	b.done.tell(nil)
}

// fail ends a batch that did not, and with it every write accepted since: their
// expectations may rest on what has failed. refuse, if not nil, is what later
// writes get.
func (s *Store) fail(b *batch, err, refuse error) {
	a := &s.accept
	a.mu.Lock()
	later := a.open
	a.open = newBatch()
	clear(a.pending)
	a.flying = false
	a.refuse = cmp.Or(a.refuse, refuse)
	a.mu.Unlock()
	for _, o := range []*outcome{b.seen, b.done, later.seen, later.done} {
		o.tell(err)
	}
}

// save makes the volatile writes durable and gives back the revisions that were
// reserved and not used.
func (s *Store) save(ctx context.Context) error {
	a := &s.accept
	a.mu.Lock()
	entries, last, reserved := a.unsaved.entries(0), a.last, a.ceiling > 0
	a.mu.Unlock()
	if len(entries) > 0 {
		if err := s.backend.Commit(ctx, entries); err != nil {
			return fmt.Errorf("saving volatile writes: %w", err)
		}
	}
	if reserved {
		if err := s.backend.Reserve(ctx, last); err != nil {
			return fmt.Errorf("giving back reserved revisions: %w", err)
		}
	}
	return nil
}

func (q *queued) entry() Entry {
	return Entry{Key: q.rec.Key, Data: q.data, Created: q.rec.Created, Revision: q.rec.Revision}
}

// unsaved keeps the newest volatile write of each key until a sync takes it
// along. Guarded by the mu of its writes.
type unsaved struct {
	list  []Entry        // by revision; superseded ones have an empty key
	place map[string]int // where a key stands in list
}

func (u *unsaved) add(q queued) {
	if i, ok := u.place[q.rec.Key]; ok {
		u.list[i] = Entry{}
	}
	if len(u.list) > 2*len(u.place)+64 {
		u.list = slices.DeleteFunc(u.list, func(e Entry) bool { return e.Key == "" })
		for i, e := range u.list {
			u.place[e.Key] = i
		}
	}
	u.place[q.rec.Key] = len(u.list)
	u.list = append(u.list, q.entry())
}

// entries returns a new list of what is unsaved, with room for more.
func (u *unsaved) entries(more int) []Entry {
	out := make([]Entry, 0, len(u.place)+more)
	for _, e := range u.list {
		if e.Key != "" {
			out = append(out, e)
		}
	}
	return out
}

func (u *unsaved) clear() {
	clear(u.list)
	u.list = u.list[:0]
	clear(u.place)
}
