package sets

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// nodeNameField is the field by which a pod is meant for one node.
const nodeNameField = "metadata.name"

// daemonTolerations are the tolerations that pods of DaemonSets have by themselves: they
// are there to help a node in trouble, or do not mind.
func daemonTolerations(spec *corev1.PodSpec) []corev1.Toleration {
	all := slices.Clone(spec.Tolerations)
	add := func(key string, effect corev1.TaintEffect) {
		t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
		if !slices.ContainsFunc(all, func(have corev1.Toleration) bool { return have.MatchToleration(&t) && have.TolerationSeconds == nil }) {
			all = append(all, t)
		}
	}
	add(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute)
	add(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)
	add(corev1.TaintNodeDiskPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodeMemoryPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodePIDPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)
	if spec.HostNetwork {
		add(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule)
	}
	return all
}

// eligible says whether a pod of that template is to run on a node, and whether one that
// runs there may go on.
func eligible(t *corev1.PodTemplateSpec, node *corev1.Node) (run, goOn bool) {
	if t.Spec.NodeName != "" && t.Spec.NodeName != node.Name || !selectsNode(&t.Spec, node) {
		return false, false
	}
	tolerations := daemonTolerations(&t.Spec)
	run, goOn = true, true
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if taint.Effect == corev1.TaintEffectPreferNoSchedule ||
			slices.ContainsFunc(tolerations, func(have corev1.Toleration) bool { return putsUpWith(&have, taint) }) {
			continue
		}
		run = false
		goOn = goOn && taint.Effect != corev1.TaintEffectNoExecute
	}
	return run, goOn
}

// putsUpWith follows the API: an empty effect means all effects, an empty key with Exists
// all taints, no operator means Equal.
func putsUpWith(have *corev1.Toleration, taint *corev1.Taint) bool {
	if have.Effect != "" && have.Effect != taint.Effect || have.Key != "" && have.Key != taint.Key {
		return false
	}
	switch have.Operator {
	case corev1.TolerationOpExists:
		return true
	case corev1.TolerationOpEqual, "":
		return have.Value == taint.Value
	default: // one that is not served tolerates nothing
		return false
	}
}

// selectsNode says that a node has what nodeSelector and the required terms of node
// affinity ask for.
func selectsNode(spec *corev1.PodSpec, node *corev1.Node) bool {
	if !labels.SelectorFromSet(spec.NodeSelector).Matches(labels.Set(node.Labels)) {
		return false
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil || spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	terms := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return slices.ContainsFunc(terms, func(t corev1.NodeSelectorTerm) bool {
		return len(t.MatchExpressions)+len(t.MatchFields) > 0 && // a term that says nothing matches nothing
			meetsAll(t.MatchExpressions, node.Labels) && meetsAll(t.MatchFields, labels.Set{nodeNameField: node.Name})
	})
}

func meetsAll(requirements []corev1.NodeSelectorRequirement, set labels.Set) bool {
	for i := range requirements {
		operator, known := map[corev1.NodeSelectorOperator]selection.Operator{
			corev1.NodeSelectorOpIn:           selection.In,
			corev1.NodeSelectorOpNotIn:        selection.NotIn,
			corev1.NodeSelectorOpExists:       selection.Exists,
			corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
			corev1.NodeSelectorOpGt:           selection.GreaterThan,
			corev1.NodeSelectorOpLt:           selection.LessThan,
		}[requirements[i].Operator]
		if !known {
			return false
		}
		r, err := labels.NewRequirement(requirements[i].Key, operator, requirements[i].Values)
		if err != nil || !r.Matches(set) {
			return false
		}
	}
	return true
}

// meantFor returns the node that a pod is on, or is meant for by its affinity; "" if
// neither.
func meantFor(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, t := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, r := range t.MatchFields {
			if r.Key == nodeNameField && r.Operator == corev1.NodeSelectorOpIn && len(r.Values) == 1 {
				return r.Values[0]
			}
		}
	}
	return ""
}

// bindTo makes a pod one for that node alone. The scheduler places it, as any other.
func bindTo(pod *corev1.Pod, node string) {
	term := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{
		Key: nodeNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
	}}}
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	if pod.Spec.Affinity.NodeAffinity == nil {
		pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	// The node has been chosen with the template's terms; they need not be asked again.
	pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{term},
	}
}
