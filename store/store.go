package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sampan-io/sampan/internal/run"
)

// A Revision numbers the writes of one store. The first write has revision 1;
// 0 stands for "before every write".
type Revision uint64

// A Value is the content of a record. The store never looks into it.
type Value interface {
	// Bytes returns the saved form. The revision is not part of it. It
	// is called at most once per write and the result is not modified.
	Bytes() []byte

	// Place sets the revision of the value and the revision of the write that created the key. It
	// is called exactly once, before any reader can see the value, and must not block.
	Place(created, revision Revision)
}

// A Record is a key and its value.
type Record struct {
	Key      string
	Value    Value    // in an event of a deletion, the value that the deletion was written with
	Created  Revision // of the write that made the key
	Revision Revision // of the last write to the key
}

// An Event is one write, as watchers see it.
type Event struct {
	Record         // after the write
	Prev    Record // before the write; the zero Record if the write made the key
	Deleted bool
}

// A Write asks for one change. Exactly one key changes.
type Write struct {
	Key string

	// Value is the new content of the record. With Delete it is the last state, which watchers receive
	// (never nil either).
	Value  Value
	Delete bool

	// Expect is the revision that the key must have now. 0 means that the key
	// must not exist.
	Expect Revision

	// Volatile says that a crash may lose this write (store-I8).
	Volatile bool

	// Frees says that the write is part of a deletion, such as an update of an object that is
	// being deleted: it may use the space that the backend keeps back. Deletions, and updates
	// that make the record no larger, need not say so.
	Frees bool

	// Reserve says how far beyond the quota of memory the write may go. Deletions, and updates
	// that make the record take no more memory, need no reserve.
	Reserve Reserve

	// Account names what shares the memory that is left when it is scarce, such as "namespace a". The writes without one
	// do not share it.
	Account string

	// Guards are the states of other keys on which the write rests.
	Guards []Guard

	// Charge names an account to which the write adds, and others do as well; nil means none.
	Charge *Charge

	// Author is the user of the write.
	Author Author
}

// A Query selects records of one resource.
type Query struct {
	// Prefix is matched against keys. It ends with "/" or is a whole key, and
	// begins with the resource, so it is never empty.
	Prefix string

	// Term, if not empty, is an index term (see Options.Terms) that the record
	// must carry.
	Term string

	// Progress asks a watch to report revisions without an event for it as well, see
	// Options.Progress. A list ignores it.
	Progress bool
}

// A Page asks for a part of a list.
type Page struct {
	After string   // begin with the first key after this one; empty means at the start
	Limit int      // at most so many records; 0 means all
	At    Revision // the state as of this revision; 0 means the newest
}

// A Listing is the answer to a list.
type Listing struct {
	Records  []Record // in key order; owned by the caller
	Revision Revision // the revision at which this was the truth
	More     bool     // the limit cut the listing
	Left     int      // number of matching records beyond the limit
}

// The errors of a store. A [*ConflictError] matches ErrConflict.
var (
	ErrNotFound = errors.New("key not found")
	ErrExpired  = errors.New("revision is no longer in the history")
	ErrFuture   = errors.New("revision has not been written yet")
	ErrConflict = errors.New("key has another revision than expected")
	ErrStopped  = errors.New("store is stopped")

	// ErrUnavailable says that the store cannot be asked now, and may be later. Nothing was written.
	ErrUnavailable = errors.New("the store cannot be reached")

	// ErrFull is wrapped by a backend's Commit and Reserve when there was no space
	// and nothing was written. The writes of that batch have failed; reads go on,
	// and so do writes as soon as there is space.
	ErrFull = errors.New("no space left for the store")
)

// A ConflictError describes the record at the key of a write whose expectation did not hold (I2).
type ConflictError struct {
	Key    string
	Expect Revision
	Have   Revision // 0 if the key does not exist
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s has revision %d, expected %d", e.Key, e.Have, e.Expect)
}

