package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
)

// A Revision numbers the writes of one store. The first write has revision 1;
// 0 stands for "before every write".
type Revision uint64

// A Value is what a record holds. The store never looks into it.
type Value interface {
	// Bytes returns what the backend saves. The revision is not part of it. It
	// is called at most once per write and the result is not modified.
	Bytes() []byte

	// Place tells the value its revision and the revision of the write that
	// created the key. It is called exactly once, before any reader can see the
	// value, and must not block.
	Place(created, revision Revision)
}

// A Record is a key and what stands there.
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

	// Value is what the record shall hold. With Delete it is the last state that
	// watchers are told (never nil either).
	Value  Value
	Delete bool

	// Expect is the revision that the key must have now. 0 means that the key
	// must not exist.
	Expect Revision

	// Volatile says that a crash may lose this write (I8).
	Volatile bool
}

// A Query selects records.
type Query struct {
	// Prefix is matched against keys. It ends with "/" or is a whole key.
	Prefix string

	// Term, if not empty, is an index term (see Options.Terms) that the record
	// must carry.
	Term string
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
)

// A ConflictError tells what stands at the key of a write whose expectation did
// not hold (I2).
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

	// Terms returns the index terms of a value ("spec.nodeName=a"). It is called
	// once per write and must be pure. Nil means no index.
	Terms func(key string, v Value) []string

	// History is the number of events kept for watchers, for each resource (the
	// first segment of the key); 0 means 8192.
	History int

	Log *slog.Logger // nil means slog.Default
}

// Interface is what callers use of a [*Store]. It is safe for concurrent use.
type Interface interface {
	// Revision returns the newest revision that readers can see.
	Revision() Revision

	// Get returns the record at key at the newest revision, or ErrNotFound.
	Get(key string) (Record, error)

	// List returns the matching records in key order. A revision that is no
	// longer in the history is ErrExpired, one that was never written ErrFuture.
	List(q Query, p Page) (Listing, error)

	// Commit makes one write and returns the record as written; after a deletion
	// this is the last state, with the revision of the deletion. It blocks until
	// the write is durable (or, if volatile, visible). A failed expectation is
	// a *ConflictError. If ctx ends first the write may still happen. Any other
	// error means that the backend is broken; the store then refuses all
	// further writes.
	Commit(ctx context.Context, w Write) (Record, error)

	// Watch yields the events after the given revision that match q (before or
	// after the write: the caller sees records come into and go out of a term),
	// waiting for more until ctx is over or the caller leaves the loop. It
	// starts no goroutine: a caller that stops reading holds up nobody, falls
	// behind, and past the history gets ErrExpired. An error is the last thing
	// yielded; the end of ctx is context.Cause(ctx).
	//
	// Between events it yields an Event with an empty Key whenever it is about to
	// wait: its Revision says that everything up to there was told. Callers
	// use it to flush what they buffered and for bookmarks.
	Watch(ctx context.Context, q Query, after Revision) iter.Seq2[Event, error]
}

// A Backend keeps the history on a durable medium. Its methods are called from
// one goroutine at a time. Run [storetest] on yours.
//
// [storetest]: https://pkg.go.dev/github.com/sampan-io/sampan/store/storetest
type Backend interface {
	// Load calls each for every live record, in any order, and returns a
	// revision above which none was ever used (I1). It is called once, first.
	Load(ctx context.Context, each func(Entry) error) (Revision, error)

	// Commit makes the entries durable in one step, or none of them (I6). The
	// entries' revisions rise and lie above all earlier ones.
	Commit(ctx context.Context, batch []Entry) error

	// Reserve makes durable that revisions up to ceiling may have been used, so
	// that Load returns at least that after a crash.
	Reserve(ctx context.Context, ceiling Revision) error

	// Close releases the medium. Everything committed is durable already.
	Close() error
}

// An Entry is a record as backends see it. A nil Data deletes the key.
type Entry struct {
	Key      string
	Data     []byte
	Created  Revision
	Revision Revision
}
