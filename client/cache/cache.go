package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/sampan-io/sampan/client"
)

// Options configures a [Cache]. The zero value follows all objects.
type Options[T client.Object] struct {
	Namespace     string // empty means all namespaces
	LabelSelector string // empty means everything
	FieldSelector string // empty means everything

	// Indexes give the values under which [Cache.ByIndex] finds an object. They
	// must be pure.
	Indexes Indexes[T]

	// Keep returns the part of an object that the cache holds, for callers that need little of many
	// objects that no other part of the process holds. It returns a new object with at least name,
	// namespace, UID and resource version, and must not change the given one. Nil means the whole
	// object.
	Keep func(T) T

	// Optional is for callers that can work without the objects. If the server does not serve them,
	// or not to this user, that is logged once, the cache is ready as it is, and tries
	// again now and then.
	Optional bool

	// Foreign is for objects that another server has, behind an APIService, which may be of any version. Lists are read in
	// pages and not as the beginning of a watch, which older servers do not know. Failures are logged once in a row.
	Foreign bool

	Log *slog.Logger // nil means slog.Default
}

// Indexes are functions that say under which values an object is found, by the name of
// the index. They must be pure.
type Indexes[T client.Object] map[string]func(T) []string

// A Cache is a local copy of objects, of its own ([New]) or of several parts together
// ([Of]); see the package comment. Its readers are safe for concurrent use.
type Cache[T client.Object] struct {
	*follower
	indexes map[string]*index
	shared  bool
}

// New returns a cache that is empty until [Cache.Run].
func New[T client.Object](c client.Interface, r client.Resource[T], opts Options[T]) *Cache[T] {
	what := chosen{opts.Namespace, opts.LabelSelector, opts.FieldSelector}
	f := newFollower(c, untyped(r), what, opts.Log)
	if opts.Keep != nil {
		f.keep = func(obj client.Object) client.Object { return opts.Keep(typed[T](obj)) }
	}
	f.optional, f.foreign = opts.Optional, opts.Foreign
	return view(f, opts.Indexes)
}

func untyped[T client.Object](r client.Resource[T]) client.Resource[client.Object] {
	return client.Resource[client.Object](r)
}

// view returns a cache that shows what f keeps.
func view[T client.Object](f *follower, indexes Indexes[T]) *Cache[T] {
	c := &Cache[T]{follower: f, indexes: make(map[string]*index, len(indexes))}
	for name, values := range indexes {
		i := &index{values: f.guarded(name, func(obj client.Object) []string { return values(typed[T](obj)) }), buckets: map[string]*bucket{}}
		c.indexes[name] = i
		f.indexes = append(f.indexes, i)
	}
	f.types = append(f.types, func(obj client.Object) error {
		if t, ok := obj.(T); !ok {
			return fmt.Errorf("the server sent a %T, want a %T", obj, t)
		}
		return nil
	})
	return c
}

// typed returns obj, which has been checked, or the zero T for nil.
func typed[T client.Object](obj client.Object) T {
	t, _ := obj.(T)
	return t
}

// Subscribe makes f hear of every difference: before is the zero T for a new object,
// after for one that is gone; before is then its last known state. f is called
// on the goroutine of Run, in order, after readers can see the change. It must not
// block and must not wait for the cache. Subscribe must be called before Run.
func (c *Cache[T]) Subscribe(f func(before, after T)) {
	c.subs = append(c.subs, func(before, after client.Object) { f(typed[T](before), typed[T](after)) })
}

// Ready is closed when the cache holds every object that existed at the start, or when the server
// does not serve the resource and it is optional. Subscribers have received all of these objects by
// then.
func (c *Cache[T]) Ready() <-chan struct{} { return c.ready }

// Run keeps the cache current until ctx is over and then returns nil. It works on
// the calling goroutine and may be called once. A cache of a [Shared] is kept current
// by that; to run it is an error.
func (c *Cache[T]) Run(ctx context.Context) error {
	if c.shared {
		return errors.New("cache: call Run of the Shared, which runs this cache")
	}
	return c.run(ctx)
}

// Get returns the object of that name, which must not be changed.
func (c *Cache[T]) Get(namespace, name string) (T, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if e := c.objects[namespace][name]; e != nil {
		return typed[T](e.obj), true
	}
	var none T
	return none, false
}

// List returns the objects of a namespace, or all if it is empty, in no particular
// order. It costs as much as there are of these. The objects must not be changed; the
// slice is the caller's.
func (c *Cache[T]) List(namespace string) []T {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if namespace != "" {
		objects := c.objects[namespace]
		return appendAll(make([]T, 0, len(objects)), objects)
	}
	list := make([]T, 0, c.count)
	for _, objects := range c.objects {
		list = appendAll(list, objects)
	}
	return list
}

func appendAll[T client.Object](list []T, objects map[string]*entry) []T {
	for _, e := range objects {
		list = append(list, typed[T](e.obj))
	}
	return list
}

// ByIndex returns the objects that have value in the named index, which must be one of the indexes
// that the cache was made with, in no particular order. The objects must not be changed; the slice
// is the caller's.
func (c *Cache[T]) ByIndex(name, value string) []T {
	c.mu.RLock()
	defer c.mu.RUnlock()
	i := c.indexes[name]
	if i == nil {
		return nil
	}
	entries := i.find(value)
	if len(entries) == 0 {
		return nil
	}
	found := make([]T, len(entries))
	for n, e := range entries {
		found[n] = typed[T](e.obj)
	}
	return found
}

// Len returns the number of objects.
func (c *Cache[T]) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.count
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

// Await blocks until the cache has seen the given revision, which must be that of a write to one of
// the objects that it follows (from the answer to the write), or until ctx is cancelled. It must
// not be called from a subscriber.
func (c *Cache[T]) Await(ctx context.Context, revision string) error {
	want, err := strconv.ParseUint(revision, 10, 64)
	if err != nil {
		return nil // a server whose revisions are no numbers cannot be waited for
	}
	return c.await(ctx, func() bool { return c.revision >= want })
}

// AwaitDeletion blocks until the cache has seen that the object's deletion was
// asked for or that it is gone, or until ctx is over. It must not be called from a
// subscriber.
func (c *Cache[T]) AwaitDeletion(ctx context.Context, obj T) error {
	return c.await(ctx, func() bool {
		e := c.entry(keyOf(obj))
		return e == nil || e.obj.GetUID() != obj.GetUID() || e.obj.GetDeletionTimestamp() != nil
	})
}
