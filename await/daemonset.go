package await

import (
	appsv1 "k8s.io/api/apps/v1"

	"github.com/sampan-io/sampan/client"
)

var daemonSetRules = rulesFor(appsv1.SchemeGroupVersion.WithKind("DaemonSet"), rules[*appsv1.DaemonSet]{
	judge: judgeDaemonSet,
	slim: func(o *appsv1.DaemonSet) client.Object {
		c := *o
		c.ManagedFields, c.Spec.Template = nil, labelsOf(o.Spec.Template)
		return &c
	},
	explain: func(x *explainer, o *appsv1.DaemonSet) {
		x.followParts(client.Pods.GroupVersionResource, text(o.Spec.Selector))
	},
	revision: func(part client.Object) string { return part.GetLabels()[templateGeneration] },
	served:   true,
})

// templateGeneration is the label of the pods of a DaemonSet with their revision.
const templateGeneration = "pod-template-generation"

// judgeDaemonSet judges a DaemonSet by the numbers in its status. The wanted number of pods is the one that its
// controller counts: a pod on each node that matches. Pods kept at an older revision by the strategy OnDelete are not
// waited for.
func judgeDaemonSet(d Degree, o *appsv1.DaemonSet, v *view) (Verdict, error) {
	s := o.Status
	r := replicas{
		labels: o.Spec.Template.Labels,
		want:   s.DesiredNumberScheduled, enough: s.DesiredNumberScheduled,
		exist: s.CurrentNumberScheduled, updated: s.UpdatedNumberScheduled, ready: s.NumberReady, word: "ready",
		seen: s.ObservedGeneration >= o.Generation && (s.ObservedGeneration > 0 || o.Generation == 0), ending: o.DeletionTimestamp != nil,
		revisions: true, revision: o.Annotations[appsv1.DeprecatedTemplateGeneration],
	}
	if o.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
		r.enough = 0
	}
	if o.Spec.MinReadySeconds > 0 {
		r.ready, r.word = s.NumberAvailable, "available"
	}
	r.keep, r.mentions = r.latest(), true
	verdict, err := r.judge(d, "DaemonSet", v)
	if err == nil && verdict.State == Done && d == Ready && s.NumberMisscheduled > 0 {
		return waiting("%s on a node that it is not for", counted(int(s.NumberMisscheduled), "pod")), nil
	}
	return verdict, err
}
