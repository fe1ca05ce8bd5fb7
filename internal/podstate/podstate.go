package podstate

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Active reports whether a pod runs or will run: it has not finished and is not being deleted.
func Active(pod *corev1.Pod) bool { return !Finished(pod) && pod.DeletionTimestamp == nil }

// Finished reports whether all containers of a pod have ended for good.
func Finished(pod *corev1.Pod) bool { return FinishedIn(&pod.Status) }

// FinishedIn reports whether all containers have ended for good in a status.
func FinishedIn(s *corev1.PodStatus) bool {
	return s.Phase == corev1.PodSucceeded || s.Phase == corev1.PodFailed
}

// FromClaim reports whether a pod gets an extended resource as devices of a ResourceClaim, which the scheduler made because a
// DeviceClass provides the resource, and not from its node.
func FromClaim(pod *corev1.Pod, resource corev1.ResourceName) bool {
	s := pod.Status.ExtendedResourceClaimStatus
	return s != nil && slices.ContainsFunc(s.RequestMappings, func(m corev1.ContainerExtendedResourceRequest) bool {
		return m.ResourceName == string(resource)
	})
}

// Condition returns the condition of that type, which is a part of the pod, or nil.
func Condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	return condition(&pod.Status, kind)
}

func condition(s *corev1.PodStatus, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range s.Conditions {
		if c := &s.Conditions[i]; c.Type == kind {
			return c
		}
	}
	return nil
}

// Ready reports whether the condition Ready of a pod is true.
func Ready(pod *corev1.Pod) bool { return ReadyIn(&pod.Status) }

// ReadyIn reports whether the condition Ready is true in a status.
func ReadyIn(s *corev1.PodStatus) bool {
	c := condition(s, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// AvailableIn returns how long it takes until a pod has been ready for least; 0 means that it is available, less than 0
// that it is not ready.
func AvailableIn(pod *corev1.Pod, least time.Duration, now time.Time) time.Duration {
	if !Ready(pod) {
		return -1
	}
	if least == 0 {
		return 0
	}
	return max(0, Condition(pod, corev1.PodReady).LastTransitionTime.Add(least).Sub(now))
}

// First compares two pods for sorting by a property: a pod that has it comes before a pod that does not.
func First(a, b bool) int {
	switch {
	case a && !b:
		return -1
	case b && !a:
		return 1
	}
	return 0
}
