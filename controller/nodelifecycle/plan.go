package nodelifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// defaultToleration is for how long a pod that says nothing stays on a node that
// fails. Upstream's admission writes this into every pod.
const defaultToleration = 300 * time.Second

// lost returns the conditions of a node that does not renew its Lease any more: Unknown for all that the node itself reports.
func lost(node *corev1.Node, now time.Time) []corev1.NodeCondition {
	at := metav1.NewTime(now.Truncate(time.Second))
	conditions := slices.Clone(node.Status.Conditions)
	for _, kind := range []corev1.NodeConditionType{
		corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure,
	} {
		i := slices.IndexFunc(conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })
		switch {
		case i < 0:
			conditions = append(conditions, corev1.NodeCondition{
				Type: kind, Status: corev1.ConditionUnknown, Reason: "NodeStatusNeverUpdated",
				Message: "Kubelet never posted node status.", LastTransitionTime: at,
			})
		case conditions[i].Status != corev1.ConditionUnknown:
			c := &conditions[i]
			c.Status, c.LastTransitionTime = corev1.ConditionUnknown, at
			c.Reason, c.Message = "NodeStatusUnknown", "Kubelet stopped posting node status."
		}
	}
	return conditions
}

func nodeReady(node *corev1.Node) corev1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return "" // it has just been created, and its agent will say
}

// outOfService reports whether an administrator says that nothing runs on a node any more.
func outOfService(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// ourTaints are the taints that follow from the conditions of a node. This controller sets and removes them, whatever other
// clients write.
var ourTaints = [...]string{
	corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeUnschedulable,
	corev1.TaintNodeMemoryPressure, corev1.TaintNodeDiskPressure, corev1.TaintNodePIDPressure, corev1.TaintNodeNetworkUnavailable,
}

// taintsFor returns the wanted taints of a node, given its conditions. Taints of
// other kinds, and the time since when one is there, are kept.
func taintsFor(node *corev1.Node, now time.Time) []corev1.Taint {
	want := map[corev1.Taint]bool{} // without time
	add := func(key string, effects ...corev1.TaintEffect) {
		for _, e := range effects {
			want[corev1.Taint{Key: key, Effect: e}] = true
		}
	}
	switch nodeReady(node) {
	case corev1.ConditionTrue:
	case corev1.ConditionUnknown:
		add(corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute)
	case corev1.ConditionFalse:
		add(corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute)
	default:
		add(corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule)
	}
	for _, c := range node.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case corev1.NodeMemoryPressure:
			add(corev1.TaintNodeMemoryPressure, corev1.TaintEffectNoSchedule)
		case corev1.NodeDiskPressure:
			add(corev1.TaintNodeDiskPressure, corev1.TaintEffectNoSchedule)
		case corev1.NodePIDPressure:
			add(corev1.TaintNodePIDPressure, corev1.TaintEffectNoSchedule)
		case corev1.NodeNetworkUnavailable:
			add(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule)
		default: // no trouble, or its taint depends on more than true
		}
	}
	if node.Spec.Unschedulable {
		add(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)
	}
	var taints []corev1.Taint
	for _, t := range node.Spec.Taints {
		bare := corev1.Taint{Key: t.Key, Effect: t.Effect}
		if slices.Contains(ourTaints[:], t.Key) && !want[bare] {
			continue
		}
		delete(want, bare)
		taints = append(taints, t)
	}
	for _, key := range ourTaints {
		for _, e := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute} {
			t := corev1.Taint{Key: key, Effect: e}
			if !want[t] {
				continue
			}
			at := metav1.NewTime(now.Truncate(time.Second))
			t.TimeAdded = &at
			taints = append(taints, t)
		}
	}
	return taints
}

// evictAt returns when a pod has to leave a node because of its NoExecute taints; never
// is false if it may stay for good.
func evictAt(pod *corev1.Pod, taints []corev1.Taint, now time.Time) (at time.Time, ever bool) {
	for _, t := range taints {
		if t.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		since := now
		if t.TimeAdded != nil {
			since = t.TimeAdded.Time
		}
		stay, tolerated := tolerates(pod, t)
		if tolerated && stay < 0 {
			continue
		}
		due := since.Add(stay)
		if !ever || due.Before(at) {
			at, ever = due, true
		}
	}
	return at, ever
}

// tolerates returns for how long a pod puts up with a taint: less than 0 is for ever, the
// shortest of several tolerations counts.
func tolerates(pod *corev1.Pod, taint corev1.Taint) (stay time.Duration, ok bool) {
	stay = -1
	for _, t := range pod.Spec.Tolerations {
		if !matches(t, taint) {
			continue
		}
		ok = true
		if t.TolerationSeconds == nil {
			continue
		}
		d := time.Duration(max(*t.TolerationSeconds, 0)) * time.Second
		if stay < 0 || d < stay {
			stay = d
		}
	}
	if !ok && (taint.Key == corev1.TaintNodeNotReady || taint.Key == corev1.TaintNodeUnreachable) {
		return defaultToleration, true
	}
	if !ok {
		return 0, false
	}
	return stay, true
}

func matches(t corev1.Toleration, taint corev1.Taint) bool {
	if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
		return false
	}
	switch t.Operator {
	case corev1.TolerationOpExists:
		return true
	case "", corev1.TolerationOpEqual:
		return t.Key != "" && t.Value == taint.Value
	default: // an operator that is not served tolerates nothing
		return false
	}
}
