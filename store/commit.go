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

	"github.com/sampan-io/sampan/internal/run"
)

// # How a write is committed
//
// There are two kinds of write. A durable write becomes visible to readers, and is answered,
// after the backend has made it durable. A volatile write (store-I8) becomes visible and is
// answered without that; it is then unsaved until some later commit takes it along.
//
// Commit checks the expectation of a write, gives it the next revision and puts it into the
// last batch of the queue, all under writes.mu. It then waits for the outcome of the write.
// Run takes one batch at a time from the front of the queue: the batch is flying. Whatever
// is accepted meanwhile collects in the next batch and shares its sync.
//
// Revisions are published in the order in which they were given. Therefore a volatile write
// cannot overtake a durable one that was accepted before it, and there are three places for a
// volatile write:
//
//   - Nothing is flying or queued: it is published by Commit itself. This is the usual case of
//     an idle cluster, and costs no goroutine switch.
//   - It is in a batch and all writes before it in that batch are volatile. These form the
//     early part of the batch: when Run takes the batch, it publishes them first and sets the
//     outcome "seen", before the backend is called.
//   - There is a durable write before it in the batch. Then it is treated as a durable write:
//     it is published with the rest of the batch, when the sync is done, and Run sets the
//     outcome "done".
//
// So a batch has two parts with one outcome each:
//
//	items:  v v v | d v d d v
//	        early   rest
//	        seen    done
//
// The unsaved writes, which are the newest volatile state of each key, are saved in front of
// the rest of a batch, in the same commit, so that a crash keeps a prefix of the history. They
// are bounded: before the bound would be passed they are saved on their own.
//
// # When there is no space
//
// A backend that has no space keeps some back for writes that lead to less data: deletions,
// updates that make a record smaller, and updates of objects that are being deleted
// (Write.Frees). After the first [ErrFull] the store is full: a batch then holds either writes
// that free space or writes that do not, never both, so that a batch of the first kind is not
// failed by one of the second. The writes of a batch that was mixed when the store became full
// are accepted again from the beginning (errAgain), and so are later ones that
// touch a key of a failed write. A volatile write that would make the unsaved ones grow
// goes to the backend like a durable one, so that it fails as well.
//
// A batch that frees space is first offered to the backend like any other; if that fails, it
// is committed without the unsaved writes, out of the space kept back. This is the only case
// in which a crash may lose a volatile write but keep a durable one that came after it.
//
// The store is no longer full when the backend has space for a batch of usual size without the
// space kept back. While it is full, Run asks for that now and then, and after each commit that
// did not need that space: a small write may fit where the next one does not.

// writes is the state of accepted writes that readers cannot see yet.
type writes struct {
	mu      sync.Mutex
	last    Revision           // newest revision given to a write
	ceiling Revision           // volatile writes up to here may become visible
	pending map[string]pending // the newest accepted write to a key, while it is not published
	queue   []*batch           // accepted writes by revision; the last batch collects more
	flying  bool               // a batch is being committed
	unsaved unsaved
	quota   quota
	claims  claims
	charges charges
	full    error // not nil: the backend has no space for writes that do not free any
	refuse  error // not nil: no more writes, and why
}

// A pending is the next state of a key.
type pending struct {
	change
	outcome *outcome // of its part of the batch
}

// A queued is an accepted write in a batch.
type queued struct {
	pending
	data     []byte
	replaces int   // size of the record before, see Entry.Replaces
	growth   int64 // bytes of memory that the record takes more than the one before
	account  string
	claims   []string
	claiming bool   // the key has claims, before or after the write
	charged  string // account of the charge, or empty
	at       int64  // when it was accepted, in Unix milliseconds
	author   Author
}

// A batch is a run of writes, in the order of their revisions, that share a sync.
type batch struct {
	items     []queued
	changes   []change  // those of the items
	one       [1]change // where changes begin
	early     int       // number of leading volatile writes
	published bool      // the early ones are visible
	frees     bool      // all writes free space
	size      int       // in bytes
	seen      *outcome
	done      *outcome
}

// An outcome is the result of the writes of one part of a batch.
type outcome struct {
	known chan struct{}
	err   error // set before known is closed
}

