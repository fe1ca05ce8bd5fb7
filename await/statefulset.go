package await

import (
	appsv1 "k8s.io/api/apps/v1"

	"github.com/sampan-io/sampan/client"
)

var statefulSetRules = rulesFor(appsv1.SchemeGroupVersion.WithKind("StatefulSet"), rules[*appsv1.StatefulSet]{
	judge: judgeStatefulSet,
	slim: func(o *appsv1.StatefulSet) client.Object {
		c := *o
		c.ManagedFields, c.Spec.Template = nil, labelsOf(o.Spec.Template)
		return &c
	},
	explain: func(x *explainer, o *appsv1.StatefulSet) {
		x.followParts(client.Pods.GroupVersionResource, text(o.Spec.Selector))
	},
	revision: func(part client.Object) string { return part.GetLabels()[appsv1.StatefulSetRevisionLabel] },
	served:   true,
})

// judgeStatefulSet judges a StatefulSet by the numbers in its status. Pods kept at an older revision by a partition or
// by the strategy OnDelete are not waited for.
func judgeStatefulSet(d Degree, o *appsv1.StatefulSet, v *view) (Verdict, error) {
	r := replicas{
		labels: o.Spec.Template.Labels,
		exist:  o.Status.Replicas, updated: o.Status.UpdatedReplicas, ready: o.Status.ReadyReplicas, word: "ready",
		seen: o.Status.ObservedGeneration >= o.Generation, ending: o.DeletionTimestamp != nil,
		revisions: true, revision: o.Status.UpdateRevision,
	}
	r.asked(o.Spec.Replicas, o.Spec.MinReadySeconds, o.Status.AvailableReplicas)
	r.enough = r.want
	if p := o.Spec.UpdateStrategy.RollingUpdate; p != nil && p.Partition != nil {
		r.enough = max(0, r.want-*p.Partition)
	}
	if o.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		r.enough = 0
	}
	r.keep, r.mentions = r.latest(), true
	return r.judge(d, "StatefulSet", v)
}
