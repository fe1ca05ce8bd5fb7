package builtin

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/scheduler/plugin"
)

// NodeAffinity keeps pods on the nodes that they select: by nodeSelector and by
// the required terms of node affinity.
type NodeAffinity struct{}

// Name implements [plugin.Plugin].
func (NodeAffinity) Name() string { return "NodeAffinity" }

// Filter implements [plugin.Filter].
func (NodeAffinity) Filter(pod *plugin.Pod, node *plugin.Node) plugin.Verdict {
	if selects(&pod.Spec, node) {
		return plugin.Verdict{}
	}
	return plugin.Never("node(s) didn't match Pod's node affinity/selector")
}

func selects(spec *corev1.PodSpec, node *plugin.Node) bool {
	for k, v := range spec.NodeSelector {
		if have, ok := node.Labels[k]; !ok || have != v {
			return false
		}
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil || spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	// One term must hold, with all that it says. A term that says nothing
	// matches nothing.
	for _, t := range spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		if len(t.MatchExpressions)+len(t.MatchFields) > 0 && holds(t, node) {
			return true
		}
	}
	return false
}

func holds(t corev1.NodeSelectorTerm, node *plugin.Node) bool {
	for i := range t.MatchExpressions {
		r := &t.MatchExpressions[i]
		value, ok := node.Labels[r.Key]
		if !meets(r, value, ok) {
			return false
		}
	}
	for i := range t.MatchFields { // the API allows metadata.name alone
		if r := &t.MatchFields[i]; r.Key != "metadata.name" || !meets(r, node.Name, true) {
			return false
		}
	}
	return true
}

func meets(r *corev1.NodeSelectorRequirement, value string, exists bool) bool {
	switch r.Operator {
	case corev1.NodeSelectorOpIn:
		return exists && slices.Contains(r.Values, value)
	case corev1.NodeSelectorOpNotIn:
		return !exists || !slices.Contains(r.Values, value)
	case corev1.NodeSelectorOpExists:
		return exists
	case corev1.NodeSelectorOpDoesNotExist:
		return !exists
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if !exists || len(r.Values) != 1 {
			return false
		}
		have, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return false
		}
		bound, err := strconv.ParseInt(r.Values[0], 10, 64)
		if err != nil {
			return false
		}
		if r.Operator == corev1.NodeSelectorOpGt {
			return have > bound
		}
		return have < bound
	}
	return false
}