// Is makes errors.Is(err, ErrConflict) true.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// Options configures a [Store]. Decode is required.
type Options struct {
	// Decode makes the value of a record that the backend gives back: what
	// Bytes returned when it was written. It is called at the start for every
	// record, from one goroutine, and may defer the real work.
	Decode func(key string, data []byte) (Value, error)

	// Recall is Decode for the values of recent writes that later ones have replaced, so that watches from before a
	// restart go on. After an error the history of that resource begins later. It is called at the start, from the same
	// goroutine as Decode. With Nil, or without Restate, nothing is recalled.
	Recall func(key string, data []byte) (Value, error)

	// Seal returns the saved form of the bytes of a value, such as an encrypted form;
	// Decode has to undo it. It is called once per write, by the goroutine that commits, which
	// gets its error. Nil means that values are saved as they are.
	Seal func(key string, data []byte) ([]byte, error)

	// Terms returns the index terms of a value ("spec.nodeName=a"). It is called
	// once per write and must be pure. Nil means no index.
	Terms func(key string, v Value) []string

	// Claims returns the names that belong to the record of a key, and that the record of no other key may have
	// ("nodePort=30001"). It is called once per write and must be pure. Nil means none.
	Claims func(key string, v Value) []string

	// History is the number of events kept for watchers, for each resource (the
	// first segment of the key); 0 means 8192.
	History int

	// Keep is how long an event stays in the history. Without it a quiet resource would hold the old values of its last
	// History writes for ever. 0 means five minutes, after which upstream's API server compacts etcd. No list at a
	// revision that was not the newest one for longer than that, and a sixteenth more, is given: clients rely on the end
	// of such lists.
	Keep time.Duration

	// Quota is how many bytes of memory the records may take; 0 means any number. Writes beyond it
	// are refused with a [*QuotaError]. Histories may take a quarter as much on top.
	Quota int64

	// LoadLimit is how many bytes of memory the records may take for Open to succeed, which otherwise
	// returns a [*MemoryError]; 0 means any number.
	LoadLimit int64

	// Progress is how long after a write a waiting watch with Query.Progress yields the newest
	// revision at the latest, if it had no event for it; 0 means one minute, as often as upstream sends
	// bookmarks.
	Progress time.Duration

	// TTL returns how long a record with that key lives after its last write; 0 means for
	// ever. Then it is deleted by a volatile write (I9). Records that were written without a
	// time to live get one when they are loaded. It must be pure. Nil means for ever.
	TTL func(key string) time.Duration

	// Restate returns a value that holds the same as v and is not placed yet, for the deletion
	// of a record that expired. It is required with TTL.
	Restate func(v Value) Value

	// Notify is called when the store runs out of space, and when it has space again. It must
	// not block or write to the store. Nil means that this is only logged.
	Notify func(Notice)

	// Written is called after each publication of writes, with a lock held: it must not block or use
	// the store. Nil means that it is not called.
	Written func()

	Log *slog.Logger // nil means slog.Default
}

// A Notice is something that the administrator of the cluster has to know about the store.
type Notice struct {
	Warning bool
	Reason  string // in CamelCase, as in Events
	Message string
}

// A Store is an [Image] with a backend that makes its writes durable. It is safe for
// concurrent use. Make one with [Open]; its writes are made durable by [Store.Run].
type Store struct {
	*Image

	opts    Options
	backend Backend // nil: memory only
	ready   chan struct{}
	kick    run.Bell // rung when a batch is open
	rewrite run.Bell // rung by Rewrite
	purges  chan purge
	syncs   syncs

	// Taken before the image's mu where both are needed.
	accept writes // its fields are guarded by accept.mu
}

// Open loads a store from its backend; nil means that it lives in memory alone.
// Reads and watches work from then on, writes once [Store.Run] runs. The
// store owns the backend: Run closes it, and so does Open when it fails.
func Open(ctx context.Context, backend Backend, opts Options) (*Store, error) {
	if opts.Decode == nil && backend != nil {
		return nil, errors.Join(errors.New("store: Options.Decode is nil"), backend.Close())
	}
	if opts.TTL != nil && opts.Restate == nil {
		err := errors.New("store: Options.Restate is nil, though there is a TTL")
		if backend != nil {
			err = errors.Join(err, backend.Close())
		}
		return nil, err
	}
	opts.complete()
	s := &Store{
		Image:   NewImage(opts),
		opts:    opts,
		backend: backend,
		ready:   make(chan struct{}),
		kick:    run.NewBell(),
		rewrite: run.NewBell(),
		purges:  make(chan purge),
	}
	s.accept.pending = map[string]pending{}
	s.accept.quota.limit = opts.Quota
	s.accept.unsaved.place = map[string]int{}
	if backend == nil {
		return s, nil
	}
	if err := s.load(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("loading the store: %w", err), backend.Close())
	}
	return s, nil
}

