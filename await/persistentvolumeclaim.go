package await

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

var claimRules = rulesFor(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), rules[*corev1.PersistentVolumeClaim]{
	judge: judgeClaim,
	explain: func(x *explainer, _ *corev1.PersistentVolumeClaim) { // "no pod uses it yet" is a normal event
		x.events = "involvedObject.kind=PersistentVolumeClaim"
	},
})

// judgeClaim judges a PersistentVolumeClaim. It is ready when it is bound. Many storage classes provision a volume only
// when a pod uses the claim; the newest event about binding has the reason.
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
	// The binder writes an event each time that it waits for something else.
	for _, n := range slices.Backward(v.notes[v.node.uid]) {
		switch n.Reason {
		case "WaitForFirstConsumer":
			if v.unused || v.forPod {
				return Verdict{State: Done, Cause: "no pod uses it yet, and its storage class waits for that"}, nil
			}
			return waiting("not bound; no pod uses it yet, and its storage class waits for that").because(v.warning()), nil
		case "WaitForPodScheduled":
			if v.forPod {
				return done(), nil
			}
			return waiting("not bound; %s", n.Message).because(v.warning()), nil
		case "ExternalProvisioning":
			return waiting("not bound; its provisioner was asked for a volume").because(v.warning()), nil
		case "FailedBinding":
			return waiting("not bound; %s", strings.TrimSuffix(n.Message, ".")), nil
		case "VolumeMismatch":
			return failed(Likely, "not bound to a volume; %s", n.String()), nil
		case "ProvisioningFailed":
			return failed(Likely, "not bound to a volume; %s", n.String()), nil
		}
	}
	return waiting("not bound to a volume").because(v.warning()), nil
}