func newBatch(frees bool) *batch {
	b := &batch{
		frees: frees,
		seen:  &outcome{known: make(chan struct{})},
		done:  &outcome{known: make(chan struct{})},
	}
	b.changes = b.one[:0]
	return b
}

// set sets the outcome. Only the first call has an effect.
func (o *outcome) set(err error) {
	select {
	case <-o.known:
	default:
		o.err = err
		close(o.known)
	}
}

// errAgain is the outcome of writes that were not tried, and have to be accepted again.
var errAgain = errors.New("not tried")

const (
	// reserveBlock is the number of revisions reserved at a time for volatile writes. A
	// cluster that only renews leases reserves about once in a year per node; a crash costs
	// at most this many of the 2^63 revisions.
	reserveBlock = 1 << 20

	// maxValue is the largest value that is accepted, in bytes. API requests are smaller.
	maxValue = 16 << 20

	// maxShared is the size in bytes from which on a batch takes no more writes.
	maxShared = 8 << 20

	// The unsaved writes are saved before there are more than so many, or so many bytes of
	// them. The renewals of the largest cluster (5,000 nodes) stay far below.
	maxUnsaved      = 16 << 10
	maxUnsavedBytes = 4 << 20

	// retryFull is how often a store that is full tries whether it still is.
	retryFull = 5 * time.Second

	// usualBatch is for how many bytes a store that was full must have space. Most objects are
	// smaller.
	usualBatch = 64 << 10
)

// MaxBatch is an upper bound of the size of a batch, as [Entry.Size] counts: the largest value
// on top of a full batch and twice the unsaved writes, and some space to spare.
const MaxBatch = 64 << 20

// Commit makes one write and returns the record as written; after a deletion
// this is the last state, with the revision of the deletion. It blocks until the
// write is durable (or, if volatile, visible).
//
// A failed expectation is a [*ConflictError], returned once the caller can read the state it lost against, and a failed
// condition a [*GuardError], [*ClaimError] or [*ChargeError] in the same way; to delete a key that does not exist is
// ErrNotFound. If ctx ends first the write may still happen. ErrFull means that there was no space and that nothing was
// written. Any other error means that the backend is broken; the store then refuses all further writes.
func (s *Store) Commit(ctx context.Context, w Write) (Record, error) {
	switch {
	case w.Value == nil:
		return Record{}, fmt.Errorf("store: write to %q without a value", w.Key)
	case w.Key == "" || strings.HasPrefix(w.Key, "/") || strings.HasSuffix(w.Key, "/"):
		return Record{}, fmt.Errorf("store: bad key %q", w.Key)
	case ctx.Err() != nil:
		return Record{}, context.Cause(ctx)
	}
	q := queued{
		pending: pending{change: change{rec: &record{Record: Record{Key: w.Key, Value: w.Value}}, deleted: w.Delete}},
		at:      time.Now().UnixMilli(), author: w.Author,
	}
	q.rec.terms = s.opts.Terms(w.Key, w.Value)
	if !w.Delete {
		q.claims = s.opts.Claims(w.Key, w.Value)
	}
	if ttl := s.opts.TTL(w.Key); ttl > 0 && !w.Delete {
		q.rec.expires = deadline(time.Now(), ttl)
	}
	if s.backend != nil && !w.Delete {
		q.data = w.Value.Bytes()
		if q.data == nil {
			q.data = []byte{} // nil deletes
		}
		if s.opts.Seal != nil {
			var err error
			if q.data, err = s.opts.Seal(w.Key, q.data); err != nil {
				return Record{}, err
			}
		}
		if len(w.Key)+len(q.data) > maxValue {
			return Record{}, fmt.Errorf("store: the value of %q has %d bytes, want at most %d", w.Key, len(q.data), maxValue)
		}
		q.rec.size = q.entry().Size()
	}
	q.rec.memory = memoryOf(q.rec, q.data)
	for {
		o, taken, err := s.acceptWrite(w, q)
		if over, ok := errors.AsType[*QuotaError](err); ok {
			s.refused(over)
		}
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
		case !taken, o != nil && errors.Is(o.err, errAgain):
			// The write that this one has to wait for is decided now.
		case o != nil && o.err != nil:
			return Record{}, o.err
		default:
			s.relieved()
			return q.rec.Record, nil
		}
	}
}

