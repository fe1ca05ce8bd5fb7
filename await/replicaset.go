package await

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/client"
)

var replicaSetRules = rulesFor(appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), rules[*appsv1.ReplicaSet]{
	judge: judgeReplicaSet,
	slim: func(o *appsv1.ReplicaSet) client.Object {
		c := *o
		c.ManagedFields, c.Spec.Template = nil, labelsOf(o.Spec.Template)
		return &c
	},
	explain: func(x *explainer, o *appsv1.ReplicaSet) {
		x.followParts(client.Pods.GroupVersionResource, text(o.Spec.Selector))
	},
	served: true,
})

// judgeReplicaSet judges a ReplicaSet by the numbers in its status. All its pods have the same revision.
func judgeReplicaSet(d Degree, rs *appsv1.ReplicaSet, v *view) (Verdict, error) {
	r := replicas{
		labels: rs.Spec.Template.Labels,
		exist:  rs.Status.Replicas, ready: rs.Status.ReadyReplicas, word: "ready",
		seen: rs.Status.ObservedGeneration >= rs.Generation, ending: rs.DeletionTimestamp != nil,
	}
	r.asked(rs.Spec.Replicas, rs.Spec.MinReadySeconds, rs.Status.AvailableReplicas)
	verdict, err := r.judge(d, "ReplicaSet", v)
	if err != nil || verdict.State == Done || !r.seen || r.ending || r.ready >= r.want {
		return verdict, err
	}
	for _, c := range rs.Status.Conditions {
		if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
			return replicaFailure(v, r, c.Reason, c.Message), nil
		}
	}
	return verdict, nil
}