// complete sets the defaults.
func (o *Options) complete() {
	o.History = cmp.Or(o.History, 8192)
	o.Keep = cmp.Or(o.Keep, 5*time.Minute)
	o.Progress = cmp.Or(o.Progress, time.Minute)
	o.Log = cmp.Or(o.Log, slog.Default())
	if o.Terms == nil {
		o.Terms = func(string, Value) []string { return nil }
	}
	if o.Claims == nil {
		o.Claims = func(string, Value) []string { return nil }
	}
	if o.TTL == nil {
		o.TTL = func(string) time.Duration { return 0 }
	}
	if o.Notify == nil {
		o.Notify = func(Notice) {}
	}
	if o.Written == nil {
		o.Written = func() {}
	}
}

func (s *Store) load(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := load{limit: s.opts.LoadLimit}
	if err := l.measure(s.backend); err != nil {
		return err
	}
	each := func(e Entry) error {
		rec, err := s.loaded(e, s.opts.Decode)
		if err != nil {
			return err
		}
		if l.used += int64(rec.memory); l.over() {
			s.resources = map[string]*resource{} // the rest is only counted
			return nil
		}
		s.fill(rec)
		s.loadClaims(rec)
		return nil
	}
	now := time.Now()
	floors := map[string]Revision{}
	recent := func(e Entry, newest bool) error {
		if l.over() {
			return nil
		}
		c, err := s.recalled(e, newest)
		if err != nil && !newest {
			floors[resourceOf(e.Key)] = e.Revision
			return nil
		}
		if err != nil || c.rec == nil {
			return err
		}
		if !c.deleted {
			l.used += int64(c.rec.memory)
			s.loadClaims(c.rec)
		}
		if prev := s.applied(c, now); prev != nil {
			l.used -= int64(prev.memory)
			s.accept.claims.publish(e.Key, e.Revision)
		}
		return nil
	}
	var got Recalled
	var err error
	if b, ok := s.backend.(Recaller); ok && s.opts.Recall != nil && s.opts.Restate != nil {
		got, err = b.LoadRecent(ctx, each, recent)
		for name, floor := range floors {
			got.Floors[name] = max(got.Floors[name], floor)
		}
	} else if got.Last, err = s.backend.Load(ctx, each); err == nil {
		got.Durable, got.Floor = got.Last, got.Last
	}
	switch {
	case err != nil:
		return err
	case l.over():
		return &MemoryError{Needs: l.used, Limit: l.limit}
	}
	s.accept.quota.used = l.used
	s.filled(got)
	s.accept.last = got.Last
	s.accept.charges.floor = got.Last
	return nil
}

// loaded returns the record of an entry.
func (s *Store) loaded(e Entry, decode func(string, []byte) (Value, error)) (*record, error) {
	v, err := decode(e.Key, e.Data)
	if err != nil {
		return nil, fmt.Errorf("decoding %s: %w", e.Key, err)
	}
	rec := &record{Record: Record{e.Key, v, e.Created, e.Revision}, terms: s.opts.Terms(e.Key, v), size: e.Size(), expires: e.Expires}
	rec.memory = memoryOf(rec, e.Data)
	if ttl := s.opts.TTL(e.Key); ttl > 0 && e.Expires == 0 {
		rec.expires = deadline(time.Now(), ttl)
	}
	return rec, nil
}

// recalled returns the change of a recent write. It has no record if the write deleted one that the backend never had:
// a volatile one. The caller holds mu.
func (s *Store) recalled(e Entry, newest bool) (change, error) {
	if e.Data != nil {
		decode := s.opts.Recall
		if newest {
			decode = s.opts.Decode
		}
		rec, err := s.loaded(e, decode)
		return change{rec: rec}, err
	}
	r := s.resource(resourceOf(e.Key))
	prev, ok := r.live.Get(e.Key)
	if !ok {
		return change{}, nil
	}
	rec := &record{Record: Record{prev.Key, s.opts.Restate(prev.Value), prev.Created, e.Revision}, terms: prev.terms}
	rec.memory = memoryOf(rec, nil)
	return change{rec: rec, deleted: true}, nil
}