// acceptWrite accepts a write or returns why not. If there is an outcome, it has to be
// waited for: that of the write, if it was taken, and otherwise that of an
// earlier one to the same key, which will make the expectation fail, or leave
// nothing to delete, if it succeeds. An earlier answer would report a write that
// cannot be read yet, and the caller would read and fail until it can be.
func (s *Store) acceptWrite(w Write, q queued) (o *outcome, taken bool, err error) {
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
		return nil, false, notFound(w.Key)
	}
	if o, err = s.checkConditions(&w, q.claims); o != nil || err != nil {
		return o, false, err
	}
	q.growth, q.account = growth(w, q.rec, now, exists), w.account()
	if err := a.quota.admit(q.growth, w); err != nil {
		return nil, false, err
	}
	a.last++
	a.quota.count(q.growth, q.account)
	q.rec.Revision, q.rec.Created = a.last, a.last
	if exists {
		// The key of the first write stays, so that one key is one string.
		q.rec.Key, q.rec.Created = now.Key, now.Created
		q.replaces = now.size
	}
	q.claiming = a.claims.add(q.rec.Key, q.rec.Revision, q.claims)
	if w.Charge != nil {
		q.charged = w.Charge.Account
		a.charges.note(w.Charge, q.rec.Key, q.rec.Revision, s.Revision())
	}
	if s.backend == nil {
		s.publish(q.change)
		a.settleClaims(q)
		return nil, true, nil
	}
	frees := w.Frees || w.Delete || exists && q.rec.size <= now.size
	// On a full disk only volatile writes that do not grow go without the backend.
	early := w.Volatile && (a.full == nil || frees)
	if early && !a.flying && len(a.queue) == 0 && a.last <= a.ceiling && a.unsaved.fits(frees, q) {
		s.publish(q.change)
		a.settleClaims(q)
		a.unsaved.add(q)
		return nil, true, nil
	}
	b := a.batchFor(frees, q.rec.size)
	o = b.done
	if early && b.early == len(b.items) {
		b.early++
		o = b.seen
	}
	q.outcome = o
	a.pending[q.rec.Key] = q.pending
	b.items, b.changes = append(b.items, q), append(b.changes, q.change)
	b.size += q.rec.size + len(q.rec.Key)
	s.wake()
	return o, true, nil
}

// batchFor returns the batch that takes the next write. The caller holds mu.
func (a *writes) batchFor(frees bool, size int) *batch {
	if n := len(a.queue); n > 0 {
		b := a.queue[n-1]
		if b.size+size <= maxShared && (a.full == nil || b.frees == frees) {
			b.frees = b.frees && frees
			return b
		}
	}
	b := newBatch(frees)
	a.queue = append(a.queue, b)
	return b
}

// wake makes Run look at the queue.
func (s *Store) wake() {
	s.kick.Ring()
}

// expected reports whether the record at the key of a write is as the write expects.
func expected(w Write, rec *record, exists bool) bool {
	if !exists {
		return w.Expect == 0
	}
	return w.Expect == rec.Revision
}

// Run commits writes until ctx is cancelled, and deletes the records whose time to live has passed.
// Then it accepts no more writes, makes the accepted ones durable, volatile writes included, and
// closes the backend. It returns an error if the backend failed; the store can still be read
// afterwards. Run may be called once.
func (s *Store) Run(ctx context.Context) error {
	close(s.ready)
	defer s.End()
	expiry := run.NewGroup(ctx, 0)
	expiry.Go(s.expire)
	defer expiry.Stop()
	if s.backend == nil {
		<-ctx.Done()
		s.refuseWrites(ErrStopped)
		return nil
	}
	// A backend is never interrupted in the middle of a batch.
	work := context.WithoutCancel(ctx)
	retry := time.NewTimer(retryFull)
	defer retry.Stop()
	for ctx.Err() == nil {
		var again <-chan time.Time
		if s.Full() != nil {
			retry.Reset(retryFull)
			again = retry.C
		}
		var err error
		select {
		case <-s.kick:
			err = s.drain(work)
		case <-again:
			err = s.tryRoom(work)
		case <-s.rewrite:
			if r, ok := s.backend.(Rewriter); ok {
				if err = r.Rewrite(work); err != nil {
					err = s.breaks(nil, err)
				}
			}
		case p := <-s.purges:
			if err = s.startPurge(work, p); err != nil {
				err = s.breaks(nil, err)
			}
		case <-ctx.Done():
		}
		if err != nil {
			return errors.Join(err, s.backend.Close())
		}
	}
	s.refuseWrites(ErrStopped)
	if err := s.drain(work); err != nil {
		return errors.Join(err, s.backend.Close())
	}
	return errors.Join(s.save(work), s.backend.Close())
}

