package await

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// judgeDeleted judges the degree Deleted, which is reached when the object with this UID does not exist. The cause names the obstacle:
// finalizers, for a namespace the remaining content that its controller reports, for a pod its node.
func judgeDeleted(v *view) Verdict {
	if !v.node.there {
		return done()
	}
	if v.compact && v.node.isPod() {
		return v.node.own.final(v.notes[v.node.uid])
	}
	o := v.node.object
	var verdict Verdict
	switch p, isPod := o.(*corev1.Pod); {
	case isPod:
		verdict = waiting("%s", ending(p))
	case o.GetDeletionTimestamp() == nil:
		verdict = waiting("its deletion has not been requested")
	case len(o.GetFinalizers()) > 0:
		verdict = waiting("%s", heldBy(o.GetFinalizers()))
	default:
		verdict = waiting("being deleted")
	}
	if n, isNamespace := o.(*corev1.Namespace); isNamespace && n.DeletionTimestamp != nil {
		verdict = verdict.because(remaining(n))
	}
	if why, some := v.holdup(nil); some && o.GetDeletionTimestamp() != nil {
		verdict = verdict.because(why.Cause)
	}
	return verdict
}

// heldBy lists finalizers, with the condition of each of Kubernetes' own.
func heldBy(finalizers []string) string {
	what := make([]string, len(finalizers))
	for i, f := range finalizers {
		what[i] = f
		if m := meaning(f); m != "" {
			what[i] += " (" + m + ")"
		}
	}
	return "held by finalizers " + strings.Join(what, ", ")
}

func meaning(finalizer string) string {
	switch finalizer {
	case metav1.FinalizerDeleteDependents:
		return "until what it owns is gone"
	case metav1.FinalizerOrphanDependents:
		return "until what it owns is let go"
	case "kubernetes.io/pvc-protection":
		return "while a pod uses it"
	case "kubernetes.io/pv-protection":
		return "while a claim is bound to it"
	case "service.kubernetes.io/load-balancer-cleanup":
		return "until its load balancer is gone"
	case "batch.kubernetes.io/job-tracking":
		return "until its job has counted it"
	case "customresourcecleanup.apiextensions.k8s.io":
		return "until the objects of the kind are gone"
	}
	return ""
}
