package workload

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/internal/run"
)

// newReplicaSets returns what keeps the pods of ReplicaSets.
func newReplicaSets(opts Options, pods *cache.Cache[*corev1.Pod]) (*replicas[*appsv1.ReplicaSet], []run.Task) {
	r, tasks := newReplicas(opts, "replicaset-controller", client.ReplicaSets, pods)
	r.describe, r.report = describeRS, reportRS
	r.neighbours = func(rs *appsv1.ReplicaSet) (all []*corev1.Pod) {
		ref := metav1.GetControllerOfNoCopy(rs)
		if ref == nil {
			return nil
		}
		for _, sibling := range r.objects.ByIndex(byController, string(ref.UID)) {
			if sibling.UID != rs.UID {
				all = append(all, pods.ByIndex(byController, string(sibling.UID))...)
			}
		}
		return all
	}
	return r, tasks
}

func describeRS(rs *appsv1.ReplicaSet) replicated {
	return replicated{
		Object: rs, want: int(sizeOf(rs)), least: time.Duration(rs.Spec.MinReadySeconds) * time.Second,
		selector: labelSelector(rs.Spec.Selector), template: &rs.Spec.Template,
	}
}

// sizeOf returns how many pods rs is to have.
func sizeOf(rs *appsv1.ReplicaSet) int32 {
	if rs.Spec.Replicas == nil {
		return 1
	}
	return *rs.Spec.Replicas
}

// labelSelector returns what s selects: nothing if it is missing, empty or wrong, which
// the API server does not let through.
func labelSelector(s *metav1.LabelSelector) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil || selector.Empty() {
		return labels.Nothing()
	}
	return selector
}

func reportRS(rs *appsv1.ReplicaSet, n replicaCount, plan replicaPlan, failure error, now time.Time) *appsv1.ReplicaSet {
	status := *rs.Status.DeepCopy()
	status.Replicas, status.FullyLabeledReplicas, status.ReadyReplicas, status.AvailableReplicas = n.all, n.labeled, n.ready, n.available
	status.TerminatingReplicas = &n.terminating
	status.ObservedGeneration = rs.Generation
	failing := slices.IndexFunc(status.Conditions, func(c appsv1.ReplicaSetCondition) bool {
		return c.Type == appsv1.ReplicaSetReplicaFailure
	})
	switch {
	case failure == nil && failing >= 0:
		status.Conditions = slices.Delete(status.Conditions, failing, failing+1)
	case failure != nil && failing < 0:
		status.Conditions = append(status.Conditions, appsv1.ReplicaSetCondition{
			Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue,
			Reason: plan.failureReason(), Message: failure.Error(), LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		})
	}
	if len(status.Conditions) == 0 {
		status.Conditions = nil
	}
	if equality.Semantic.DeepEqual(rs.Status, status) {
		return rs
	}
	told := rs.DeepCopy()
	told.Status = status
	return told
}
