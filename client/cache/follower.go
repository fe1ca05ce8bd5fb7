package cache

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/follow"
	"github.com/sampan-io/sampan/internal/run"
)

// A server that fails is tried again after firstPause, and each time after twice
// as long, up to maxPause: a server that restarts is found again at once, one
// that is gone costs nothing.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 30 * time.Second

	// A resource that is not served may be after the server's next version or another role.
	absentPause = 10 * time.Minute
)

// A follower keeps the objects that caches show to their readers, whatever type each
// of these knows them by. The set-up before its run is fixed from then on.
type follower struct {
	client   client.Interface
	resource client.Resource[client.Object]
	chosen   chosen
	log      *slog.Logger
	ready    chan struct{}
	subs     []func(before, after client.Object)
	types    []func(client.Object) error       // each cache's check of an object
	keep     func(client.Object) client.Object // nil: objects are held as they are

	optional, foreign bool // see Options

	// down is set while the server cannot be reached, so that of all followers of a [Shared] one says so, once.
	down *atomic.Bool

	reading int  // of run alone: how many objects were read of a list that is not complete
	absent  bool // of run alone: the server does not serve an optional kind, and that was logged
	refused bool // of run alone: the user may not read the resource, and that was said

	mu       sync.RWMutex
	objects  map[string]map[string]*entry // guarded by mu; by namespace and name; no namespace is empty
	count    int                          // guarded by mu
	indexes  []*index                     // their contents are guarded by mu
	revision uint64                       // guarded by mu; 0 before the first sync
	moved    chan struct{}                // guarded by mu; if a caller waits: closed by the next change
}

// chosen is the part of a resource that is followed. Empty strings choose everything.
type chosen struct{ Namespace, LabelSelector, FieldSelector string }

func newFollower(c client.Interface, r client.Resource[client.Object], what chosen, log *slog.Logger) *follower {
	if log == nil {
		log = slog.Default()
	}
	return &follower{
		client: c, resource: r, chosen: what, log: log, down: new(atomic.Bool),
		ready:   make(chan struct{}),
		objects: map[string]map[string]*entry{},
	}
}

// retry says when the server is asked again after an error, which never ends.
func (c *follower) retry(err error, failures int) (pause time.Duration, again bool) {
	if c.optional && notServed(err) {
		return absentPause/2 + rand.N(absentPause), true
	}
	return run.Backoff{First: firstPause, Max: maxPause}.Pause(failures), true
}

// failed logs why the resource could not be followed. A missing permission is logged once, because only an administrator
// can add it.
func (c *follower) failed(ctx context.Context, f follow.Failed) {
	switch {
	case c.optional && notServed(f.Err):
		c.doWithout(f.Err)
	case apierrors.IsForbidden(f.Err):
		if !c.refused {
			c.log.WarnContext(ctx, "not allowed to read a resource; trying again until it is allowed", "resource", c.resource.Resource, "err", f.Err)
		}
		c.refused = true
	default:
		level := slog.LevelDebug
		_, unreachable := errors.AsType[*client.UnreachableError](f.Err)
		if f.Failures == 2 || f.Failures > 2 && !c.foreign && !unreachable {
			level = slog.LevelWarn
		}
		if unreachable && level == slog.LevelWarn && c.down.Swap(true) {
			level = slog.LevelDebug // it is known
		}
		c.log.Log(ctx, level, "watch interrupted, trying again", "resource", c.resource.Resource, "pause", f.Pause, "err", f.Err)
	}
}

// notServed reports whether a server says that it has no such resource, or not for this user.
func notServed(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err)
}

// doWithout makes the cache ready as it is.
func (c *follower) doWithout(err error) {
	if !c.absent {
		c.log.Info("the server does not serve an optional resource; continuing without it", "resource", c.resource.Resource, "err", err)
	}
	c.absent = true
	c.beReady()
}

// beReady is called by run alone.
func (c *follower) beReady() {
	select {
	case <-c.ready:
	default:
		close(c.ready)
	}
}

// entry returns the entry of key, or nil. mu is held, or the caller is run.
func (c *follower) entry(key types.NamespacedName) *entry { return c.objects[key.Namespace][key.Name] }

// set puts obj at key and notifies subscribers. A revision of 0 is not recorded.
func (c *follower) set(key types.NamespacedName, obj client.Object, revision uint64) {
	c.mu.Lock()
	e := c.entry(key)
	var old client.Object
	if e != nil {
		old = e.obj
		e.replace(obj, c.indexes)
	} else {
		e = &entry{obj: obj}
		e.put(c.indexes)
		if c.objects[key.Namespace] == nil {
			c.objects[key.Namespace] = map[string]*entry{}
		}
		c.objects[key.Namespace][key.Name] = e
		c.count++
	}
	c.revision = max(c.revision, revision)
	c.wake()
	c.mu.Unlock()

	if old != nil && old.GetUID() != obj.GetUID() {
		c.notify(old, nil) // K1
		old = nil
	}
	c.notify(old, obj)
}

// remove removes the object at key, if there is one, and notifies subscribers. Last is the state
// that it was deleted in, or nil if that is not known.
func (c *follower) remove(key types.NamespacedName, last client.Object, revision uint64) {
	c.mu.Lock()
	e := c.entry(key)
	if e != nil {
		e.leave()
		delete(c.objects[key.Namespace], key.Name)
		if len(c.objects[key.Namespace]) == 0 {
			delete(c.objects, key.Namespace)
		}
		c.count--
	}
	c.revision = max(c.revision, revision)
	c.wake()
	c.mu.Unlock()

	if e == nil {
		return
	}
	old := e.obj
	if last != nil && last.GetUID() == old.GetUID() {
		old = last
	}
	c.notify(old, nil)
}

// notify calls the subscribers. If one of them panics it has missed the change; the others go on.
func (c *follower) notify(before, after client.Object) {
	for _, f := range c.subs {
		if err := run.Catch(func() error { f(before, after); return nil }); err != nil {
			c.panicked(either(after, before), "subscriber", err)
		}
	}
}

func either(a, b client.Object) client.Object {
	if a != nil {
		return a
	}
	return b
}

// panicked logs that a function of the cache's owner panicked over an object.
func (c *follower) panicked(obj client.Object, what string, err error) {
	c.log.Error("panic in a subscriber of a cache", "resource", c.resource.Resource, "object", keyOf(obj), "in", what, "err", err)
}

// reach notes that everything up to a revision is in the cache.
func (c *follower) reach(revision uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revision = max(c.revision, revision)
	c.wake()
}

// await waits until holds, which is called with mu held.
func (c *follower) await(ctx context.Context, holds func() bool) error {
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

// wake wakes all callers of await. mu is held.
func (c *follower) wake() {
	if c.moved != nil {
		close(c.moved)
		c.moved = nil
	}
}

func keyOf(obj metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}
