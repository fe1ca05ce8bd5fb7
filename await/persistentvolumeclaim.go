package await

import (
	corev1 "k8s.io/api/core/v1"
)

// judgeClaim: ready means bound to a volume. Volumes of many classes are made only
// when a pod uses the claim, which the claim's events say.
func judgeClaim(d Degree, c *corev1.PersistentVolumeClaim, v *view) (Verdict, error) {
	if !plain(d) {
		return misuse(d, "PersistentVolumeClaim", Ready)
	}
	switch {
	case c.DeletionTimestamp != nil:
		return waiting("it is being deleted"), nil
	case d == Observed && c.Status.Phase != "":
		return done(), nil
	case c.Status.Phase == corev1.ClaimBound:
		return done(), nil
	case c.Status.Phase == corev1.ClaimLost:
		return failed(Certain, "its volume %s is lost", c.Spec.VolumeName), nil
	}
	for _, n := range v.notes[v.node.uid] {
		if n.reason == "WaitForFirstConsumer" {
			return waiting("not bound; no pod uses it yet, and its storage class waits for that").because(v.warning()), nil
		}
	}
	missing := waiting("not bound to a volume")
	if n, some := newest(v.notes[v.node.uid]); some && n.reason == "ProvisioningFailed" {
		return failed(Likely, "%s; %s", missing.Cause, n.text()), nil
	}
	return missing.because(v.warning()), nil
}
