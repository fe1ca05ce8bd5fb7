package devices

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
)

// evictor deletes pods that use devices with a NoExecute taint that their claim does not tolerate (devices-D5). Its keys are
// pods.
type evictor struct {
	*objects
	slices  *cache.Cache[*resourcev1.ResourceSlice]
	rules   *cache.Cache[*resourcev1.DeviceTaintRule]
	events  *client.Recorder
	loop    *controller.Loop
	reports *controller.Loop // of the status of rules

	mu      sync.Mutex
	planned map[types.UID]bool // guarded by mu; pods that have an eviction ahead of them
	evicted map[types.UID]int  // guarded by mu; pods by rule
}

// byPool is the index of slices and claims by "driver/pool".
const byPool = "device-pool"

func poolOf(s *resourcev1.ResourceSlice) []string {
	return []string{s.Spec.Driver + "/" + s.Spec.Pool.Name}
}

func poolsOf(c *resourcev1.ResourceClaim) []string {
	var all []string
	if c.Status.Allocation != nil {
		for _, r := range c.Status.Allocation.Devices.Results {
			if pool := r.Driver + "/" + r.Pool; !slices.Contains(all, pool) {
				all = append(all, pool)
			}
		}
	}
	return all
}

func (e *evictor) subscribe() {
	e.pods.Subscribe(func(before, after *corev1.Pod) {
		if after != nil && uses(after) && after.Spec.NodeName != "" {
			e.loop.Add(controller.KeyOf(after))
		} else if after == nil && uses(before) {
			e.forget(before.UID)
		}
	})
	e.claims.Subscribe(func(before, after *resourcev1.ResourceClaim) {
		if before != nil && before.Status.Allocation != nil || after != nil && after.Status.Allocation != nil {
			e.wake(controller.KeyOfEither(before, after))
		}
	})
	e.slices.Subscribe(func(before, after *resourcev1.ResourceSlice) {
		for _, s := range []*resourcev1.ResourceSlice{before, after} {
			if s == nil || before != nil && after != nil && s == before && poolOf(before)[0] == poolOf(after)[0] {
				continue
			}
			for _, c := range e.claims.ByIndex(byPool, poolOf(s)[0]) {
				e.wake(controller.KeyOf(c))
			}
		}
	})
	e.rules.Subscribe(func(before, after *resourcev1.DeviceTaintRule) {
		if after != nil {
			e.reports.Add(controller.KeyOf(after))
		}
		if before != nil && after != nil && before.Generation == after.Generation {
			return // its status
		}
		for _, c := range e.claims.List("") {
			if touches(before, c) || touches(after, c) {
				e.wake(controller.KeyOf(c))
			}
		}
	})
}

// wake queues the pods that use a claim.
func (e *evictor) wake(claim controller.Key) {
	for _, pod := range e.pods.ByIndex(byClaim, claim.String()) {
		e.loop.Add(controller.KeyOf(pod))
	}
}

func (e *evictor) forget(pod types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.planned, pod)
}

// matches reports whether a rule taints a device. A rule without a selector taints none.
func matches(r *resourcev1.DeviceTaintRule, driver, pool, device string) bool {
	by := r.Spec.DeviceSelector
	is := func(want *string, has string) bool { return want == nil || *want == has }
	return by != nil && is(by.Driver, driver) && is(by.Pool, pool) && is(by.Device, device)
}

// touches reports whether a rule with an effect for running pods taints a device of a claim. The rule may be nil.
func touches(r *resourcev1.DeviceTaintRule, c *resourcev1.ResourceClaim) bool {
	return r != nil && r.Spec.Taint.Effect == resourcev1.DeviceTaintEffectNoExecute && selects(r, c)
}

// selects reports whether a device of a claim is one of a rule.
func selects(r *resourcev1.DeviceTaintRule, c *resourcev1.ResourceClaim) bool {
	return c.Status.Allocation != nil && slices.ContainsFunc(c.Status.Allocation.Devices.Results, func(d resourcev1.DeviceRequestAllocationResult) bool {
		return matches(r, d.Driver, d.Pool, d.Device)
	})
}

// An eviction says when a pod has to go, and because of which rules.
type eviction struct {
	when  time.Time
	rules []types.UID
}

// due returns the eviction of a pod, or nil. A rule in also counts as one with the effect NoExecute.
func (e *evictor) due(pod *corev1.Pod, also *resourcev1.DeviceTaintRule) *eviction {
	if pod.Spec.NodeName == "" {
		return nil
	}
	var out *eviction
	for name, owned := range resourceclaim.PodClaims(pod) {
		c, ok := e.claims.Get(pod.Namespace, name)
		if !ok || c.Status.Allocation == nil || owned && resourceclaim.IsForPod(pod, c, false) != nil || !resourceclaim.IsReservedForPod(pod, c, false) {
			continue
		}
		for i := range c.Status.Allocation.Devices.Results {
			e.taints(&c.Status.Allocation.Devices.Results[i], also, func(t *resourcev1.DeviceTaint, rule types.UID) {
				when, tolerated := tolerance(t, c.Status.Allocation.Devices.Results[i].Tolerations)
				if tolerated {
					return
				}
				if out == nil {
					out = &eviction{when: when}
				}
				if when.Before(out.when) {
					out.when = when
				}
				if rule != "" && !slices.Contains(out.rules, rule) {
					out.rules = append(out.rules, rule)
				}
			})
		}
	}
	return out
}

