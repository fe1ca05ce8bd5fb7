package workload

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/internal/podstate"
)

// expendable orders pods by which is to go first when there are too many, as users of
// Kubernetes know it: what serves least, costs least and is youngest goes
// first, and of pods that share a node, with neighbours counted, one of the most.
func expendable(pods, neighbours []*corev1.Pod, now time.Time) []*corev1.Pod {
	perNode := map[string]int{}
	for _, p := range slices.Concat(pods, neighbours) {
		if podstate.Active(p) {
			perNode[p.Spec.NodeName]++
		}
	}
	pods = slices.Clone(pods)
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(
			podstate.First(a.Spec.NodeName == "", b.Spec.NodeName == ""),
			cmp.Compare(phaseRank(a), phaseRank(b)),
			podstate.First(!podstate.Ready(a), !podstate.Ready(b)),
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
	if c := podstate.Condition(pod, corev1.PodReady); c != nil && c.Status == corev1.ConditionTrue {
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
