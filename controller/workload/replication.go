package workload

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/controller/dependents"
)

// replication is the kind ReplicationController. Its status and conditions are those of
// a ReplicaSet under other names.
var replication = replicaKind[*corev1.ReplicationController]{
	name: "replication-controller", resource: client.ReplicationControllers, describe: describeRC,
	withStatus: func(rc *corev1.ReplicationController, s appsv1.ReplicaSetStatus) *corev1.ReplicationController {
		updated := rc.DeepCopy()
		updated.Status = corev1.ReplicationControllerStatus{
			Replicas: s.Replicas, FullyLabeledReplicas: s.FullyLabeledReplicas, ReadyReplicas: s.ReadyReplicas,
			AvailableReplicas: s.AvailableReplicas, ObservedGeneration: s.ObservedGeneration,
		}
		for _, c := range s.Conditions {
			updated.Status.Conditions = append(updated.Status.Conditions, corev1.ReplicationControllerCondition{
				Type: corev1.ReplicationControllerConditionType(c.Type), Status: c.Status,
				Reason: c.Reason, Message: c.Message, LastTransitionTime: c.LastTransitionTime,
			})
		}
		return updated
	},
}

func describeRC(rc *corev1.ReplicationController) replicated {
	r := replicated{
		Object: rc, want: int(dependents.Size(rc.Spec.Replicas)), least: time.Duration(rc.Spec.MinReadySeconds) * time.Second,
		selector: selectorOf(rc), template: rc.Spec.Template,
		status: appsv1.ReplicaSetStatus{
			Replicas: rc.Status.Replicas, FullyLabeledReplicas: rc.Status.FullyLabeledReplicas, ReadyReplicas: rc.Status.ReadyReplicas,
			AvailableReplicas: rc.Status.AvailableReplicas, ObservedGeneration: rc.Status.ObservedGeneration,
		},
	}
	for _, c := range rc.Status.Conditions {
		r.status.Conditions = append(r.status.Conditions, appsv1.ReplicaSetCondition{
			Type: appsv1.ReplicaSetConditionType(c.Type), Status: c.Status,
			Reason: c.Reason, Message: c.Message, LastTransitionTime: c.LastTransitionTime,
		})
	}
	return r
}

// selectorOf returns an rc's selector; one without a selector has that of its
// template's labels, and one that has neither selects nothing.
func selectorOf(rc *corev1.ReplicationController) labels.Selector {
	set := rc.Spec.Selector
	if len(set) == 0 && rc.Spec.Template != nil {
		set = rc.Spec.Template.Labels
	}
	if len(set) == 0 {
		return labels.Nothing()
	}
	return labels.SelectorFromSet(set)
}
