package workload

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/internal/run"
)

// maxBurst bounds the pods that one reconcile creates or deletes, so that one huge
// object does not hold all others up.
const maxBurst = 500

// podWork carries out what controllers decide about pods, tells it in events, and
// waits until the cache has seen it.
type podWork struct {
	client client.Interface
	pods   *cache.Cache[*corev1.Pod]
	events *client.Recorder
}

// A claim is what a controller does about pods that it has or could have (W1).
type claim struct {
	mine    []*corev1.Pod // they stay
	adopt   []*corev1.Pod
	release []*corev1.Pod
}

// planClaim decides about the pods that name owner as their controller and the ones
// without a controller.
func planClaim(owner client.Object, selector labels.Selector, pods []*corev1.Pod) (c claim) {
	leaving := owner.GetDeletionTimestamp() != nil
	for _, p := range pods {
		ref := metav1.GetControllerOfNoCopy(p)
		matches := selector.Matches(labels.Set(p.Labels))
		switch {
		case ref != nil && ref.UID != owner.GetUID():
		case ref != nil && (matches || leaving):
			c.mine = append(c.mine, p)
		case ref != nil:
			if p.DeletionTimestamp == nil {
				c.release = append(c.release, p)
			}
		case matches && !leaving && p.DeletionTimestamp == nil && !selector.Empty():
			c.adopt = append(c.adopt, p)
		}
	}
	byName := func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) }
	slices.SortFunc(c.mine, byName) // plans do not depend on the order of a map
	slices.SortFunc(c.adopt, byName)
	slices.SortFunc(c.release, byName)
	return c
}

// claim returns the owner's pods after adopting and releasing what has to be.
// The finalizer, if any, is added to adopted pods and taken from released ones.
func (w *podWork) claim(ctx context.Context, owner client.Object, ownerNow func(context.Context) (client.Object, error), selector labels.Selector, finalizer string) ([]*corev1.Pod, error) {
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
			return nil, fmt.Errorf("%s %s/%s is gone or being deleted; no pods are adopted", client.KindOf(owner).Kind, owner.GetNamespace(), owner.GetName())
		}
	}
	var errs []error
	for _, p := range c.adopt {
		ref := ownerReference(owner)
		meta := map[string]any{"uid": p.UID, "ownerReferences": []metav1.OwnerReference{ref}}
		if finalizer != "" {
			meta["finalizers"] = []string{finalizer}
		}
		errs = append(errs, w.patch(ctx, p, meta))
	}
	for _, p := range c.release {
		meta := map[string]any{
			"uid":             p.UID,
			"ownerReferences": []map[string]any{{"$patch": "delete", "uid": owner.GetUID()}},
		}
		if finalizer != "" {
			meta["$deleteFromPrimitiveList/finalizers"] = []string{finalizer}
		}
		errs = append(errs, w.patch(ctx, p, meta))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return planClaim(owner, selector, w.candidates(owner)).mine, nil
}

func (w *podWork) candidates(owner client.Object) []*corev1.Pod {
	return slices.Concat(
		w.pods.ByIndex(byController, string(owner.GetUID())),
		w.pods.ByIndex(byOrphanage, owner.GetNamespace()),
	)
}

// patch merges meta into the metadata of a pod. A pod that is gone, or another by
// now, is nobody's concern any more.
func (w *podWork) patch(ctx context.Context, pod *corev1.Pod, meta map[string]any) error {
	data, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		return err
	}
	now, err := client.Pods.Patch(ctx, w.client, pod.Namespace, pod.Name, types.StrategicMergePatchType, data, "")
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("patch pod %s: %w", pod.Name, err)
	}
	return w.pods.Await(ctx, now.ResourceVersion)
}

// dropFinalizer takes the finalizer from a pod.
func (w *podWork) dropFinalizer(ctx context.Context, pod *corev1.Pod, finalizer string) error {
	if !slices.Contains(pod.Finalizers, finalizer) {
		return nil
	}
	// With its last finalizer a pod that is being deleted goes at once.
	err := w.patch(ctx, pod, map[string]any{"uid": pod.UID, "$deleteFromPrimitiveList/finalizers": []string{finalizer}})
	if apierrors.IsConflict(err) {
		return nil // it is another pod by now
	}
	return err
}

func ownerReference(owner client.Object) metav1.OwnerReference {
	return *metav1.NewControllerRef(owner, client.KindOf(owner))
}

// podFrom returns a new pod of an owner after a template.
func podFrom(owner client.Object, template *corev1.PodTemplateSpec) *corev1.Pod {
	t := template.DeepCopy()
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       owner.GetNamespace(),
			GenerateName:    owner.GetName() + "-",
			Labels:          t.Labels,
			Annotations:     t.Annotations,
			Finalizers:      t.Finalizers,
			OwnerReferences: []metav1.OwnerReference{ownerReference(owner)},
		},
		Spec: t.Spec,
	}
}

// create makes n pods, the i-th of which is newPod(i), in growing batches (W3).
// The first failures end it. That the namespace is going away is no failure.
func (w *podWork) create(ctx context.Context, owner client.Object, n int, newPod func(i int) *corev1.Pod) error {
	n = min(n, maxBurst)
	var mu sync.Mutex
	var errs []error
	for next, batch := 0, 1; next < n; batch *= 2 {
		size := min(batch, n-next)
		g := run.NewGroup(ctx, 0)
		for i := next; i < next+size; i++ {
			g.Go(func(ctx context.Context) {
				if err := w.createOne(ctx, owner, newPod(i)); err != nil {
					mu.Lock()
					defer mu.Unlock()
					errs = append(errs, err)
				}
			})
		}
		g.Wait()
		g.Stop()
		if len(errs) > 0 {
			return errors.Join(errs...)
		}
		next += size
	}
	return nil
}

func (w *podWork) createOne(ctx context.Context, owner client.Object, pod *corev1.Pod) error {
	made, err := client.Pods.Create(ctx, w.client, pod)
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	case err != nil:
		if ctx.Err() == nil {
			w.events.Event(owner, corev1.EventTypeWarning, "FailedCreate", "Error creating: %v", err)
		}
		return fmt.Errorf("create pod: %w", err)
	}
	w.events.Event(owner, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: %s", made.Name)
	return w.pods.Await(ctx, made.ResourceVersion)
}

// remove deletes pods, without a finalizer of ours if they have it.
func (w *podWork) remove(ctx context.Context, owner client.Object, pods []*corev1.Pod, finalizer string) error {
	var mu sync.Mutex
	var errs []error
	g := run.NewGroup(ctx, 16) // enough to share a sync of the store's disk
	for _, p := range pods[:min(len(pods), maxBurst)] {
		g.Go(func(ctx context.Context) {
			if err := w.removeOne(ctx, owner, p, finalizer); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	g.Wait()
	g.Stop()
	return errors.Join(errs...)
}

func (w *podWork) removeOne(ctx context.Context, owner client.Object, pod *corev1.Pod, finalizer string) error {
	if finalizer != "" {
		if err := w.dropFinalizer(ctx, pod, finalizer); err != nil {
			return err
		}
	}
	err := client.Pods.Delete(ctx, w.client, pod.Namespace, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		// It has gone by itself, or is another by now.
	case err != nil:
		if ctx.Err() == nil {
			w.events.Event(owner, corev1.EventTypeWarning, "FailedDelete", "Error deleting: %v", err)
		}
		return fmt.Errorf("delete pod %s: %w", pod.Name, err)
	default:
		w.events.Event(owner, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: %s", pod.Name)
	}
	return w.pods.AwaitDeletion(ctx, pod)
}
