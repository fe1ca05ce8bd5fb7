package cache

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/run"
)

// A Shared is the caches of several parts in one process: each resource is followed once, whole, as
// one user, however many of them read it (K4). Parts take theirs with [Of] when they are made; the
// maker of the Shared runs it.
type Shared struct {
	client client.Interface
	log    *slog.Logger
	ready  chan struct{}
	down   *atomic.Bool // of all followers

	mu        sync.Mutex
	followers map[schema.GroupVersionResource]*follower // guarded by mu
	stage     run.Stage                                 // guarded by mu; the followers in the order of their making
	running   bool                                      // guarded by mu
}

// NewShared returns a Shared without caches. The user of c must be allowed to list and
// watch all that is asked for. A nil log means slog.Default.
func NewShared(c client.Interface, log *slog.Logger) *Shared {
	return &Shared{client: c, log: log, ready: make(chan struct{}), down: new(atomic.Bool), followers: map[schema.GroupVersionResource]*follower{}}
}

// Of returns the cache of a resource, with indexes that no other reader sees. It panics once s
// runs, because the new cache would have missed the beginning.
func Of[T client.Object](s *Shared, r client.Resource[T], indexes Indexes[T]) *Cache[T] {
	return of(s, r, indexes, wanted{whole: true})
}

// OptionalOf is [Of] for a caller that can work without the objects (K5). The cache is optional if it is for all callers.
func OptionalOf[T client.Object](s *Shared, r client.Resource[T], indexes Indexes[T]) *Cache[T] {
	return of(s, r, indexes, wanted{whole: true, optional: true})
}

// MetadataOf is [Of] for a caller that reads metadata alone: names, UIDs, versions, deletion, finalizers and owners. If no
// other caller reads more, the cache holds no more. That is worth it for objects that the server of this process does not
// hold in decoded form either.
func MetadataOf(s *Shared, r client.Resource[client.Object], indexes Indexes[client.Object]) *Cache[client.Object] {
	return of(s, r, indexes, wanted{})
}

// wanted is the request of a caller of a Shared for a cache.
type wanted struct{ whole, optional bool }

func of[T client.Object](s *Shared, r client.Resource[T], indexes Indexes[T], want wanted) *Cache[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running {
		panic("cache: Of " + r.Resource + " after Run")
	}
	f := s.followers[r.GroupVersionResource]
	if f == nil {
		f = newFollower(s.client, untyped(r), chosen{}, s.log)
		f.optional, f.keep, f.down = want.optional, metadata, s.down
		s.followers[r.GroupVersionResource] = f
		s.stage = append(s.stage, run.Task{Name: r.GroupResource().String(), Run: f.run, Ready: f.ready})
	}
	f.optional = f.optional && want.optional
	if want.whole {
		f.keep = nil
	}
	c := view(f, indexes)
	c.shared = true
	return c
}

// Or returns caches for a part that was given s, and a task to be run before the part or
// beside it, which is ready when they are. If s is nil they are the part's own, over c,
// and the task keeps them current; otherwise it only waits.
func (s *Shared) Or(c client.Interface, log *slog.Logger) (*Shared, run.Task) {
	if s == nil {
		own := NewShared(c, log)
		return own, run.Task{Name: "caches", Run: own.Run, Ready: own.ready}
	}
	return s, run.Task{Name: "caches of others", Ready: s.ready, Run: func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	}}
}

// Ready is closed when all caches are.
func (s *Shared) Ready() <-chan struct{} { return s.ready }

// Run keeps all caches current until ctx is over and then returns nil. It may be called
// once, when all parts have their caches.
func (s *Shared) Run(ctx context.Context) error {
	s.mu.Lock()
	s.running = true
	s.mu.Unlock()
	return run.Stages(ctx, s.stage, run.Stage{{Name: "ready", Run: func(ctx context.Context) error {
		close(s.ready)
		<-ctx.Done()
		return nil
	}}})
}
