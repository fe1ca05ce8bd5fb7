package await

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/await/events"
)

var nodeRules = rulesFor(corev1.SchemeGroupVersion.WithKind("Node"), rules[*corev1.Node]{judge: judgeNode})

// judgeNode judges a Node. It is observed when the kubelet has set the condition Ready, and ready by that condition.
func judgeNode(d Degree, n *corev1.Node, _ *view) (Verdict, error) {
	if !plain(d) {
		return misuse(d, "Node", Ready)
	}
	for _, c := range n.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		switch {
		case c.Status == corev1.ConditionTrue, d == Observed:
			return done(), nil
		case c.Status == corev1.ConditionUnknown:
			return waiting("its agent does not answer: %s", events.Reason(c.Reason, c.Message)), nil
		}
		return waiting("%s", events.Reason(c.Reason, c.Message)), nil
	}
	return waiting("its agent has not reported yet"), nil
}
