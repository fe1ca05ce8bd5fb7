package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/client"
)

// follow brings the cache up to date and keeps it so until something goes wrong.
// It reports whether anything was learned on the way.
func (c *Cache[T]) follow(ctx context.Context) (progress bool, err error) {
	if c.revision != 0 { // only Run writes it
		progress, err = c.watch(ctx)
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
			again, err := c.start(ctx) // K2
			return again || progress, err
		}
		return progress, err
	}
	return c.start(ctx)
}

// start reads everything and goes on with a watch.
func (c *Cache[T]) start(ctx context.Context) (progress bool, err error) {
	if !c.plain {
		progress, err = c.watchList(ctx)
		if progress || !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
			return progress, err
		}
		c.plain = true
	}
	items, meta, err := c.resource.List(ctx, c.client, c.opts.Namespace, c.listOptions())
	if err != nil {
		return false, err
	}
	fresh := make(map[types.NamespacedName]T, len(items))
	for _, obj := range items {
		fresh[keyOf(obj)] = obj
	}
	if err := c.replace(fresh, meta.ResourceVersion); err != nil {
		return false, err
	}
	_, err = c.watch(ctx)
	return true, err
}

func (c *Cache[T]) listOptions() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: c.opts.LabelSelector, FieldSelector: c.opts.FieldSelector}
}

// watchList reads the initial events of a watch and then goes on with it.
func (c *Cache[T]) watchList(ctx context.Context) (progress bool, err error) {
	yes := true
	opts := c.listOptions()
	opts.AllowWatchBookmarks = true
	opts.SendInitialEvents = &yes
	opts.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	fresh := map[types.NamespacedName]T{}
	for e, err := range c.resource.Watch(ctx, c.client, c.opts.Namespace, opts) {
		if err != nil {
			return progress, err
		}
		if progress {
			if err := c.apply(e); err != nil {
				return progress, err
			}
			continue
		}
		obj, err := c.object(e)
		if err != nil {
			return progress, err
		}
		switch e.Type {
		case watch.Added, watch.Modified:
			fresh[keyOf(obj)] = obj
		case watch.Deleted:
			delete(fresh, keyOf(obj))
		case watch.Bookmark:
			if obj.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
				continue
			}
			if err := c.replace(fresh, obj.GetResourceVersion()); err != nil {
				return progress, err
			}
			progress, fresh = true, nil
		default:
			return progress, fmt.Errorf("unknown event type %q", e.Type)
		}
	}
	return progress, errSilent
}

// errSilent is for a client that breaks C3.
var errSilent = errors.New("the watch ended without saying why")

// watch goes on from the last revision seen.
func (c *Cache[T]) watch(ctx context.Context) (progress bool, err error) {
	opts := c.listOptions()
	opts.AllowWatchBookmarks = true
	opts.ResourceVersion = strconv.FormatUint(c.revision, 10) // only Run writes it
	for e, err := range c.resource.Watch(ctx, c.client, c.opts.Namespace, opts) {
		if err != nil {
			return progress, err
		}
		if err := c.apply(e); err != nil {
			return progress, err
		}
		progress = true
	}
	return progress, errSilent
}

// object returns the object of an event.
func (c *Cache[T]) object(e watch.Event) (T, error) {
	obj, ok := e.Object.(T)
	if !ok {
		return obj, fmt.Errorf("a %s event with a %T, want a %T", e.Type, e.Object, obj)
	}
	return obj, nil
}

// replace makes fresh the content and tells the differences: first what is gone, then
// the rest from the oldest on, so that who serves in the order of arrival is fair after
// a restart, too.
func (c *Cache[T]) replace(fresh map[types.NamespacedName]T, revision string) error {
	at, err := strconv.ParseUint(revision, 10, 64)
	if err != nil {
		return fmt.Errorf("revision %q of a list: %w", revision, err)
	}
	var gone []types.NamespacedName
	for key := range c.objects { // only Run writes it
		if _, ok := fresh[key]; !ok {
			gone = append(gone, key)
		}
	}
	var none T
	for _, key := range gone {
		c.set(key, none, false, 0)
	}
	keys := slices.SortedFunc(maps.Keys(fresh), func(a, b types.NamespacedName) int {
		first, second := fresh[a].GetCreationTimestamp(), fresh[b].GetCreationTimestamp()
		return cmp.Or(first.Compare(second.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, key := range keys {
		obj := fresh[key]
		if e := c.objects[key]; e == nil || e.obj.GetUID() != obj.GetUID() || e.obj.GetResourceVersion() != obj.GetResourceVersion() {
			c.set(key, obj, true, 0)
		}
	}
	c.mu.Lock()
	c.revision = at // it is lower than before if the server's data was replaced
	c.wake()
	c.mu.Unlock()
	select {
	case <-c.ready:
	default:
		close(c.ready)
	}
	return nil
}

// apply takes in an event.
func (c *Cache[T]) apply(e watch.Event) error {
	obj, err := c.object(e)
	if err != nil {
		return err
	}
	at, err := strconv.ParseUint(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return fmt.Errorf("revision %q of a %s event: %w", obj.GetResourceVersion(), e.Type, err)
	}
	switch e.Type {
	case watch.Added, watch.Modified:
		c.set(keyOf(obj), obj, true, at)
	case watch.Deleted:
		c.set(keyOf(obj), obj, false, at)
	case watch.Bookmark:
		c.reach(at)
	default:
		return fmt.Errorf("unknown event type %q", e.Type)
	}
	return nil
}

// reach notes that everything up to a revision is in the cache.
func (c *Cache[T]) reach(revision uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revision = max(c.revision, revision)
	c.wake()
}

// set puts obj at key, or takes away what is there if present is false (obj is then
// its last state, or zero), and tells subscribers. A revision of 0 is not noted.
func (c *Cache[T]) set(key types.NamespacedName, obj T, present bool, revision uint64) {
	var none T
	c.mu.Lock()
	e := c.objects[key]
	existed := e != nil
	var old T
	if existed {
		old = e.obj
	}
	switch {
	case present && existed:
		e.replace(obj, c.indexes)
	case present:
		e = &entry[T]{obj: obj}
		e.put(c.indexes)
		c.objects[key] = e
	case existed:
		e.leave()
		delete(c.objects, key)
	}
	c.revision = max(c.revision, revision)
	c.wake()
	c.mu.Unlock()

	switch {
	case existed && !present:
		if client.Object(obj) != client.Object(none) && obj.GetUID() == old.GetUID() {
			old = obj // the state that it was deleted in
		}
		c.tell(old, none)
	case existed && old.GetUID() != obj.GetUID():
		c.tell(old, none) // K1
		c.tell(none, obj)
	case existed:
		c.tell(old, obj)
	case present:
		c.tell(none, obj)
	}
}

func (c *Cache[T]) tell(before, after T) {
	for _, f := range c.subs {
		f(before, after)
	}
}
