package builtin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// Reserve implements [plugin.Reserve]: the devices that were found are the pod's from now on.
func (d *DynamicResources) Reserve(_ context.Context, p plugin.Placement) plugin.Verdict {
	c, ok := p.Check.(*deviceCheck)
	if !ok || c == nil || c.allocator == nil {
		return plugin.Verdict{}
	}
	if c.chosen, ok = c.plans[p.Node]; !ok {
		return plugin.Fail(errors.New("claim allocation not found for node"))
	}
	c.allocator, c.plans = nil, nil // they are not needed from Reserve on
	for i, claim := range c.wanted {
		d.inFlight.add(p.Pod.UID, claim, &c.chosen.results[i])
	}
	if e := c.chosen.extended; e != nil {
		d.inFlight.add(p.Pod.UID, e, &c.chosen.results[len(c.wanted)])
	}
	return plugin.Verdict{}
}

// Unreserve implements [plugin.Reserve]. A reservation that was written already stays: the next decision finds the pod's claim
// allocated, PostFilter deallocates it if it is in the way, and the controller ends the reservation with the pod.
func (d *DynamicResources) Unreserve(_ context.Context, p plugin.Placement) {
	d.inFlight.drop(p.Pod.UID)
}

// Busy implements [plugin.PreFlight].
func (*DynamicResources) Busy(p plugin.Placement) bool {
	c, ok := p.Check.(*deviceCheck)
	return ok && c != nil
}

// PreBind implements [plugin.PreBind]: it writes the allocations, reserves the claims for the pod, and waits until their
// devices meet their binding conditions.
func (d *DynamicResources) PreBind(ctx context.Context, p plugin.Placement) plugin.Verdict {
	if !d.Busy(p) {
		return plugin.Skip
	}
	c := p.Check.(*deviceCheck) // Busy has looked
	var claims []*resourcev1.ResourceClaim
	for i, claim := range c.wanted {
		claim, err := d.claim(ctx, p, claim, &c.chosen.results[i])
		if err != nil {
			return plugin.Fail(err)
		}
		claims = append(claims, claim)
	}
	if c.chosen != nil && c.chosen.extended != nil {
		claim, err := d.writeExtended(ctx, p, c.chosen)
		if err != nil {
			return plugin.Fail(err)
		}
		claims = append(claims, claim)
	}
	for _, claim := range c.allocated {
		if !resourceclaim.IsReservedForPod(p.Pod.Pod, claim, false) {
			var err error
			if claim, err = d.claim(ctx, p, claim, nil); err != nil {
				return plugin.Fail(err)
			}
		}
		claims = append(claims, claim)
	}
	if err := d.awaitDevices(ctx, p, claims); err != nil {
		return plugin.Fail(err)
	}
	return plugin.Verdict{}
}

// claimTries is how often a claim that changed meanwhile is read and written again.
const claimTries = 5

// claim writes that a claim is reserved for a pod and, if result is not nil, its allocation.
func (d *DynamicResources) claim(
	ctx context.Context, p plugin.Placement, c *resourcev1.ResourceClaim, result *resourcev1.AllocationResult,
) (*resourcev1.ResourceClaim, error) {
	for try := 1; ; try++ {
		after, err := reserveClaim(ctx, p, c, result)
		if err == nil {
			if result != nil {
				d.inFlight.write(after)
			}
			return after, nil
		}
		if !apierrors.IsConflict(err) || try == claimTries {
			return nil, err
		}
		fresh, err := client.ResourceClaims.Get(ctx, p.Client, c.Namespace, c.Name)
		if err != nil {
			return nil, fmt.Errorf("get updated claim %s/%s after conflict: %w", c.Namespace, c.Name, err)
		}
		if fresh.UID != c.UID {
			return nil, fmt.Errorf("claim %s/%s was replaced in the meantime", c.Namespace, c.Name)
		}
		c = fresh
	}
}