// Fresh blocks until readers see every write that was acknowledged before the call, by whichever server, or until ctx
// is over, and then returns its cause. ErrUnavailable means that this cannot be known now. This store shows a write
// before it acknowledges it, and no other process writes to its backend, so it does not block, and does not fail.
func (s *Store) Fresh(context.Context) error { return nil }

// Ready is closed once writes are taken.
func (s *Store) Ready() <-chan struct{} { return s.ready }

// A Backend keeps the history on a durable medium. Its methods are called from
// one goroutine at a time. Run [storetest] on yours.
//
// [storetest]: https://pkg.go.dev/github.com/sampan-io/sampan/store/storetest
type Backend interface {
	// Load calls each for every live record, in any order, and returns a
	// revision above which none was ever used (I1). It is called once, first.
	Load(ctx context.Context, each func(Entry) error) (Revision, error)

	// Commit makes the entries of a batch durable in one step, or none of them (I6). An
	// empty batch writes nothing and returns whether there is space for others. The sizes of
	// the entries are less than MaxBatch together.
	Commit(ctx context.Context, batch Batch) error

	// Reserve makes durable that revisions up to ceiling may have been used, so
	// that Load returns at least that after a crash. The same ceiling again says that entries to come may be
	// durable before volatile writes with lower revisions, until a lower ceiling is reserved. It replaces the one
	// before: a clean stop lowers the ceiling to the revision last used. It may use the space
	// that is kept back for batches that free some.
	Reserve(ctx context.Context, ceiling Revision) error

	// Close releases the medium. Everything committed is durable already.
	Close() error
}

// A Recaller is a backend that can give back its newest writes one by one, so that watches from before a restart go on.
type Recaller interface {
	// LoadRecent is called in place of Load. It calls each for the records that were live before the recent writes, in any
	// order, and then recent for these, in the order of their revisions, deletions included. Recent writes are few, and
	// their data is small. The newest write to a key says so.
	LoadRecent(ctx context.Context, each func(Entry) error, recent func(e Entry, newest bool) error) (Recalled, error)
}

// Recalled says what a [Recaller] gave back.
type Recalled struct {
	Last    Revision // above which none was ever used, as Load returns it
	Durable Revision // of the newest write that was found: a crash may have taken those between it and Last

	// Floors are the newest revisions of writes to each resource that were not passed to recent. A resource that is not in
	// it has no writes after Floor but these.
	Floors map[string]Revision
	Floor  Revision
}

// A Rewriter is a backend that can write all its records again, after a change of the bytes that are saved for values.
type Rewriter interface {
	// Rewrite begins to write all records again and to remove the files that have them now. It may
	// wait for earlier work of this kind, but not for the new one. Records that are committed later are
	// not concerned. An error breaks the backend.
	Rewrite(ctx context.Context) error
}

// A Batch is the writes of one commit.
type Batch struct {
	// Entries have rising revisions, each above all earlier ones of its key.
	Entries []Entry

	// Frees says that the writes lead to less data: a backend that keeps space back for this
	// gives it to them. Other batches get ErrFull when only that space is left.
	Frees bool

	// Room is for a batch without entries, which writes nothing: ErrFull then means that there is no
	// space for a batch of so many bytes.
	Room int
}

// An Entry is a record as backends see it. A nil Data deletes the key.
type Entry struct {
	Key      string
	Data     []byte
	Created  Revision
	Revision Revision

	// Expires is when the record is to be deleted, in Unix seconds; 0 means never. Backends
	// only keep it.
	Expires int64

	// Replaces is the Size of the entry that this one replaces; 0 if there is none. With it a
	// backend knows how much of its history is live. Load leaves it out.
	Replaces int

	// At is when the write was accepted, in Unix milliseconds. Backends that keep superseded writes keep it and the author
	// with them; Load leaves both out.
	At     int64
	Author Author
}

// Size returns about how many bytes the entry takes on a medium; 0 for a deletion, which leaves
// nothing.
func (e Entry) Size() int {
	if e.Data == nil {
		return 0
	}
	const numbers = 24 // lengths, revisions below 2^35 and the deadline
	return numbers + len(e.Key) + len(e.Data)
}
