package await

import (
	corev1 "k8s.io/api/core/v1"
)

// judgeNode: ready is the node's Ready condition.
func judgeNode(d Degree, n *corev1.Node) (Verdict, error) {
	if d != Ready {
		return Verdict{}, &MisuseError{d, "node", "wait for ready or deleted"}
	}
	for _, c := range n.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		switch c.Status {
		case corev1.ConditionTrue:
			return done(), nil
		case corev1.ConditionUnknown:
			return waiting("its agent does not answer: %s", reason(c.Reason, c.Message)), nil
		case corev1.ConditionFalse:
			return waiting("%s", reason(c.Reason, c.Message)), nil
		}
	}
	return waiting("its agent has not reported yet"), nil
}
