package disruption

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/internal/podstate"
)

// deletionTimeout is how long a pod whose eviction was granted may go on without being
// deleted.
const deletionTimeout = 2 * time.Minute

// An event is an event to write about a budget, or about a pod of it.
type event struct {
	about                 *corev1.Pod // nil: the budget
	kind, reason, message string
}

// A scale is the size that a controller of pods is to have.
type scale struct {
	uid      types.UID
	replicas int32
}

// A finder returns the scale of the controller of a pod. It returns false for a pod
// without one, and an error if the controller has no scale (DaemonSet, Job) or is gone.
type finder func(pod *corev1.Pod) (s scale, managed bool, err error)

// A verdict is the wanted status of a budget.
type verdict struct {
	status policyv1.PodDisruptionBudgetStatus
	after  time.Duration // when to look again by the passing of time alone; 0 means never
	events []event
}

// plan looks at a budget and the pods that it selects.
func plan(b *policyv1.PodDisruptionBudget, pods []*corev1.Pod, find finder, now time.Time) verdict {
	v := verdict{status: *b.Status.DeepCopy()}
	if len(pods) == 0 {
		v.event(nil, corev1.EventTypeNormal, "NoPods", "No matching pods found")
	}
	expected, desired, err := v.expect(b, pods, find)
	if err != nil {
		v.event(nil, corev1.EventTypeWarning, "CalculateExpectedPodCountFailed", fmt.Sprintf("Failed to calculate the number of expected pods: %v", err))
		v.fail(b, err, now)
		return v
	}
	disrupted := v.disrupted(b, pods, now)
	healthy := int32(0)
	for _, pod := range pods {
		if _, going := disrupted[pod.Name]; !going && pod.DeletionTimestamp == nil && podstate.Ready(pod) {
			healthy++
		}
	}
	allowed := healthy - desired
	if expected <= 0 || allowed < 0 {
		allowed = 0
	}
	v.status.ExpectedPods, v.status.DesiredHealthy, v.status.CurrentHealthy = expected, desired, healthy
	v.status.DisruptionsAllowed, v.status.DisruptedPods = allowed, disrupted
	v.status.ObservedGeneration = b.Generation
	if allowed > 0 {
		v.condition(b, metav1.ConditionTrue, policyv1.SufficientPodsReason, "", now)
	} else {
		v.condition(b, metav1.ConditionFalse, policyv1.InsufficientPodsReason, "", now)
	}
	return v
}

func (v *verdict) event(about *corev1.Pod, kind, reason, message string) {
	v.events = append(v.events, event{about, kind, reason, message})
}

func (v *verdict) condition(b *policyv1.PodDisruptionBudget, status metav1.ConditionStatus, reason, message string, now time.Time) {
	meta.SetStatusCondition(&v.status.Conditions, metav1.Condition{
		Type: policyv1.DisruptionAllowedCondition, Status: status, Reason: reason, Message: message,
		ObservedGeneration: b.Generation, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	})
}

// fail allows no eviction (disruption-D2).
func (v *verdict) fail(b *policyv1.PodDisruptionBudget, err error, now time.Time) {
	v.status.DisruptionsAllowed = 0
	v.status.ObservedGeneration = b.Generation
	v.condition(b, metav1.ConditionFalse, policyv1.SyncFailedReason, err.Error(), now)
}

// expect returns how many pods there should be and how many of them have to serve.
func (v *verdict) expect(b *policyv1.PodDisruptionBudget, pods []*corev1.Pod, find finder) (expected, desired int32, err error) {
	least, most := b.Spec.MinAvailable, b.Spec.MaxUnavailable
	switch {
	case most != nil:
		if expected, err = v.scales(b, pods, find); err != nil {
			return 0, 0, err
		}
		n, err := intstr.GetScaledValueFromIntOrPercent(most, int(expected), true)
		return expected, max(0, expected-int32(n)), err
	case least == nil:
		return int32(len(pods)), 0, nil
	case least.Type == intstr.Int:
		return int32(len(pods)), least.IntVal, nil
	}
	if expected, err = v.scales(b, pods, find); err != nil {
		return 0, 0, err
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(least, int(expected), true)
	return expected, int32(n), err
}

// scales returns how many pods their controllers want.
func (v *verdict) scales(b *policyv1.PodDisruptionBudget, pods []*corev1.Pod, find finder) (total int32, err error) {
	sizes := map[types.UID]int32{}
	var loose []string
	for _, pod := range pods {
		s, managed, err := find(pod)
		switch {
		case err != nil:
			return 0, err
		case !managed:
			loose = append(loose, pod.Name)
		default:
			sizes[s.uid] = s.replicas
		}
	}
	if len(loose) > 0 {
		slices.Sort(loose)
		v.event(nil, corev1.EventTypeWarning, "UnmanagedPods", fmt.Sprintf(
			"Pods selected by this PodDisruptionBudget (selector: %s) were found to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set \".spec.minAvailable\" field of the PDB to an integer value: %s",
			metav1.FormatLabelSelector(b.Spec.Selector), strings.Join(loose, ", ")))
	}
	for n := range maps.Values(sizes) {
		total += n
	}
	return total, nil
}

// disrupted returns the pods whose eviction was granted and has not begun (disruption-D1).
func (v *verdict) disrupted(b *policyv1.PodDisruptionBudget, pods []*corev1.Pod, now time.Time) map[string]metav1.Time {
	if len(b.Status.DisruptedPods) == 0 {
		return nil
	}
	result := map[string]metav1.Time{}
	for _, pod := range pods {
		granted, ok := b.Status.DisruptedPods[pod.Name]
		if !ok || pod.DeletionTimestamp != nil {
			continue
		}
		left := granted.Add(deletionTimeout).Sub(now)
		if left <= 0 {
			v.event(pod, corev1.EventTypeWarning, "NotDeleted", fmt.Sprintf("Pod was expected by PDB %s/%s to be deleted but it wasn't", b.Namespace, b.Name))
			continue
		}
		result[pod.Name] = granted
		if v.after == 0 || left < v.after {
			v.after = left
		}
	}
	if len(result) == 0 {
		return nil
	}
	return result
}
