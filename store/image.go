package store

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"github.com/sampan-io/sampan/internal/run"
)

// An Image is the readable part of a store: the live records, the newest events of each resource, and the watches. It
// is in memory whole, so that reads neither wait nor fail. The store that owns it puts writes in, in the order of
// their revisions, once they are as durable as they shall be. It is safe for concurrent use.
type Image struct {
	opts  Options
	ended chan struct{} // closed when nothing will be published any more

	mu        sync.RWMutex
	resources map[string]*resource // guarded by mu
	last      Revision             // guarded by mu; newest published revision
	base      Revision             // guarded by mu; history floor of resources not met yet
	ages      []age                // guarded by mu; of revisions, oldest first
	oldest    Revision             // guarded by mu; that can be listed
	taken     span                 // guarded by mu; revisions that a crash may have taken away
	histories int64                // guarded by mu; bytes of memory that only the histories keep
	trimmed   time.Time            // guarded by mu; when the histories were last trimmed
	deadlines deadlines            // guarded by mu, but for its channel
	readers   []*reader            // guarded by mu; that wait for a revision
	progress  progress             // guarded by mu
}

// NewImage returns an empty image at revision 0, for a store that is not a [Store]. It uses the options Terms,
// History, Keep, Progress, Quota and Written.
func NewImage(opts Options) *Image {
	opts.complete()
	return &Image{
		opts:      opts,
		ended:     make(chan struct{}),
		resources: map[string]*resource{},
		trimmed:   time.Now(),
		deadlines: deadlines{keys: map[int64]map[string]struct{}{}, set: run.NewBell()},
	}
}

// fill puts in a record that the backend gave back, before there are readers. The caller holds mu for writing.
func (i *Image) fill(rec *record) {
	rec.Value.Place(rec.Created, rec.Revision)
	i.deadlines.move(rec.Key, 0, rec.expires)
	r := i.resource(resourceOf(rec.Key))
	r.live.Set(rec.Key, rec)
	for _, t := range rec.terms {
		r.terms.Set(termed{term: t, key: rec.Key, rec: rec})
	}
}

// filled ends the filling: the history begins with the writes that the backend recalled. The caller holds mu for writing.
func (i *Image) filled(got Recalled) {
	i.last, i.base, i.taken = got.Last, got.Floor, span{got.Durable, got.Last}
	for name := range got.Floors {
		i.resource(name)
	}
	for name, r := range i.resources {
		r.history.floor = max(r.history.floor, got.Floor, got.Floors[name])
	}
	i.boundHistories()
}

// A span is the revisions between two others.
type span struct{ after, before Revision }

func (s span) has(r Revision) bool { return s.after < r && r < s.before }

// resource returns the resource of that name, making it if need be. The caller
// holds mu for writing.
func (i *Image) resource(name string) *resource {
	r := i.resources[name]
	if r == nil {
		r = newResource(i.base, i.opts.History)
		i.resources[name] = r
	}
	return r
}

// Revision returns the newest revision that readers can see.
func (i *Image) Revision() Revision {
	i.mu.RLock()
	defer i.mu.RUnlock()
	return i.last
}

// A notFound is ErrNotFound of a key. Its text is made when it is read: a search for a free name expects not to find
// it.
type notFound string

func (key notFound) Error() string { return string(key) + ": " + ErrNotFound.Error() }

func (key notFound) Unwrap() error { return ErrNotFound }

// Get returns the record at key at the newest revision, or ErrNotFound.
func (i *Image) Get(key string) (Record, error) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	if r := i.resources[resourceOf(key)]; r != nil {
		if rec, ok := r.live.Get(key); ok {
			return rec.Record, nil
		}
	}
	return Record{}, notFound(key)
}

// Count returns how many records the resource has whose keys begin with the first segment of the prefix. It does not
// list them.
func (i *Image) Count(prefix string) int {
	i.mu.RLock()
	defer i.mu.RUnlock()
	if r := i.resources[resourceOf(prefix)]; r != nil {
		return r.live.Len()
	}
	return 0
}

// List returns the matching records in key order. A revision that is no longer
// in the history is ErrExpired, one that was never written ErrFuture.
//
// A list at an older revision is found by undoing the writes since then, so
// the pages of one list pin no memory, however slowly they are asked for.
func (i *Image) List(q Query, p Page) (Listing, error) {
	if err := q.check(); err != nil {
		return Listing{}, err
	}
	c := collector{q: q, p: p}
	in, err := i.listShort(&c)
	if err != nil || in == nil {
		return c.out, err
	}
	c.collect(in, 0)
	return c.out, nil
}

