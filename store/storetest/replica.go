package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/sampan-io/sampan/store"
)

// A Shared is one store behind several [Replica]s, as servers with a store of their own over one medium see it. The
// store must not write by itself: it has no time to live.
type Shared struct {
	Store   *store.Store
	Options store.Options // with which images are made: Decode is required

	mu    sync.Mutex
	feed  []fed          // guarded by mu; all writes without gaps, in order
	early map[uint64]fed // guarded by mu; writes that came before an earlier one
	grown chan struct{}  // guarded by mu; closed when the feed grows; nil if none waits
}

// A fed is a write as replicas receive it.
type fed struct {
	event store.Event
	data  []byte
}

// A Replica is a store of one server: it has an image of its own, which is as old as it may be. Only what must not be
// older brings it up to date: [Replica.Fresh], [Replica.Reach], and the writes made with it.
type Replica struct {
	*store.Image
	shared *Shared

	mu  sync.Mutex
	got int // guarded by mu; how much of the feed is in the image
}

// Replica returns a new replica, with an empty image.
func (s *Shared) Replica() *Replica { return &Replica{Image: store.NewImage(s.Options), shared: s} }

// Fresh implements the contract of [store.Store.Fresh].
func (r *Replica) Fresh(context.Context) error { return r.catchUp(r.shared.Store.Revision()) }

// Reach implements the contract of [store.Image.Reach].
func (r *Replica) Reach(ctx context.Context, want store.Revision) error {
	for {
		grown := r.shared.grows()
		if err := r.catchUp(want); err != nil || r.Revision() >= want {
			return err
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return fmt.Errorf("revision %d, current: %d: %w", want, r.Revision(), store.ErrFuture)
		}
	}
}

// Settled implements the contract of [store.Store.Settled]: writes of other servers are not known.
func (r *Replica) Settled(context.Context, string) error { return nil }

// Full implements the contract of [store.Store.Full].
func (r *Replica) Full() error { return r.shared.Store.Full() }

// OverQuota implements the contract of [store.Store.OverQuota].
func (r *Replica) OverQuota() *store.QuotaError { return r.shared.Store.OverQuota() }

// Refused implements the contract of [store.Store.Refused].
func (r *Replica) Refused() error { return r.shared.Store.Refused() }

// Commit makes a write in the shared store, and returns once this replica shows it.
func (r *Replica) Commit(ctx context.Context, w store.Write) (store.Record, error) {
	rec, err := r.shared.Store.Commit(ctx, w)
	if err != nil {
		return store.Record{}, errors.Join(err, r.Fresh(ctx)) // the caller reads what it lost against
	}
	r.shared.add(fed{store.Event{Record: rec, Deleted: w.Delete}, w.Value.Bytes()})
	if err := r.Reach(ctx, rec.Revision); err != nil {
		return store.Record{}, err
	}
	return rec, nil
}

func (s *Shared) add(f fed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.early == nil {
		s.early = map[uint64]fed{}
	}
	s.early[uint64(f.event.Revision)] = f
	for {
		next := uint64(len(s.feed)) + 1
		f, ok := s.early[next]
		if !ok {
			return
		}
		delete(s.early, next)
		s.feed = append(s.feed, f)
		if s.grown != nil {
			close(s.grown)
			s.grown = nil
		}
	}
}

// grows returns a channel that is closed when the feed has more.
func (s *Shared) grows() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.grown == nil {
		s.grown = make(chan struct{})
	}
	return s.grown
}

// since returns the writes after the first so many, up to a revision.
func (s *Shared) since(got int, want store.Revision) []fed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.feed[min(got, len(s.feed)):min(max(got, int(want)), len(s.feed))]
}

// catchUp puts the feed up to a revision into the image. A write that the shared store shows and that was not fed yet
// is acknowledged later, so it need not be there.
func (r *Replica) catchUp(want store.Revision) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.shared.since(r.got, want) {
		e := f.event
		v, err := r.shared.Options.Decode(e.Key, f.data)
		if err != nil {
			return fmt.Errorf("decoding %s: %w", e.Key, err)
		}
		e.Value = v
		r.Publish(e)
		r.got++
	}
	return nil
}
