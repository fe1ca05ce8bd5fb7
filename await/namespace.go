package await

import (
	corev1 "k8s.io/api/core/v1"
)

// judgeNamespace: ready means that it is active and takes objects.
func judgeNamespace(d Degree, n *corev1.Namespace) (Verdict, error) {
	if d != Ready {
		return Verdict{}, &MisuseError{d, "namespace", "wait for ready or deleted"}
	}
	if n.DeletionTimestamp != nil || n.Status.Phase == corev1.NamespaceTerminating {
		for _, c := range n.Status.Conditions {
			if c.Status == corev1.ConditionTrue && c.Message != "" {
				return failed(Certain, "it is being deleted: %s", oneLine(c.Message)), nil
			}
		}
		return failed(Certain, "it is being deleted"), nil
	}
	if n.Status.Phase == corev1.NamespaceActive {
		return done(), nil
	}
	return waiting("it is not active yet"), nil
}
