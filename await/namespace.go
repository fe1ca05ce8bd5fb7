package await

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/await/events"
	"github.com/sampan-io/sampan/client"
)

var namespaceRules = rulesFor(corev1.SchemeGroupVersion.WithKind("Namespace"), rules[*corev1.Namespace]{
	judge: judgeNamespace,
	explain: func(x *explainer, n *corev1.Namespace) {
		if x.req.For.has(Deleted) { // the pods that are left in it
			x.add(source{GroupVersionResource: client.Pods.GroupVersionResource, namespace: n.Name, of: n.UID})
		}
	},
})

// judgeNamespace judges a Namespace. It is ready when its phase is Active.
func judgeNamespace(d Degree, n *corev1.Namespace, _ *view) (Verdict, error) {
	if !plain(d) {
		return misuse(d, "Namespace", Ready)
	}
	if n.DeletionTimestamp != nil || n.Status.Phase == corev1.NamespaceTerminating {
		return failed(Certain, "it is being deleted").because(remaining(n)), nil
	}
	if n.Status.Phase == corev1.NamespaceActive {
		return done(), nil
	}
	return waiting("it is not active yet"), nil
}

// remaining returns why the deletion of a namespace has not finished, from the conditions that its controller sets.
func remaining(n *corev1.Namespace) string {
	verdict := Verdict{}
	for _, c := range n.Status.Conditions {
		if c.Status == corev1.ConditionTrue && c.Message != "" {
			verdict = verdict.because(events.Line(c.Message))
		}
	}
	return verdict.Cause
}