// taints calls f with the taints of a device that have an effect on running pods, and the rules that they are from.
func (e *evictor) taints(d *resourcev1.DeviceRequestAllocationResult, also *resourcev1.DeviceTaintRule, f func(t *resourcev1.DeviceTaint, rule types.UID)) {
	var newest int64
	var device *resourcev1.Device
	for _, s := range e.slices.ByIndex(byPool, d.Driver+"/"+d.Pool) {
		if s.Spec.Pool.Generation < newest {
			continue
		}
		if s.Spec.Pool.Generation > newest {
			newest, device = s.Spec.Pool.Generation, nil
		}
		if i := slices.IndexFunc(s.Spec.Devices, func(one resourcev1.Device) bool { return one.Name == d.Device }); i >= 0 {
			device = &s.Spec.Devices[i]
		}
	}
	if device != nil {
		for i := range device.Taints {
			if device.Taints[i].Effect == resourcev1.DeviceTaintEffectNoExecute {
				f(&device.Taints[i], "")
			}
		}
	}
	for _, r := range e.rules.List("") {
		taint := r.Spec.Taint
		if also != nil && r.UID == also.UID {
			taint.Effect = resourcev1.DeviceTaintEffectNoExecute
		}
		if taint.Effect == resourcev1.DeviceTaintEffectNoExecute && matches(r, d.Driver, d.Pool, d.Device) {
			f(&taint, r.UID)
		}
	}
}

// tolerance returns when a taint ends a pod, or that it does not.
func tolerance(t *resourcev1.DeviceTaint, by []resourcev1.DeviceToleration) (when time.Time, tolerated bool) {
	if t.TimeAdded != nil {
		when = t.TimeAdded.Time
	}
	var least *int64
	for i := range by {
		if by[i].Effect != resourcev1.DeviceTaintEffectNoExecute || !resourceclaim.ToleratesTaint(by[i], *t) {
			continue
		}
		if by[i].TolerationSeconds == nil {
			return when, true
		}
		if s := max(*by[i].TolerationSeconds, 0); least == nil || s < *least {
			least = &s
		}
	}
	if least != nil {
		when = when.Add(time.Duration(min(*least, int64(longestToleration/time.Second))) * time.Second)
	}
	return when, false
}

// longestToleration is a century: a longer one would overflow.
const longestToleration = 100 * 365 * 24 * time.Hour

func (e *evictor) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	pod, ok := e.pods.Get(key.Namespace, key.Name)
	if !ok || pod.DeletionTimestamp != nil {
		return controller.Result{}, nil
	}
	due := e.due(pod, nil)
	e.mu.Lock()
	was := e.planned[pod.UID]
	if due == nil {
		delete(e.planned, pod.UID)
	} else {
		e.planned[pod.UID] = true
	}
	e.mu.Unlock()
	if due == nil {
		if was {
			e.events.Event(pod, corev1.EventTypeNormal, "DeviceTaintManagerEviction", "Cancelling deletion")
		}
		return controller.Result{}, nil
	}
	defer func() {
		for _, r := range e.rules.List("") {
			if slices.Contains(due.rules, r.UID) {
				e.reports.AddAfter(controller.KeyOf(r), reportPause)
			}
		}
	}()
	if left := time.Until(due.when); left > 0 {
		return controller.Result{After: left}, nil
	}
	return controller.Result{}, e.evict(ctx, pod, due)
}

// evict gives a pod the condition DisruptionTarget and deletes it.
func (e *evictor) evict(ctx context.Context, pod *corev1.Pod, due *eviction) error {
	e.events.Event(pod, corev1.EventTypeNormal, "DeviceTaintManagerEviction", "Marking for deletion")
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status": map[string]any{"conditions": []corev1.PodCondition{{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, ObservedGeneration: pod.Generation, LastTransitionTime: metav1.Now(),
			Reason: "DeletionByDeviceTaintManager", Message: "Device Taint manager: deleting due to NoExecute taint",
		}}},
	})
	if err != nil {
		return err
	}
	now, err := client.Pods.Patch(ctx, e.client, pod.Namespace, pod.Name, types.StrategicMergePatchType, patch, "status")
	if err == nil && now.DeletionTimestamp != nil {
		return nil // the cache has not seen yet that it was evicted
	}
	if err == nil {
		err = client.Pods.Delete(ctx, e.client, pod.Namespace, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it is gone, or it is another one
	}
	if err != nil {
		return fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.planned, pod.UID)
	for _, rule := range due.rules {
		e.evicted[rule]++
	}
	return nil
}
