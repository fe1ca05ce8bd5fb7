package operation

import (
	"context"
	"errors"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

// Instances are the stored objects of kinds that are to be served no longer. It has the methods that package definitions
// needs, and does not check permissions.
type Instances struct{ operations *Operations }

// Instances returns the stored objects.
func (o *Operations) Instances() Instances { return Instances{o} }

// deletions is how many objects are deleted at the same time: they share the writes to the disk.
const deletions = 32

// Delete asks for the deletion of all objects of a kind, as any client would do it: finalizers are honoured. The
// definition of the kind is being deleted, so no more objects come (see definitionGuards).
func (i Instances) Delete(ctx context.Context, kind *catalog.Kind) error {
	user := &auth.User{Name: "system:apiserver", Groups: []string{auth.GroupMasters}}
	got, err := i.operations.store.List(store.Query{Prefix: kind.Prefix("")}, store.Page{})
	if err != nil {
		return StoreFault(err)
	}
	var mu sync.Mutex
	var errs []error
	g := run.NewGroup(ctx, deletions)
	for _, rec := range got.Records {
		obj := codec.ItemOf(kind, rec.Key, rec.Value).Object()
		if obj.GetDeletionTimestamp() != nil {
			continue // asked for before
		}
		t := Target{User: user, Kind: kind.Hub(), Namespace: obj.GetNamespace(), Name: obj.GetName(), Allowed: true, Local: true}
		g.Go(func(ctx context.Context) {
			err := run.Catch(func() error {
				_, err := i.operations.removeAllowed(ctx, &t, metav1.DeleteOptions{})
				return err
			})
			if err != nil && !apierrors.IsNotFound(err) {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	g.Wait()
	g.Stop()
	if len(errs) == 0 {
		return ctx.Err()
	}
	const shown = 5 // the others are of the same causes
	return errors.Join(errs[:min(len(errs), shown)]...)
}

// Gone blocks until there are no objects of a kind.
func (i Instances) Gone(ctx context.Context, kind *catalog.Kind) error {
	q := store.Query{Prefix: kind.Prefix("")}
	for {
		state, err := i.operations.store.List(q, store.Page{})
		if err != nil {
			return StoreFault(err)
		}
		left := len(state.Records)
		if left == 0 {
			return nil
		}
		for ev, err := range i.operations.store.Watch(ctx, q, state.Revision) {
			if err != nil {
				if errors.Is(err, store.ErrExpired) {
					break
				}
				return err
			}
			if ev.Key == "" {
				continue
			}
			switch {
			case ev.Deleted:
				left--
			case ev.Prev.Value == nil:
				left++
			}
			if left == 0 {
				break
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// ended is the author of the deletions of objects whose definition has ended.
var ended = store.Author{User: "system:apiserver", Agent: "definitions"}

// Discard removes all records that were created while the last objects went.
func (i Instances) Discard(ctx context.Context, kind *catalog.Kind) error {
	got, err := i.operations.store.List(store.Query{Prefix: kind.Prefix("")}, store.Page{})
	if err != nil {
		return StoreFault(err)
	}
	for _, rec := range got.Records {
		w := store.Write{Key: rec.Key, Value: codec.ItemOf(kind, rec.Key, rec.Value).Restate(), Delete: true, Frees: true, Author: ended}
		if _, err := i.operations.commit(ctx, w); err != nil && !errors.Is(err, store.ErrNotFound) {
			return StoreFault(err)
		}
	}
	return nil
}
