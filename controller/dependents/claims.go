package dependents

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

// The indexes of objects that can have a controller.
const (
	ByController = "controller" // UID of the controller reference
	byOrphanage  = "orphanage"  // namespace, of objects without a controller
)

// Indexes are the indexes of a cache of dependents for [Claims].
func Indexes[T client.Object]() cache.Indexes[T] {
	return cache.Indexes[T]{ByController: controllerOf[T], byOrphanage: orphanageOf[T]}
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

// Key returns the key of the controller of that kind which an object names.
func Key(obj client.Object, kind string) (controller.Key, bool) {
	ref := metav1.GetControllerOfNoCopy(obj)
	if ref == nil || ref.Kind != kind {
		return controller.Key{}, false
	}
	return controller.Key{Namespace: obj.GetNamespace(), Name: ref.Name}, true
}

// Reference returns the reference that makes owner the controller of something.
func Reference(owner client.Object) metav1.OwnerReference {
	return *metav1.NewControllerRef(owner, client.KindOf(owner))
}

// An Owner is an object and its selector; see [Controller.Owner].
type Owner struct {
	client.Object
	Selector labels.Selector

	now func(context.Context) (client.Object, error) // the object as the server has it
}

// A claim is the adoption and release of a controller's objects (dependents-O1).
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

// Claims carries claims of dependents of one kind out.
type Claims[T client.Object] struct {
	Client   client.Interface
	Resource client.Resource[T]
	Cache    *cache.Cache[T] // with [Indexes]

	// Fits says whether owner may adopt an orphan that it selects; nil means yes.
	Fits func(owner client.Object, orphan T) bool
}

// candidates returns what owner has or could have.
func (w *Claims[T]) candidates(owner client.Object) []T {
	orphans := w.Cache.ByIndex(byOrphanage, owner.GetNamespace())
	if w.Fits != nil {
		orphans = slices.DeleteFunc(orphans, func(o T) bool { return !w.Fits(owner, o) })
	}
	return slices.Concat(w.Cache.ByIndex(ByController, string(owner.GetUID())), orphans)
}

// Mine returns the owner's dependents as the cache has them, by name.
func (w *Claims[T]) Mine(owner Owner) []T {
	return planClaim(owner, owner.Selector, w.candidates(owner)).mine
}

// Claim returns the owner's dependents, by name, after adopting and releasing what has
// to be. The finalizer, if any, is added to adopted objects and taken from released ones.
func (w *Claims[T]) Claim(ctx context.Context, owner Owner, finalizer string) ([]T, error) {
	c := planClaim(owner, owner.Selector, w.candidates(owner))
	if len(c.adopt) == 0 && len(c.release) == 0 {
		return c.mine, nil
	}
	if len(c.adopt) > 0 {
		// The cache may not know yet that the owner is being deleted or is another
		// by now, and an adoption by a dead owner is a death sentence.
		now, err := owner.now(ctx)
		if err != nil {
			return nil, err
		}
		if now.GetUID() != owner.GetUID() || now.GetDeletionTimestamp() != nil {
			return nil, fmt.Errorf("%s %s/%s is gone or being deleted; no %s are adopted", client.KindOf(owner.Object).Kind, owner.GetNamespace(), owner.GetName(), w.Resource.Resource)
		}
	}
	var errs []error
	for _, o := range c.adopt {
		ref := Reference(owner.Object)
		meta := map[string]any{"uid": o.GetUID(), "ownerReferences": []metav1.OwnerReference{ref}}
		if finalizer != "" {
			meta["finalizers"] = []string{finalizer}
		}
		errs = append(errs, w.Patch(ctx, o, meta))
	}
	for _, o := range c.release {
		meta := map[string]any{
			"uid":             o.GetUID(),
			"ownerReferences": []map[string]any{{"$patch": "delete", "uid": owner.GetUID()}},
		}
		if finalizer != "" {
			meta["$deleteFromPrimitiveList/finalizers"] = []string{finalizer}
		}
		errs = append(errs, w.Patch(ctx, o, meta))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return planClaim(owner, owner.Selector, w.candidates(owner)).mine, nil
}

// Patch merges meta into the metadata of an object. It does nothing if the object was deleted, even if there is another one
// of that name.
func (w *Claims[T]) Patch(ctx context.Context, obj T, meta map[string]any) error {
	data, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		return err
	}
	now, err := w.Resource.Patch(ctx, w.Client, obj.GetNamespace(), obj.GetName(), types.StrategicMergePatchType, data, "")
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("patch %s %s: %w", w.Resource.Kind, obj.GetName(), err)
	}
	return w.Cache.Await(ctx, now.GetResourceVersion())
}

// Delete deletes a dependent, unless it is gone or another one by now, and waits until
// the cache has seen it. It reports whether there was something to delete.
func (w *Claims[T]) Delete(ctx context.Context, obj T, opts metav1.DeleteOptions) (deleted bool, err error) {
	opts.Preconditions = metav1.NewUIDPreconditions(string(obj.GetUID()))
	err = w.Resource.Delete(ctx, w.Client, obj.GetNamespace(), obj.GetName(), opts)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
	case err != nil:
		return false, fmt.Errorf("delete %s %s/%s: %w", w.Resource.Kind, obj.GetNamespace(), obj.GetName(), err)
	default:
		deleted = true
	}
	return deleted, w.Cache.AwaitDeletion(ctx, obj)
}
