package builtin

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sampan-io/sampan/scheduler/plugin"
)

// NodeUnschedulable keeps pods off cordoned nodes, unless they tolerate that.
type NodeUnschedulable struct{}

// Name implements [plugin.Plugin].
func (NodeUnschedulable) Name() string { return "NodeUnschedulable" }

// Filter implements [plugin.Filter].
func (NodeUnschedulable) Filter(pod *plugin.Pod, node *plugin.Node) plugin.Verdict {
	if !node.Spec.Unschedulable || tolerated(pod, &corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}) {
		return plugin.Verdict{}
	}
	return plugin.Never("node(s) were unschedulable")
}

// TaintToleration keeps pods off nodes with a NoSchedule or NoExecute taint that
// they do not tolerate; a node that is not ready has one.
type TaintToleration struct{}

// Name implements [plugin.Plugin].
func (TaintToleration) Name() string { return "TaintToleration" }

// Filter implements [plugin.Filter].
func (TaintToleration) Filter(pod *plugin.Pod, node *plugin.Node) plugin.Verdict {
	for i := range node.Spec.Taints {
		t := &node.Spec.Taints[i]
		if t.Effect != corev1.TaintEffectPreferNoSchedule && !tolerated(pod, t) {
			return plugin.Never("node(s) had untolerated taint(s)")
		}
	}
	return plugin.Verdict{}
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
	x, err := resource.ParseQuantity(a)
	if err != nil {
		return 0, false
	}
	y, err := resource.ParseQuantity(b)
	if err != nil {
		return 0, false
	}
	return x.Cmp(y), true
}
