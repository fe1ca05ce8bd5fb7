package builtin

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/quantity"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// NodeUnschedulable keeps pods off cordoned nodes, unless they tolerate that.
type NodeUnschedulable struct{}

// Name implements [plugin.Plugin].
func (NodeUnschedulable) Name() string { return "NodeUnschedulable" }

// Filter implements [plugin.Filter].
func (NodeUnschedulable) Filter(pod *plugin.Pod, node *plugin.Node) plugin.Verdict {
	if open(pod, node.Node) {
		return plugin.Verdict{}
	}
	return plugin.Never("node(s) were unschedulable")
}

func open(pod *plugin.Pod, node *corev1.Node) bool {
	return !node.Spec.Unschedulable || tolerated(pod, &corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
}

// Hints implements [plugin.Hinter].
func (NodeUnschedulable) Hints() []plugin.Hint {
	return []plugin.Hint{{Resource: client.Nodes.GroupVersionResource, Action: plugin.Added | plugin.NodeTaints, Helps: func(pod *plugin.Pod, c plugin.Change) bool {
		return open(pod, c.Node)
	}}}
}

// TaintToleration keeps pods off nodes with a NoSchedule or NoExecute taint that
// they do not tolerate; a node that is not ready has one. It prefers nodes with few PreferNoSchedule taints
// that they do not tolerate.
type TaintToleration struct{}

// Name implements [plugin.Plugin].
func (TaintToleration) Name() string { return "TaintToleration" }

// Filter implements [plugin.Filter].
func (TaintToleration) Filter(pod *plugin.Pod, node *plugin.Node) plugin.Verdict {
	if bears(pod, node.Node) {
		return plugin.Verdict{}
	}
	return plugin.Never("node(s) had untolerated taint(s)")
}

// Explain implements [plugin.Explainer].
func (TaintToleration) Explain(pod *plugin.Pod, node *plugin.Node) []plugin.Lack {
	var lacks []plugin.Lack
	for i := range node.Spec.Taints {
		t := &node.Spec.Taints[i]
		if (t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute) && !tolerated(pod, t) {
			lacks = append(lacks, plugin.Lack{What: "toleration of " + t.ToString(), Asked: 1})
		}
	}
	return lacks
}

// bears reports whether the pod tolerates all taints of the node that keep pods off.
func bears(pod *plugin.Pod, node *corev1.Node) bool {
	for i := range node.Spec.Taints {
		t := &node.Spec.Taints[i]
		if (t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute) && !tolerated(pod, t) {
			return false
		}
	}
	return true
}

// Score implements [plugin.Score]: the number of taints, until it is normalised.
func (TaintToleration) Score(pod *plugin.Pod, node *plugin.Node) int64 {
	var disliked int64
	for i := range node.Spec.Taints {
		if t := &node.Spec.Taints[i]; t.Effect == corev1.TaintEffectPreferNoSchedule && !tolerated(pod, t) {
			disliked++
		}
	}
	return disliked
}

// Normalize implements [plugin.Normalizer].
func (TaintToleration) Normalize(_ []*plugin.Node, scores []int64) { plugin.Normalize(scores, true) }

// Hints implements [plugin.Hinter].
func (TaintToleration) Hints() []plugin.Hint {
	return []plugin.Hint{{Resource: client.Nodes.GroupVersionResource, Action: plugin.Added | plugin.NodeTaints, Helps: func(pod *plugin.Pod, c plugin.Change) bool {
		return bears(pod, c.Node)
	}}}
}

func tolerated(pod *plugin.Pod, t *corev1.Taint) bool {
	for i := range pod.Spec.Tolerations {
		if tolerates(&pod.Spec.Tolerations[i], t) {
			return true
		}
	}
	return false
}

// tolerates follows the API: an empty effect means all effects, an empty key
// with Exists all taints, no operator means Equal.
func tolerates(o *corev1.Toleration, t *corev1.Taint) bool {
	if o.Effect != "" && o.Effect != t.Effect || o.Key != "" && o.Key != t.Key {
		return false
	}
	switch o.Operator {
	case corev1.TolerationOpExists:
		return true
	case corev1.TolerationOpEqual, "":
		return o.Key != "" && o.Value == t.Value
	case corev1.TolerationOpLt:
		c, ok := compareNumbers(t.Value, o.Value)
		return ok && c < 0
	case corev1.TolerationOpGt:
		c, ok := compareNumbers(t.Value, o.Value)
		return ok && c > 0
	}
	return false
}

func compareNumbers(a, b string) (int, bool) {
	x, err := quantity.Parse(a)
	if err != nil {
		return 0, false
	}
	y, err := quantity.Parse(b)
	if err != nil {
		return 0, false
	}
	return x.Cmp(y), true
}