// Rewrite makes the backend write all records again, if it is a [Rewriter], because Options.Seal now returns something
// else. It returns at once: Run does the work.
func (s *Store) Rewrite() {
	s.rewrite.Ring()
}

func (s *Store) refuseWrites(why error) {
	s.accept.mu.Lock()
	defer s.accept.mu.Unlock()
	s.accept.refuse = cmp.Or(s.accept.refuse, why)
}

// Full returns nil, or an ErrFull that says why writes are refused that do not free space.
func (s *Store) Full() error {
	s.accept.mu.Lock()
	defer s.accept.mu.Unlock()
	return s.accept.full
}

// Refused returns nil, or why the store takes no more writes at all: it is stopped or broken.
func (s *Store) Refused() error {
	s.accept.mu.Lock()
	defer s.accept.mu.Unlock()
	return s.accept.refuse
}

// setFull records that there is no space (err), or that there is again (nil).
func (s *Store) setFull(err error) {
	a := &s.accept
	a.mu.Lock()
	changed := (a.full == nil) != (err == nil)
	a.full = err
	a.mu.Unlock()
	switch {
	case !changed:
	case err != nil:
		s.opts.Log.Error("the store has no space left: only deletions and updates that free space succeed", "err", err)
		s.opts.Notify(Notice{Warning: true, Reason: "StoreFull", Message: fmt.Sprintf("The store has no space left: only deletions and updates that free space succeed: %v", err)})
	default:
		s.opts.Log.Info("the store has space again")
		s.opts.Notify(Notice{Reason: "StoreSpaceRecovered", Message: "The store has space again: all writes succeed"})
	}
}

// tryRoom finds out whether a store that was full has space again. Like drain it returns an
// error if the backend is broken.
func (s *Store) tryRoom(ctx context.Context) error {
	err := s.backend.Commit(ctx, Batch{Room: usualBatch})
	if err != nil && !errors.Is(err, ErrFull) {
		return s.breaks(nil, err)
	}
	s.setFull(err)
	return nil
}

// breaks makes the store refuse all writes because its backend is broken. b may be nil.
func (s *Store) breaks(b *batch, err error) error {
	err = fmt.Errorf("the store is broken: %w", err)
	if b == nil {
		b = newBatch(false)
	}
	s.fail(b, err, err, err)
	return err
}

