package cache

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/run"
)

// A server that fails is tried again after firstPause, and each time after twice
// as long, up to maxPause: a server that restarts is found again at once, one
// that is gone costs nothing.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 30 * time.Second
)

// Options configures a [Cache]. The zero value follows all objects.
type Options[T client.Object] struct {
	Namespace     string // empty means all namespaces
	LabelSelector string // empty means everything
	FieldSelector string // empty means everything

	// Indexes give the values under which [Cache.ByIndex] finds an object. They
	// must be pure.
	Indexes map[string]func(T) []string

	Log *slog.Logger // nil means slog.Default
}

// A Cache is a local copy of objects; see the package comment. Its readers are
// safe for concurrent use.
type Cache[T client.Object] struct {
	client   client.Interface
	resource client.Resource[T]
	opts     Options[T]
	ready    chan struct{}
	subs     []func(before, after T)

	plain bool // of Run alone: the server has no WatchList

	mu       sync.RWMutex
	objects  map[types.NamespacedName]*entry[T] // guarded by mu
	indexes  []*index[T]                        // guarded by mu
	revision uint64                             // guarded by mu; 0 before the first sync
	moved    chan struct{}                      // guarded by mu; if somebody waits: closed by the next change
}

// New returns a cache that is empty until [Cache.Run].
func New[T client.Object](c client.Interface, r client.Resource[T], opts Options[T]) *Cache[T] {
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	k := &Cache[T]{
		client: c, resource: r, opts: opts,
		ready:   make(chan struct{}),
		objects: map[types.NamespacedName]*entry[T]{},
	}
	for name, values := range opts.Indexes {
		k.indexes = append(k.indexes, &index[T]{name: name, values: values, buckets: map[string]*bucket[T]{}})
	}
	return k
}

// Subscribe makes f hear of every difference: before is the zero T for a new object,
// after for one that is gone; before is then its last known state. f is called
// on the goroutine of Run, in order, after readers can see the change. It must not
// block and must not wait for the cache. Subscribe must be called before Run.
func (c *Cache[T]) Subscribe(f func(before, after T)) { c.subs = append(c.subs, f) }

// Ready is closed when the cache holds everything that was there at the start.
// Subscribers have been told of all of it by then.
func (c *Cache[T]) Ready() <-chan struct{} { return c.ready }

// Run keeps the cache current until ctx is over and then returns nil. It works on
// the calling goroutine and may be called once.
func (c *Cache[T]) Run(ctx context.Context) error {
	for failures := 0; ; failures++ {
		progress, err := c.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if progress {
			failures = 0
		}
		pause := min(maxPause, firstPause<<min(failures, 20))
		pause = pause/2 + rand.N(pause/2) // many caches lose one server at the same time
		level := slog.LevelDebug
		if failures > 0 {
			level = slog.LevelWarn
		}
		c.opts.Log.Log(ctx, level, "watch interrupted, trying again", "resource", c.resource.Resource, "pause", pause, "err", err)
		if !run.Pause(ctx, pause) {
			return nil
		}
	}
}

// Get returns the object of that name, which must not be changed.
func (c *Cache[T]) Get(namespace, name string) (T, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if e := c.objects[types.NamespacedName{Namespace: namespace, Name: name}]; e != nil {
		return e.obj, true
	}
	var none T
	return none, false
}

// List returns the objects of a namespace, or all if it is empty, in no particular
// order. The objects must not be changed; the slice is the caller's.
func (c *Cache[T]) List(namespace string) []T {
	c.mu.RLock()
	defer c.mu.RUnlock()
	list := make([]T, 0, len(c.objects))
	for key, e := range c.objects {
		if namespace == "" || key.Namespace == namespace {
			list = append(list, e.obj)
		}
	}
	return list
}

// ByIndex returns the objects that the index of that name, which must be one of
// Options.Indexes, has under value, in no particular order. The objects must not be changed; the slice is the caller's.
func (c *Cache[T]) ByIndex(index, value string) []T {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, i := range c.indexes {
		if i.name == index {
			return i.find(value)
		}
	}
	return nil
}

// Len returns the number of objects.
func (c *Cache[T]) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.objects)
}

// Revision returns the revision up to which the cache knows everything, or "" before
// it is ready (K3).
func (c *Cache[T]) Revision() string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.revision == 0 {
		return ""
	}
	return strconv.FormatUint(c.revision, 10)
}

// Await blocks until the cache has seen the given revision, which must be that of a
// write to one of the objects that it follows (as the write's answer tells), or
// until ctx is over. It must not be called from a subscriber.
func (c *Cache[T]) Await(ctx context.Context, revision string) error {
	want, err := strconv.ParseUint(revision, 10, 64)
	if err != nil {
		return nil //nolint:nilerr // a server whose revisions are no numbers cannot be waited for
	}
	return c.await(ctx, func() bool { return c.revision >= want })
}

// AwaitDeletion blocks until the cache has seen that the object's deletion was
// asked for or that it is gone, or until ctx is over. It must not be called from a
// subscriber.
func (c *Cache[T]) AwaitDeletion(ctx context.Context, obj T) error {
	return c.await(ctx, func() bool {
		e := c.objects[keyOf(obj)]
		return e == nil || e.obj.GetUID() != obj.GetUID() || e.obj.GetDeletionTimestamp() != nil
	})
}

// await waits until holds, which is called with mu held.
func (c *Cache[T]) await(ctx context.Context, holds func() bool) error {
	for {
		c.mu.Lock()
		if holds() {
			c.mu.Unlock()
			return nil
		}
		if c.moved == nil {
			c.moved = make(chan struct{})
		}
		moved := c.moved
		c.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// wake lets everybody in await look again. mu is held.
func (c *Cache[T]) wake() {
	if c.moved != nil {
		close(c.moved)
		c.moved = nil
	}
}

func keyOf(obj metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}
