package dependents

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

// MaxBurst bounds the pods that one reconcile creates or deletes, so that one huge
// object does not hold all others up.
const MaxBurst = 500

// Pods creates and deletes pods for controllers, writes the events about that, and waits until the cache has the changes.
type Pods struct {
	Claims[*corev1.Pod]
	Events *client.Recorder

	// Word words the event about a pod that was made or deleted, or about why it was
	// not; nil means as the controllers of ReplicaSets, DaemonSets and Jobs do.
	Word func(did Deed, owner client.Object, pod string, err error) string
}

// A Deed is an action on a pod.
type Deed string

// The deeds, as reasons of events name them.
const (
	Create Deed = "Create"
	Delete Deed = "Delete"
)

// NewPods returns the pods of the owners of a Controller, in a cache with [Indexes].
func NewPods[T client.Object](k *Controller[T], pods *cache.Cache[*corev1.Pod]) *Pods {
	Follow(k, pods)
	return &Pods{Claims: Claims[*corev1.Pod]{Client: k.Client, Resource: client.Pods, Cache: pods}, Events: k.Events}
}

// word is what is said about a pod where a controller has no words of its own.
func word(did Deed, _ client.Object, pod string, err error) string {
	switch {
	case did == Create && err != nil:
		return fmt.Sprintf("Error creating: %v", err)
	case did == Create:
		return "Created pod: " + pod
	case err != nil:
		return fmt.Sprintf("Error deleting: %v", err)
	}
	return "Deleted pod: " + pod
}

// event writes the event about a pod that was created or deleted, or could not be. Errors because the program stops have
// no event.
func (w *Pods) event(ctx context.Context, did Deed, owner client.Object, pod string, err error) {
	say := w.Word
	if say == nil {
		say = word
	}
	switch {
	case err == nil:
		w.Events.Event(owner, corev1.EventTypeNormal, "Successful"+string(did), "%s", say(did, owner, pod, nil))
	case ctx.Err() == nil:
		w.Events.Event(owner, corev1.EventTypeWarning, "Failed"+string(did), "%s", say(did, owner, pod, err))
	}
}

// DropFinalizer takes the finalizer from a pod.
func (w *Pods) DropFinalizer(ctx context.Context, pod *corev1.Pod, finalizer string) error {
	if !slices.Contains(pod.Finalizers, finalizer) {
		return nil
	}
	// With its last finalizer a pod that is being deleted goes at once.
	err := w.Patch(ctx, pod, map[string]any{"uid": pod.UID, "$deleteFromPrimitiveList/finalizers": []string{finalizer}})
	if apierrors.IsConflict(err) {
		return nil // it is another pod by now
	}
	return err
}

// Create makes n pods, the i-th of which is newPod(i), in growing batches (dependents-O3).
// The first failures end it. That the namespace is going away is no failure.
func (w *Pods) Create(ctx context.Context, owner client.Object, n int, newPod func(i int) *corev1.Pod) error {
	return Batches(ctx, n, func(ctx context.Context, i int) error { return w.createOne(ctx, owner, newPod(i)) })
}

// Batches does work n times, in growing batches (dependents-O3). The first batch with a failure ends it; one of its errors is
// returned.
func Batches(ctx context.Context, n int, work func(ctx context.Context, i int) error) error {
	n = min(n, MaxBurst)
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
			return errs[0] // the others are like it, and have events
		}
		next += size
	}
	return nil
}

func (w *Pods) createOne(ctx context.Context, owner client.Object, pod *corev1.Pod) error {
	made, err := client.Pods.Create(ctx, w.Client, pod)
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	case err != nil:
		w.event(ctx, Create, owner, pod.Name, err)
		return err // which names the pod; it is the message of conditions such as ReplicaFailure
	}
	w.event(ctx, Create, owner, made.Name, nil)
	return w.Cache.Await(ctx, made.ResourceVersion)
}

// Remove deletes pods, without a finalizer of ours if they have it.
func (w *Pods) Remove(ctx context.Context, owner client.Object, pods []*corev1.Pod, finalizer string) error {
	var mu sync.Mutex
	var errs []error
	g := run.NewGroup(ctx, 16) // enough to share a sync of the store's disk
	for _, p := range pods[:min(len(pods), MaxBurst)] {
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

func (w *Pods) removeOne(ctx context.Context, owner client.Object, pod *corev1.Pod, finalizer string) error {
	if finalizer != "" {
		if err := w.DropFinalizer(ctx, pod, finalizer); err != nil {
			return err
		}
	}
	deleted, err := w.Delete(ctx, pod, metav1.DeleteOptions{})
	switch {
	case deleted:
		w.event(ctx, Delete, owner, pod.Name, nil)
	case err != nil:
		w.event(ctx, Delete, owner, pod.Name, err)
	}
	return err
}
