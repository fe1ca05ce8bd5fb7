package cache

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/follow"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/sorting"
)

// run keeps the objects current until ctx is over and then returns nil.
func (c *follower) run(ctx context.Context) error {
	f := follow.Follower{
		Client: c.client, Stream: !c.foreign, PageSize: c.pageSize(), Check: c.check, Retry: c.retry,
		Source: follow.Source{
			GroupVersionResource: c.resource.GroupVersionResource,
			Namespace:            c.chosen.Namespace, Labels: c.chosen.LabelSelector, Fields: c.chosen.FieldSelector,
		},
	}
	var fresh content // the part read of a list; nil between lists
	for step := range f.Steps(ctx) {
		switch s := step.(type) {
		case *follow.Changed:
			c.set(keyOf(s.Object), c.kept(s.Object), c.progress(s.Object.GetResourceVersion()))
		case follow.Deleted:
			if fresh != nil {
				delete(fresh, keyOf(s.Object))
			} else {
				c.remove(keyOf(s.Object), c.kept(s.Object), c.progress(s.Object.GetResourceVersion()))
			}
		case follow.Bookmark:
			c.down.Store(false)
			c.reach(c.progress(s.Revision))
		case follow.Page:
			c.down.Store(false)
			if s.Begins {
				fresh = make(content, len(s.Objects))
			}
			for _, obj := range s.Objects {
				fresh[keyOf(obj)] = c.kept(obj)
			}
			c.reading = len(fresh)
			if s.Whole { // K2
				c.replace(fresh, c.progress(s.Revision))
				fresh, c.reading = nil, 0
			}
		case follow.Failed:
			c.failed(ctx, s)
		}
	}
	return nil
}

// pageSize returns the number of objects in each answer to a list request, as upstream's clients have it; 0 means all.
func (c *follower) pageSize() int64 {
	if c.foreign {
		return 500
	}
	return 0
}

// progress records that the server serves the resource, and returns a revision as a number, 0 if it is none.
func (c *follower) progress(revision string) uint64 {
	c.absent, c.refused = false, false
	n, err := strconv.ParseUint(revision, 10, 64)
	if err != nil {
		return 0 // see Await
	}
	return n
}

// kept returns the held form of an object.
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

// mostForeign is how many objects are held of a resource that another server has: a list without an end must not take all memory.
const mostForeign = 250_000

// check says no to an object that readers have no type for.
func (c *follower) check(obj client.Object) error {
	if c.foreign && max(c.reading, c.count) >= mostForeign && c.entry(keyOf(obj)) == nil { // only run writes these
		return fmt.Errorf("there are more than %d objects", mostForeign)
	}
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
func (c *follower) replace(fresh content, revision uint64) {
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
	keys := sorting.Sorted(maps.Keys(fresh), func(a, b types.NamespacedName) int {
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
	c.revision = revision // it is lower than before if the server's data was replaced
	c.wake()
	c.mu.Unlock()
	c.beReady()
}
