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
	"github.com/sampan-io/sampan/internal/run"
)

// follow brings the cache up to date and keeps it so until something goes wrong.
// It reports whether anything was learned on the way.
func (c *follower) follow(ctx context.Context) (progress bool, err error) {
	if c.revision != 0 { // only run writes it
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
func (c *follower) start(ctx context.Context) (progress bool, err error) {
	if !c.plain {
		progress, err = c.watchList(ctx)
		if progress || !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
			return progress, err
		}
		c.plain = true
	}
	items, meta, err := c.resource.List(ctx, c.client, c.chosen.Namespace, c.listOptions())
	if err != nil {
		return false, err
	}
	fresh := make(content, len(items))
	for _, obj := range items {
		if err := c.check(obj); err != nil {
			return false, err
		}
		fresh[keyOf(obj)] = c.kept(obj)
	}
	if err := c.replace(fresh, meta.ResourceVersion); err != nil {
		return false, err
	}
	_, err = c.watch(ctx)
	return true, err
}

func (c *follower) listOptions() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: c.chosen.LabelSelector, FieldSelector: c.chosen.FieldSelector}
}

// watchList reads the initial events of a watch and then goes on with it.
func (c *follower) watchList(ctx context.Context) (progress bool, err error) {
	yes := true
	opts := c.listOptions()
	opts.AllowWatchBookmarks = true
	opts.SendInitialEvents = &yes
	opts.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	fresh := content{}
	for e, err := range c.resource.Watch(ctx, c.client, c.chosen.Namespace, opts) {
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
var errSilent = errors.New("the watch ended without an error")

// watch goes on from the last revision seen.
func (c *follower) watch(ctx context.Context) (progress bool, err error) {
	opts := c.listOptions()
	opts.AllowWatchBookmarks = true
	opts.ResourceVersion = strconv.FormatUint(c.revision, 10) // only run writes it
	for e, err := range c.resource.Watch(ctx, c.client, c.chosen.Namespace, opts) {
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
func (c *follower) object(e watch.Event) (client.Object, error) {
	obj, ok := e.Object.(client.Object)
	if !ok {
		return nil, fmt.Errorf("a %s event with a %T, want an object", e.Type, e.Object)
	}
	if err := c.check(obj); err != nil || e.Type == watch.Bookmark {
		return obj, err
	}
	return c.kept(obj), nil
}

// kept returns what is held of an object.
func (c *follower) kept(obj client.Object) client.Object {
	if c.keep == nil {
		return obj
	}
	held := obj
	if err := run.Catch(func() error { held = c.keep(obj); return nil }); err != nil {
		c.panicked(obj, "keep", err)
		return obj
	}
	return held
}

// check says no to an object that readers have no type for.
func (c *follower) check(obj client.Object) error {
	for _, fits := range c.types {
		if err := fits(obj); err != nil {
			return err
		}
	}
	return nil
}

// content is objects by their names.
type content map[types.NamespacedName]client.Object

// replace makes fresh the content and notifies subscribers of the differences: first deletions,
// then the rest from the oldest on, so that a subscriber that serves in the order of arrival is
// fair after a restart, too.
func (c *follower) replace(fresh content, revision string) error {
	at, err := strconv.ParseUint(revision, 10, 64)
	if err != nil {
		return fmt.Errorf("revision %q of a list: %w", revision, err)
	}
	var gone []types.NamespacedName
	for namespace, objects := range c.objects { // only run writes it
		for name := range objects {
			if key := (types.NamespacedName{Namespace: namespace, Name: name}); fresh[key] == nil {
				gone = append(gone, key)
			}
		}
	}
	for _, key := range gone {
		c.remove(key, nil, 0)
	}
	keys := slices.SortedFunc(maps.Keys(fresh), func(a, b types.NamespacedName) int {
		first, second := fresh[a].GetCreationTimestamp(), fresh[b].GetCreationTimestamp()
		return cmp.Or(first.Compare(second.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, key := range keys {
		obj := fresh[key]
		if e := c.entry(key); e == nil || e.obj.GetUID() != obj.GetUID() || e.obj.GetResourceVersion() != obj.GetResourceVersion() {
			c.set(key, obj, 0)
		}
	}
	c.mu.Lock()
	c.revision = at // it is lower than before if the server's data was replaced
	c.wake()
	c.mu.Unlock()
	c.beReady()
	return nil
}

// apply takes in an event.
func (c *follower) apply(e watch.Event) error {
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
		c.set(keyOf(obj), obj, at)
	case watch.Deleted:
		c.remove(keyOf(obj), obj, at)
	case watch.Bookmark:
		c.reach(at)
	default:
		return fmt.Errorf("unknown event type %q", e.Type)
	}
	return nil
}
