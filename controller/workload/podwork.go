package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	claims[*corev1.Pod]
	events *client.Recorder
}

func newPodWork(c client.Interface, pods *cache.Cache[*corev1.Pod], events *client.Recorder) *podWork {
	return &podWork{claims[*corev1.Pod]{client: c, resource: client.Pods, cache: pods}, events}
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
	return w.each(ctx, n, func(ctx context.Context, i int) error { return w.createOne(ctx, owner, newPod(i)) })
}

// each does work n times, in growing batches (W3). The first failures end it.
func (w *podWork) each(ctx context.Context, n int, work func(ctx context.Context, i int) error) error {
	n = min(n, maxBurst)
	var mu sync.Mutex
	var errs []error
	for next, batch := 0, 1; next < n; batch *= 2 {
		size := min(batch, n-next)
		g := run.NewGroup(ctx, 0)
		for i := next; i < next+size; i++ {
			g.Go(func(ctx context.Context) {
				if err := work(ctx, i); err != nil {
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
	return w.cache.Await(ctx, made.ResourceVersion)
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
	return w.cache.AwaitDeletion(ctx, pod)
}
