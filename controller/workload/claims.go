package workload

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
)

// The indexes of what can have a controller.
const (
	byController = "controller" // UID of the controller reference
	byOrphanage  = "orphanage"  // namespace, of objects without a controller
)

// ownedIndexes are what a cache needs for claims.
func ownedIndexes[T client.Object]() cache.Indexes[T] {
	return cache.Indexes[T]{byController: controllerOf[T], byOrphanage: orphanageOf[T]}
}

func controllerOf[T client.Object](obj T) []string {
	if ref := metav1.GetControllerOfNoCopy(obj); ref != nil {
		return []string{string(ref.UID)}
	}
	return nil
}

func orphanageOf[T client.Object](obj T) []string {
	if metav1.GetControllerOfNoCopy(obj) == nil {
		return []string{obj.GetNamespace()}
	}
	return nil
}

// ownerKey returns the key of the controller of that kind which an object names.
func ownerKey(obj client.Object, kind string) (controller.Key, bool) {
	ref := metav1.GetControllerOfNoCopy(obj)
	if ref == nil || ref.Kind != kind {
		return controller.Key{}, false
	}
	return controller.Key{Namespace: obj.GetNamespace(), Name: ref.Name}, true
}

// wakeBy has a loop look at each object of a cache that changes.
func wakeBy[T client.Object](objects *cache.Cache[T], loop *controller.Loop) {
	var none T
	objects.Subscribe(func(before, after T) {
		if client.Object(after) == client.Object(none) {
			after = before
		}
		loop.Add(controller.KeyOf(after))
	})
}

// A claim is what a controller does about objects that it has or could have (W1).
type claim[T client.Object] struct {
	mine    []T // they stay
	adopt   []T
	release []T
}

// planClaim decides about the objects that name owner as their controller and the ones
// without a controller.
func planClaim[T client.Object](owner client.Object, selector labels.Selector, objs []T) (c claim[T]) {
	leaving := owner.GetDeletionTimestamp() != nil
	for _, o := range objs {
		ref := metav1.GetControllerOfNoCopy(o)
		matches := selector.Matches(labels.Set(o.GetLabels()))
		switch {
		case ref != nil && ref.UID != owner.GetUID():
		case ref != nil && (matches || leaving):
			c.mine = append(c.mine, o)
		case ref != nil:
			if o.GetDeletionTimestamp() == nil {
				c.release = append(c.release, o)
			}
		case matches && !leaving && o.GetDeletionTimestamp() == nil && !selector.Empty():
			c.adopt = append(c.adopt, o)
		}
	}
	byName := func(a, b T) int { return cmp.Compare(a.GetName(), b.GetName()) }
	slices.SortFunc(c.mine, byName) // plans do not depend on the order of a map
	slices.SortFunc(c.adopt, byName)
	slices.SortFunc(c.release, byName)
	return c
}

// claims carries claims of objects of one kind out.
type claims[T client.Object] struct {
	client   client.Interface
	resource client.Resource[T]
	cache    *cache.Cache[T] // with ownedIndexes

	// fits says whether owner may adopt an orphan that it selects; nil means yes.
	fits func(owner client.Object, orphan T) bool
}

// candidates returns what owner has or could have.
func (w *claims[T]) candidates(owner client.Object) []T {
	orphans := w.cache.ByIndex(byOrphanage, owner.GetNamespace())
	if w.fits != nil {
		orphans = slices.DeleteFunc(orphans, func(o T) bool { return !w.fits(owner, o) })
	}
	return slices.Concat(w.cache.ByIndex(byController, string(owner.GetUID())), orphans)
}

// claim returns the owner's objects after adopting and releasing what has to be.
// The finalizer, if any, is added to adopted objects and taken from released ones.
func (w *claims[T]) claim(ctx context.Context, owner client.Object, ownerNow func(context.Context) (client.Object, error), selector labels.Selector, finalizer string) ([]T, error) {
	c := planClaim(owner, selector, w.candidates(owner))
	if len(c.adopt) == 0 && len(c.release) == 0 {
		return c.mine, nil
	}
	if len(c.adopt) > 0 {
		// The cache may not know yet that the owner is being deleted or is another
		// by now, and an adoption by a dead owner is a death sentence.
		now, err := ownerNow(ctx)
		if err != nil {
			return nil, err
		}
		if now.GetUID() != owner.GetUID() || now.GetDeletionTimestamp() != nil {
			return nil, fmt.Errorf("%s %s/%s is gone or being deleted; no %s are adopted", client.KindOf(owner).Kind, owner.GetNamespace(), owner.GetName(), w.resource.Resource)
		}
	}
	var errs []error
	for _, o := range c.adopt {
		ref := ownerReference(owner)
		meta := map[string]any{"uid": o.GetUID(), "ownerReferences": []metav1.OwnerReference{ref}}
		if finalizer != "" {
			meta["finalizers"] = []string{finalizer}
		}
		errs = append(errs, w.patch(ctx, o, meta))
	}
	for _, o := range c.release {
		meta := map[string]any{
			"uid":             o.GetUID(),
			"ownerReferences": []map[string]any{{"$patch": "delete", "uid": owner.GetUID()}},
		}
		if finalizer != "" {
			meta["$deleteFromPrimitiveList/finalizers"] = []string{finalizer}
		}
		errs = append(errs, w.patch(ctx, o, meta))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return planClaim(owner, selector, w.candidates(owner)).mine, nil
}

// patch merges meta into the metadata of an object. One that is gone, or another by
// now, is nobody's concern any more.
func (w *claims[T]) patch(ctx context.Context, obj T, meta map[string]any) error {
	data, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		return err
	}
	now, err := w.resource.Patch(ctx, w.client, obj.GetNamespace(), obj.GetName(), types.StrategicMergePatchType, data, "")
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("patch %s %s: %w", w.resource.Kind, obj.GetName(), err)
	}
	return w.cache.Await(ctx, now.GetResourceVersion())
}

func ownerReference(owner client.Object) metav1.OwnerReference {
	return *metav1.NewControllerRef(owner, client.KindOf(owner))
}