// listShort lists a short result under the read lock. If it is not short, the
// result is a frozen set that the caller lists at leisure.
func (i *Image) listShort(c *collector) (*set, error) {
	name := resourceOf(c.q.Prefix)
	i.mu.RLock()
	in, done, err := i.prepare(name, c)
	i.mu.RUnlock()
	if err != nil || done || in != nil {
		return in, err
	}
	// Freezing needs the write lock. Between the locks there may have been
	// writes, so that undone versions have to be found again.
	i.mu.Lock()
	defer i.mu.Unlock()
	i.resources[name].freeze()
	in, _, err = i.prepare(name, c)
	return in, err
}

// prepare finds the changes that c has to undo and lists what it can list at once; done
// reports whether that was all. Otherwise it returns the frozen set, if there
// is one. The caller holds mu.
func (i *Image) prepare(name string, c *collector) (in *set, done bool, err error) {
	at := cmp.Or(c.p.At, i.last)
	r := i.resources[name]
	floor := i.base
	if r != nil {
		floor = r.history.floor
	}
	floor = max(floor, i.oldest)
	switch {
	case at > i.last:
		return nil, false, fmt.Errorf("list of %s at revision %d, newest is %d: %w", c.q.Prefix, at, i.last, ErrFuture)
	case at < floor, i.taken.has(at):
		return nil, false, fmt.Errorf("list of %s at revision %d, history begins at %d: %w", c.q.Prefix, at, floor, ErrExpired)
	}
	c.out.Revision = at
	if r == nil || r.live.Len() == 0 && at == i.last {
		return nil, true, nil
	}
	c.undone = nil
	if at < i.last {
		c.undone = r.history.undo(at, c.q, c.p.After)
	}
	if r.frozen != nil {
		return r.frozen, false, nil
	}
	return nil, c.collect(&r.set, readerBudget), nil
}

// published returns what readers see at a key.
func (i *Image) published(key string) (*record, bool) {
	i.mu.RLock()
	defer i.mu.RUnlock()
	if r := i.resources[resourceOf(key)]; r != nil {
		return r.live.Get(key)
	}
	return nil, false
}

// Publish makes writes visible to readers and watchers, in order. Revisions rise, from one call to the next as well.
// The values are those of this image alone, which places them. One goroutine at a time calls it.
func (i *Image) Publish(events ...Event) {
	changes := make([]change, len(events))
	for n, e := range events {
		rec := &record{Record: e.Record, terms: i.opts.Terms(e.Key, e.Value)}
		rec.memory = memoryOf(rec, nil)
		changes[n] = change{rec, e.Deleted}
	}
	i.publish(changes...)
}

// End says that nothing will be published any more: watches end with ErrStopped once they have yielded everything. It
// may be called once.
func (i *Image) End() { close(i.ended) }

// A change is the next state of a key.
type change struct {
	rec     *record
	deleted bool
}

// applied is apply of a change that was loaded, whose value is not placed yet.
func (i *Image) applied(c change, now time.Time) (prev *record) {
	c.rec.Value.Place(c.rec.Created, c.rec.Revision)
	return i.apply(c, now)
}

// apply makes a change visible and returns the record before, or nil. The caller holds mu for writing.
func (i *Image) apply(c change, now time.Time) (prev *record) {
	r := i.resource(resourceOf(c.rec.Key))
	kept := r.history.bytes
	prev = r.apply(c.rec, c.deleted, now)
	i.histories += r.history.bytes - kept
	var before, after int64
	if prev != nil {
		before = prev.expires
	}
	if !c.deleted {
		after = c.rec.expires
	}
	i.deadlines.move(c.rec.Key, before, after)
	i.last = c.rec.Revision
	return prev
}

// publish makes changes visible to readers and watchers, in order. Only one goroutine publishes at a time: of a
// Store, the one that holds accept.mu while no batch is flying, or the commit loop while one is.
func (i *Image) publish(changes ...change) {
	for _, c := range changes {
		c.rec.Value.Place(c.rec.Created, c.rec.Revision)
	}
	now := time.Now()
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, c := range changes {
		i.apply(c, now)
	}
	i.boundHistories()
	i.wakeReaders()
	i.setTimer()
	i.opts.Written()
	// All histories at once and seldom: a resource that is never written
	// again must let go of its old values as well.
	if now.Sub(i.trimmed) > i.opts.Keep/16 {
		i.trimmed = now
		for _, r := range i.resources {
			r.history.trim(now.Add(-i.opts.Keep))
		}
		i.histories = i.historyBytes()
		i.ages = append(i.ages, age{i.last, now})
		for now.Sub(i.ages[0].at) > i.opts.Keep {
			i.oldest = i.ages[0].revision
			i.ages = i.ages[1:]
		}
	}
}

// An age is when a revision was the newest one.
type age struct {
	revision Revision
	at       time.Time
}
