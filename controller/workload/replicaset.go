package workload

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/controller/dependents"
)

// replicaSets is the kind ReplicaSet.
var replicaSets = replicaKind[*appsv1.ReplicaSet]{
	name: "replicaset-controller", resource: client.ReplicaSets, describe: describeRS, neighbours: podsOfSiblings,
	withStatus: func(rs *appsv1.ReplicaSet, status appsv1.ReplicaSetStatus) *appsv1.ReplicaSet {
		updated := rs.DeepCopy()
		updated.Status = status
		return updated
	},
}

func describeRS(rs *appsv1.ReplicaSet) replicated {
	return replicated{
		Object: rs, want: int(sizeOf(rs)), least: time.Duration(rs.Spec.MinReadySeconds) * time.Second,
		selector: dependents.Selector(rs.Spec.Selector), template: &rs.Spec.Template, status: rs.Status, tellsTerminating: true,
	}
}

// sizeOf returns how many pods rs is to have.
func sizeOf(rs *appsv1.ReplicaSet) int32 { return dependents.Size(rs.Spec.Replicas) }

// podsOfSiblings returns the pods of the other sets of the same Deployment.
func podsOfSiblings(r *replicas[*appsv1.ReplicaSet], rs *appsv1.ReplicaSet) (all []*corev1.Pod) {
	ref := metav1.GetControllerOfNoCopy(rs)
	if ref == nil {
		return nil
	}
	for _, sibling := range r.Objects.ByIndex(dependents.ByController, string(ref.UID)) {
		if sibling.UID != rs.UID {
			all = append(all, r.work.Cache.ByIndex(dependents.ByController, string(sibling.UID))...)
		}
	}
	return all
}
