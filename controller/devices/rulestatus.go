package devices

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/controller"
)

// reportPause is how long the status of a rule stays as it is at least; upstream's number.
const reportPause = 10 * time.Second

// report keeps the condition EvictionInProgress of a DeviceTaintRule, in upstream's words. Counting pods costs time, so it
// is repeated only after evictions.
func (e *evictor) report(ctx context.Context, key controller.Key) (controller.Result, error) {
	rule, ok := e.rules.Get("", key.Name)
	if !ok || rule.DeletionTimestamp != nil {
		return controller.Result{}, nil
	}
	now := metav1.Now()
	before := meta.FindStatusCondition(rule.Status.Conditions, resourcev1.DeviceTaintConditionEvictionInProgress)
	next := metav1.Condition{Type: resourcev1.DeviceTaintConditionEvictionInProgress, Status: metav1.ConditionFalse, ObservedGeneration: rule.Generation}
	if before != nil {
		if since := now.Sub(before.LastTransitionTime.Time); before.ObservedGeneration == rule.Generation && since < reportPause {
			return controller.Result{After: reportPause - since}, nil
		}
		next.LastTransitionTime = before.LastTransitionTime
		if before.ObservedGeneration == rule.Generation && rule.Spec.Taint.Effect == resourcev1.DeviceTaintEffectNone {
			return controller.Result{}, nil // that report is made once
		}
	}
	e.mu.Lock()
	evicted := e.evicted[rule.UID]
	e.mu.Unlock()
	e.judge(rule, evicted, &next)
	if before != nil && *before == next {
		return controller.Result{}, nil
	}
	next.LastTransitionTime = now
	changed := rule.DeepCopy()
	changed.Status.Conditions = slices.DeleteFunc(changed.Status.Conditions, func(c metav1.Condition) bool { return c.Type == next.Type })
	changed.Status.Conditions = append(changed.Status.Conditions, next)
	after, err := client.DeviceTaintRules.Update(ctx, e.client, changed, "status")
	if err != nil {
		return controller.Result{}, fmt.Errorf("add condition to DeviceTaintRule status: %w", err)
	}
	return controller.Result{}, e.rules.Await(ctx, after.ResourceVersion)
}

// judge fills in a condition's fields.
func (e *evictor) judge(rule *resourcev1.DeviceTaintRule, evicted int, c *metav1.Condition) {
	switch rule.Spec.Taint.Effect {
	case resourcev1.DeviceTaintEffectNoExecute:
		pods, spaces := e.pending(rule, nil)
		switch {
		case pods > 0:
			c.Status, c.Reason = metav1.ConditionTrue, "PodsPendingEviction"
			c.Message = number(pods, "pod needs", "pods need") + " to be evicted in " + number(spaces, "namespace.", "different namespaces.")
		case evicted > 0:
			c.Reason = "Completed"
		default:
			c.Reason = "NotStarted"
		}
	case resourcev1.DeviceTaintEffectNone:
		published, allocated := e.count(rule)
		pods, spaces := e.pending(rule, rule)
		c.Reason = "NoEffect"
		c.Message = fmt.Sprintf("%s selected. %s selected. %s would be evicted in %s if the effect was NoExecute. "+
			"This information will not be updated again. Recreate the DeviceTaintRule to trigger an update.",
			number(published, "published device", "published devices"), number(allocated, "allocated device", "allocated devices"),
			number(pods, "pod", "pods"), number(spaces, "namespace", "different namespaces"))
	default:
		c.Reason, c.Message = "OtherEffect", "Eviction only happens for the NoExecute effect."
	}
	if evicted > 0 {
		if c.Message != "" {
			c.Message += " "
		}
		c.Message += number(evicted, "pod", "pods") + " evicted since starting the controller."
	}
}

func number(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// pending counts the pods that a rule will evict, and their namespaces.
func (e *evictor) pending(rule, also *resourcev1.DeviceTaintRule) (pods, spaces int) {
	seen := map[string]bool{}
	e.eachUser(rule, func(pod *corev1.Pod) {
		if pod.DeletionTimestamp != nil {
			return
		}
		if due := e.due(pod, also); due != nil && slices.Contains(due.rules, rule.UID) {
			pods++
			seen[pod.Namespace] = true
		}
	})
	return pods, len(seen)
}

// eachUser calls f with each pod that uses a device of a rule, once.
func (e *evictor) eachUser(rule *resourcev1.DeviceTaintRule, f func(*corev1.Pod)) {
	seen := map[*corev1.Pod]bool{}
	for _, c := range e.claims.List("") {
		if !selects(rule, c) {
			continue
		}
		for _, pod := range e.pods.ByIndex(byClaim, controller.KeyOf(c).String()) {
			if !seen[pod] {
				seen[pod] = true
				f(pod)
			}
		}
	}
}

// count returns the number of published devices that a rule selects, and the number of allocated ones.
func (e *evictor) count(rule *resourcev1.DeviceTaintRule) (published, allocated int) {
	newest := map[string]int64{}
	all := e.slices.List("")
	for _, s := range all {
		newest[poolOf(s)[0]] = max(newest[poolOf(s)[0]], s.Spec.Pool.Generation)
	}
	for _, s := range all {
		for i := range s.Spec.Devices {
			if s.Spec.Pool.Generation == newest[poolOf(s)[0]] && matches(rule, s.Spec.Driver, s.Spec.Pool.Name, s.Spec.Devices[i].Name) {
				published++
			}
		}
	}
	for _, c := range e.claims.List("") {
		if c.Status.Allocation == nil {
			continue
		}
		for _, r := range c.Status.Allocation.Devices.Results {
			if matches(rule, r.Driver, r.Pool, r.Device) {
				allocated++
			}
		}
	}
	return published, allocated
}
