package devices

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/controller"
)

// reservations ends the reservations of pods that are done, and frees the claims (devices-D3, devices-D4). Its keys are claims.
type reservations struct {
	*objects
	loop *controller.Loop
}

func (r *reservations) subscribe() {
	r.claims.Subscribe(func(_, after *resourcev1.ResourceClaim) {
		if after != nil {
			r.loop.Add(controller.KeyOf(after))
		}
	})
	r.pods.Subscribe(func(before, after *corev1.Pod) {
		pod := after
		if after == nil {
			pod = before
		}
		if !uses(pod) || after != nil && !done(after) {
			return
		}
		for _, c := range claimsOf(pod) {
			r.loop.Add(controller.Key{Namespace: pod.Namespace, Name: c[len(pod.Namespace)+1:]})
		}
	})
}

func (r *reservations) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	c, ok := r.claims.Get(key.Namespace, key.Name)
	if !ok {
		return controller.Result{}, nil
	}
	var valid []resourcev1.ResourceClaimConsumerReference
	for _, by := range c.Status.ReservedFor {
		holds, err := r.holds(ctx, c.Namespace, by)
		if err != nil {
			return controller.Result{}, err
		}
		if holds {
			valid = append(valid, by)
		}
	}
	ours := slices.Contains(c.Finalizers, resourcev1.Finalizer)
	var err error
	switch {
	case len(valid) < len(c.Status.ReservedFor):
		next := c.DeepCopy()
		if next.Status.ReservedFor = valid; len(valid) == 0 && ours {
			next.Status.Allocation = nil
		}
		if c, err = r.updateStatus(ctx, next); err == nil && c.Status.Allocation == nil {
			c, err = r.release(ctx, c)
		}
	case ours && c.DeletionTimestamp != nil && len(valid) == 0:
		if c.Status.Allocation != nil {
			next := c.DeepCopy()
			next.Status.Allocation = nil
			c, err = r.updateStatus(ctx, next)
		}
		if err == nil {
			c, err = r.release(ctx, c)
		}
	}
	if err != nil || len(valid) > 0 || c.DeletionTimestamp != nil {
		return controller.Result{}, err
	}
	return controller.Result{}, r.discard(ctx, c)
}

// holds reports whether a reservation is still needed. A pod that the cache does not have may be new.
func (r *reservations) holds(ctx context.Context, namespace string, by resourcev1.ResourceClaimConsumerReference) (bool, error) {
	if by.APIGroup != "" || by.Resource != "pods" {
		return true, nil
	}
	if pod, ok := r.pods.Get(namespace, by.Name); ok {
		return pod.UID == by.UID && !done(pod), nil
	}
	pod, err := client.Pods.Get(ctx, r.client, namespace, by.Name)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && pod.UID == by.UID, err
}

// release removes the finalizer of a claim without an allocation.
func (r *reservations) release(ctx context.Context, c *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error) {
	if !slices.Contains(c.Finalizers, resourcev1.Finalizer) {
		return c, nil
	}
	next := c.DeepCopy()
	next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == resourcev1.Finalizer })
	return r.await(ctx)(client.ResourceClaims.Update(ctx, r.client, next, ""))
}

// discard deletes a claim that was made for a pod that is done. If the pod is not in the cache, garbage collection sees to
// the claim: the cache may not have the pod yet.
func (r *reservations) discard(ctx context.Context, c *resourcev1.ResourceClaim) error {
	name, uid := owner(c)
	if name == "" {
		return nil
	}
	pod, ok := r.pods.Get(c.Namespace, name)
	if !ok || pod.UID == uid && !done(pod) {
		return nil
	}
	err := client.ResourceClaims.Delete(ctx, r.client, c.Namespace, c.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &c.UID}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete unused generated claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	return nil
}
