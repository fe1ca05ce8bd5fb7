package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// Priority turns the name of a pod's priority class into the number that
// schedulers compare. Until priority classes are objects of their own there are the
// two that every cluster has, and no class, which is priority 0.
type Priority struct{}

// Name implements [Plugin].
func (Priority) Name() string { return "Priority" }

// Admit implements [Plugin].
func (Priority) Admit(_ context.Context, a *Attributes) error {
	if a.Operation == Update && a.is("pods", "") {
		pod, ok := a.Object.(*corev1.Pod)
		old, had := a.Old.(*corev1.Pod)
		if ok && had {
			if pod.Spec.Priority == nil {
				pod.Spec.Priority = clone(old.Spec.Priority)
			}
			if pod.Spec.PreemptionPolicy == nil {
				pod.Spec.PreemptionPolicy = clone(old.Spec.PreemptionPolicy)
			}
		}
		return nil
	}
	pod := a.createdPod()
	if pod == nil {
		return nil
	}
	priority, known := classPriority(pod.Spec.PriorityClassName)
	if !known {
		return refuse(a, "no PriorityClass with name %v was found", pod.Spec.PriorityClassName)
	}
	if p := pod.Spec.Priority; p != nil && *p != priority {
		return refuse(a, "the integer value of priority (%d) must not be provided in pod spec; priority admission controller computed %d from the given PriorityClass name", *p, priority)
	}
	policy := corev1.PreemptLowerPriority
	if p := pod.Spec.PreemptionPolicy; p != nil && *p != policy {
		return refuse(a, "the string value of PreemptionPolicy (%s) must not be provided in pod spec; priority admission controller computed %s from the given PriorityClass name", *p, policy)
	}
	pod.Spec.Priority, pod.Spec.PreemptionPolicy = &priority, &policy
	return nil
}

func classPriority(class string) (priority int32, known bool) {
	switch class {
	case "":
		return 0, true
	case "system-cluster-critical":
		return 2000000000, true
	case "system-node-critical":
		return 2000001000, true
	}
	return 0, false
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// DefaultTolerationSeconds lets pods stay for five minutes on a node that is not
// ready or cannot be reached, unless they say something else.
type DefaultTolerationSeconds struct{}

// Name implements [Plugin].
func (DefaultTolerationSeconds) Name() string { return "DefaultTolerationSeconds" }

// Admit implements [Plugin].
func (DefaultTolerationSeconds) Admit(_ context.Context, a *Attributes) error {
	if pod := a.createdPod(); pod != nil {
		for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
			tolerate(pod, taint)
		}
	}
	return nil
}

// toleration is how long, in seconds, a node may be away before its pods are evicted.
const toleration = 300

func tolerate(pod *corev1.Pod, taint string) {
	for _, t := range pod.Spec.Tolerations {
		if (t.Key == taint || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "") {
			return
		}
	}
	seconds := int64(toleration)
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
		Key:               taint,
		Operator:          corev1.TolerationOpExists,
		Effect:            corev1.TaintEffectNoExecute,
		TolerationSeconds: &seconds,
	})
}