func reserveClaim(ctx context.Context, p plugin.Placement, c *resourcev1.ResourceClaim, result *resourcev1.AllocationResult) (*resourcev1.ResourceClaim, error) {
	if c.DeletionTimestamp != nil {
		return nil, fmt.Errorf("claim %s/%s got deleted in the meantime", c.Namespace, c.Name)
	}
	c = c.DeepCopy()
	if result != nil {
		if c.Status.Allocation != nil {
			return nil, fmt.Errorf("claim %s/%s got allocated elsewhere in the meantime", c.Namespace, c.Name)
		}
		if !slices.Contains(c.Finalizers, resourcev1.Finalizer) {
			c.Finalizers = append(c.Finalizers, resourcev1.Finalizer)
			after, err := client.ResourceClaims.Update(ctx, p.Client, c, "")
			if err != nil {
				return nil, fmt.Errorf("add finalizer to claim %s/%s: %w", c.Namespace, c.Name, err)
			}
			c = after.DeepCopy()
		}
		c.Status.Allocation = result.DeepCopy()
	}
	if c.Status.Allocation == nil {
		return nil, fmt.Errorf("claim %s/%s got deallocated elsewhere in the meantime", c.Namespace, c.Name)
	}
	if c.Status.Allocation.AllocationTimestamp == nil && result != nil {
		c.Status.Allocation.AllocationTimestamp = new(metav1.Now())
	}
	if !resourceclaim.IsReservedForPod(p.Pod.Pod, c, false) {
		by := resourcev1.ResourceClaimConsumerReference{Resource: client.Pods.Resource, Name: p.Pod.Name, UID: p.Pod.UID}
		c.Status.ReservedFor = append(c.Status.ReservedFor, by)
	}
	after, err := client.ResourceClaims.Update(ctx, p.Client, c, "status")
	switch {
	case err != nil && result != nil:
		return nil, fmt.Errorf("add allocation and reservation to claim %s/%s: %w", c.Namespace, c.Name, err)
	case err != nil:
		return nil, fmt.Errorf("add reservation to claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	return after, nil
}

// conditional reports whether some device of a claim has conditions for binding.
func conditional(c *resourcev1.ResourceClaim) bool {
	return c.Status.Allocation != nil && slices.ContainsFunc(c.Status.Allocation.Devices.Results, func(r resourcev1.DeviceRequestAllocationResult) bool {
		return len(r.BindingConditions) > 0
	})
}

// boundDevices reports whether all devices of a claim meet their binding conditions. It returns an error if one has failed.
func boundDevices(c *resourcev1.ResourceClaim) (bool, error) {
	if c.Status.Allocation == nil {
		return false, nil
	}
	for i := range c.Status.Allocation.Devices.Results {
		r := &c.Status.Allocation.Devices.Results[i]
		if len(r.BindingConditions) == 0 {
			continue
		}
		at := slices.IndexFunc(c.Status.Devices, func(s resourcev1.AllocatedDeviceStatus) bool {
			return s.Driver == r.Driver && s.Pool == r.Pool && s.Device == r.Device
		})
		if at < 0 {
			return false, nil
		}
		conditions := c.Status.Devices[at].Conditions
		for _, failure := range r.BindingFailureConditions {
			if f := meta.FindStatusCondition(conditions, failure); f != nil && f.Status == metav1.ConditionTrue {
				return false, fmt.Errorf("device binding failed: claim=%s, reason=%s, message=%q", c.Name, f.Reason, f.Message)
			}
		}
		for _, wanted := range r.BindingConditions {
			if !meta.IsStatusConditionTrue(conditions, wanted) {
				return false, nil
			}
		}
	}
	return true, nil
}

// expired reports whether the devices of a claim took too long.
func expired(c *resourcev1.ResourceClaim, timeout time.Duration, now time.Time) bool {
	a := c.Status.Allocation
	return a != nil && a.AllocationTimestamp != nil && conditional(c) && a.AllocationTimestamp.Add(timeout).Before(now)
}

// awaitDevices returns when the devices of all claims meet their binding conditions, or when it is known that they will not.
func (d *DynamicResources) awaitDevices(ctx context.Context, p plugin.Placement, claims []*resourcev1.ResourceClaim) error {
	claims = slices.DeleteFunc(claims, func(c *resourcev1.ResourceClaim) bool { return !conditional(c) })
	if len(claims) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, d.bindingTimeout())
	defer cancel()
	w := &volumeWait{client: p.Client, ends: make(chan error, len(claims))}
	followers := run.NewGroup(ctx, 0)
	defer followers.Stop()
	for _, c := range claims {
		follows(followers, w, client.ResourceClaims, c.Namespace, c.Name, func(_ context.Context, now *resourcev1.ResourceClaim) (bool, error) {
			if now == nil || now.UID != c.UID || now.Status.Allocation == nil {
				return true, fmt.Errorf("claim %s/%s got deallocated elsewhere in the meantime", c.Namespace, c.Name)
			}
			ready, err := boundDevices(now)
			return ready || err != nil, err
		})
	}
	for range claims {
		select {
		case err := <-w.ends:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("device binding timeout: %w", ctx.Err())
		}
	}
	return nil
}
