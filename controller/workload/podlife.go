package workload

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// isActive says that a pod does or will do its work: it has not ended and is not to
// be deleted.
func isActive(pod *corev1.Pod) bool { return !isFinished(pod) && pod.DeletionTimestamp == nil }

func isFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// condition returns the condition of that type, or nil.
func condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == kind {
			return c
		}
	}
	return nil
}

func isReady(pod *corev1.Pod) bool {
	c := condition(pod, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// availableIn returns how long it is until a ready pod has been so for min; 0 means
// that it is available, less than 0 that it is not ready.
func availableIn(pod *corev1.Pod, least time.Duration, now time.Time) time.Duration {
	if !isReady(pod) {
		return -1
	}
	if least == 0 {
		return 0
	}
	return max(0, condition(pod, corev1.PodReady).LastTransitionTime.Add(least).Sub(now))
}

// expendable orders pods by which is to go first when there are too many, as users of
// Kubernetes know it: what serves least, costs least and is youngest goes
// first, and of pods that share a node, with neighbours counted, one of the most.
func expendable(pods, neighbours []*corev1.Pod, now time.Time) []*corev1.Pod {
	perNode := map[string]int{}
	for _, p := range slices.Concat(pods, neighbours) {
		if isActive(p) {
			perNode[p.Spec.NodeName]++
		}
	}
	pods = slices.Clone(pods)
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(
			boolFirst(a.Spec.NodeName == "", b.Spec.NodeName == ""),
			cmp.Compare(phaseRank(a), phaseRank(b)),
			boolFirst(!isReady(a), !isReady(b)),
			cmp.Compare(deletionCost(a), deletionCost(b)),
			cmp.Compare(perNode[b.Spec.NodeName], perNode[a.Spec.NodeName]),
			younger(readySince(a), readySince(b), a, b, now),
			cmp.Compare(restarts(b), restarts(a)),
			younger(a.CreationTimestamp, b.CreationTimestamp, a, b, now),
			cmp.Compare(a.Name, b.Name),
		)
	})
	return pods
}

func boolFirst(a, b bool) int {
	switch {
	case a && !b:
		return -1
	case b && !a:
		return 1
	}
	return 0
}

func phaseRank(pod *corev1.Pod) int {
	switch pod.Status.Phase {
	case corev1.PodPending:
		return 0
	case corev1.PodRunning:
		return 2
	default:
		return 1
	}
}

// deletionCost is what users say about a pod (controller.kubernetes.io/pod-deletion-cost).
func deletionCost(pod *corev1.Pod) int32 {
	n, err := strconv.ParseInt(pod.Annotations[corev1.PodDeletionCost], 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}

func readySince(pod *corev1.Pod) metav1.Time {
	if c := condition(pod, corev1.PodReady); c != nil && c.Status == corev1.ConditionTrue {
		return c.LastTransitionTime
	}
	return metav1.Time{}
}

func restarts(pod *corev1.Pod) (n int32) {
	for _, c := range pod.Status.ContainerStatuses {
		n = max(n, c.RestartCount)
	}
	return n
}

// younger compares times roughly: pods whose ages have the same order of magnitude
// are taken in random order (that of their UIDs), so that scaling down does not
// always hit one failure domain. An unknown time counts as youngest.
func younger(a, b metav1.Time, podA, podB *corev1.Pod, now time.Time) int {
	switch {
	case a.Equal(&b):
		return 0
	case a.IsZero():
		return -1
	case b.IsZero():
		return 1
	}
	return cmp.Or(
		cmp.Compare(magnitude(now.Sub(a.Time)), magnitude(now.Sub(b.Time))),
		cmp.Compare(podA.UID, podB.UID),
	)
}

func magnitude(age time.Duration) int {
	if age <= 0 {
		return -1
	}
	return int(math.Log2(float64(age)))
}