// Settled blocks while a write to the key that was accepted before the call is not decided, or until ctx is
// over, and then returns its cause. A write that expects the revision from before would fail with a
// [*ConflictError] unless that one fails.
func (s *Store) Settled(ctx context.Context, key string) error {
	s.accept.mu.Lock()
	p, ok := s.accept.pending[key]
	s.accept.mu.Unlock()
	if !ok {
		return nil
	}
	select {
	case <-p.outcome.known:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// drain commits batches until none is queued. An error means that the backend is
// broken.
func (s *Store) drain(ctx context.Context) error {
	a := &s.accept
	for {
		s.gather()
		a.mu.Lock()
		a.flying = len(a.queue) > 0
		if !a.flying {
			a.mu.Unlock()
			return nil
		}
		b, wasFull := a.queue[0], a.full != nil
		a.queue = slices.Delete(a.queue, 0, 1)
		a.mu.Unlock()

		kept, err := s.commit(ctx, b)
		switch {
		case err == nil:
			var broken error
			if !kept && wasFull {
				broken = s.tryRoom(ctx)
			}
			s.settleBatch(b)
			if broken != nil {
				return broken
			}
		case !errors.Is(err, ErrFull):
			return s.breaks(b, err)
		case wasFull || b.frees:
			s.setFull(err)
			s.fail(b, err, errAgain, nil)
		default:
			// Those of its writes that free space may succeed on their own.
			s.setFull(err)
			s.fail(b, errAgain, errAgain, nil)
		}
	}
}

// gather lets the last batch grow for as long as others are at work on more: a goroutine that
// can run now may be about to write, and its write shares the sync. Where none waits to run
// it returns at once.
func (s *Store) gather() {
	const rounds = 8 // a batch must not wait for ever
	a := &s.accept
	for before, i := Revision(0), 0; i < rounds; i++ {
		a.mu.Lock()
		last, empty := a.last, len(a.queue) == 0
		a.mu.Unlock()
		if last == before || empty {
			return
		}
		before = last
		runtime.Gosched()
	}
}

// commit makes a batch durable and visible. It reports whether that took space that the
// backend keeps back.
func (s *Store) commit(ctx context.Context, b *batch) (kept bool, err error) {
	if err := s.commitEarly(ctx, b); err != nil {
		return false, err
	}
	rest := b.items[b.early:]
	if len(rest) == 0 {
		return true, nil // nothing was tried
	}
	a := &s.accept
	a.mu.Lock()
	entries := a.unsaved.entries(len(rest)) // no other goroutine adds to it while a batch is flying
	a.mu.Unlock()
	for i := range rest {
		entries = append(entries, rest[i].entry())
	}
	start := time.Now()
	err = s.backend.Commit(ctx, Batch{Entries: entries})
	s.syncs.observe(time.Since(start), len(entries))
	if b.frees && errors.Is(err, ErrFull) {
		return true, s.commitKept(ctx, b)
	}
	if err != nil {
		return false, err
	}
	s.publish(b.changes[b.early:]...)
	a.mu.Lock()
	a.unsaved.clear()
	a.mu.Unlock()
	return false, nil
}

// commitEarly makes the volatile writes at the beginning of a batch visible.
func (s *Store) commitEarly(ctx context.Context, b *batch) error {
	early := b.items[:b.early]
	if len(early) == 0 {
		return nil
	}
	if err := s.reserve(ctx, early[len(early)-1].rec.Revision); err != nil {
		return err
	}
	a := &s.accept
	a.mu.Lock()
	fits := a.unsaved.fits(b.frees, early...)
	a.mu.Unlock()
	if !fits {
		if err := s.saveUnsaved(ctx); err != nil {
			return err
		}
	}
	s.publish(b.changes[:b.early]...)
	a.mu.Lock()
	for _, q := range early {
		a.unsaved.add(q)
	}
	a.settleClaims(early...)
	a.mu.Unlock()
	b.published = true
	b.seen.set(nil)
	return nil
}

// commitKept commits the rest of a batch that frees space out of the space that the backend keeps back. Unsaved
// writes, which may be large, stay unsaved unless these writes replace them.
func (s *Store) commitKept(ctx context.Context, b *batch) error {
	items := b.items[b.early:]
	a := &s.accept
	entries := make([]Entry, 0, len(items))
	a.mu.Lock()
	first := map[string]bool{}
	for i := range items {
		e := items[i].entry()
		if size, ok := a.unsaved.replaces(e.Key); ok && !first[e.Key] {
			e.Replaces = size
		}
		first[e.Key] = true
		entries = append(entries, e)
	}
	gaps, ceiling := len(a.unsaved.place) > 0, a.ceiling
	a.mu.Unlock()
	if gaps {
		if err := s.backend.Reserve(ctx, ceiling); err != nil {
			return err
		}
	}
	if err := s.backend.Commit(ctx, Batch{Entries: entries, Frees: true}); err != nil {
		return err
	}
	s.publish(b.changes[b.early:]...)
	a.mu.Lock()
	for i := range items {
		a.unsaved.remove(items[i].rec.Key)
	}
	a.mu.Unlock()
	return nil
}

// saveUnsaved makes the volatile writes durable that are not yet.
func (s *Store) saveUnsaved(ctx context.Context) error {
	a := &s.accept
	a.mu.Lock()
	entries := a.unsaved.entries(0)
	a.mu.Unlock()
	if len(entries) == 0 {
		return nil
	}
	if err := s.backend.Commit(ctx, Batch{Entries: entries}); err != nil {
		return err
	}
	a.mu.Lock()
	a.unsaved.clear()
	a.mu.Unlock()
	return nil
}

// reserve sees to it that volatile writes up to r may become visible (store-I1).
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

// settleBatch ends a batch that succeeded.
func (s *Store) settleBatch(b *batch) {
	a := &s.accept
	a.mu.Lock()
	a.forget(b)
	a.settleClaims(b.items[b.early:]...)
	a.mu.Unlock()
	b.done.set(nil)
}

// forget takes the writes of a batch out of pending. The caller holds mu.
func (a *writes) forget(b *batch) {
	for i := range b.items {
		if rec := b.items[i].rec; a.pending[rec.Key].rec == rec {
			delete(a.pending, rec.Key)
		}
	}
}

// fail ends a batch that was not committed; its writes get err. Writes that were accepted
// later get later if their expectations may rest on a write that failed, which are those of
// the batches that share a key with it. refuse, if not nil, is the error of all writes to
// come, and then every write in the queue gets later.
func (s *Store) fail(b *batch, err, later, refuse error) {
	a := &s.accept
	a.mu.Lock()
	failed, published := map[string]bool{}, s.Revision()
	items := b.items
	if b.published {
		items = items[b.early:]
	}
	for i := range items {
		failed[items[i].rec.Key] = true
		a.takeBack(&items[i], published)
	}
	a.forget(b)
	var kept, dropped []*batch
	for _, l := range a.queue {
		if refuse == nil && !l.touches(failed) {
			kept = append(kept, l)
			continue
		}
		dropped = append(dropped, l)
		a.forget(l)
		for i := range l.items {
			failed[l.items[i].rec.Key] = true
			a.takeBack(&l.items[i], published)
		}
	}
	a.queue = kept
	a.refuse = cmp.Or(a.refuse, refuse)
	a.flying = len(kept) > 0 // false for a moment only: drain looks again
	a.mu.Unlock()
	b.seen.set(err)
	b.done.set(err)
	for _, l := range dropped {
		l.seen.set(later)
		l.done.set(later)
	}
}

// takeBack takes an accepted write that failed out of the counts of all writes. The caller holds mu.
func (a *writes) takeBack(q *queued, published Revision) {
	a.quota.count(-q.growth, q.account)
	if q.claiming {
		a.claims.fail(q.rec.Key, q.rec.Revision)
	}
	if q.charged != "" {
		a.charges.fail(q.charged, q.rec.Revision, published)
	}
}

// touches reports whether a write of the batch is to one of the keys.
func (b *batch) touches(keys map[string]bool) bool {
	for i := range b.items {
		if keys[b.items[i].rec.Key] {
			return true
		}
	}
	return false
}

// save makes the volatile writes durable and gives back the revisions that were
// reserved and not used. On a full disk it may do less: then the unsaved writes are lost, as
// in a crash, and the revisions stay reserved, so that a watch from before finds out.
func (s *Store) save(ctx context.Context) error {
	a := &s.accept
	a.mu.Lock()
	last, reserved := a.last, a.ceiling > 0
	a.mu.Unlock()
	err := s.saveUnsaved(ctx)
	if err == nil && reserved {
		err = s.backend.Reserve(ctx, last)
	}
	switch {
	case errors.Is(err, ErrFull):
		s.opts.Log.WarnContext(ctx, "no space to save Events and renewals of Leases at the stop", "err", err)
	case err != nil:
		return fmt.Errorf("saving volatile writes: %w", err)
	}
	return nil
}

func (q *queued) entry() Entry {
	return Entry{
		Key: q.rec.Key, Data: q.data, Created: q.rec.Created, Revision: q.rec.Revision, Expires: q.rec.expires, Replaces: q.replaces,
		At: q.at, Author: q.author,
	}
}
