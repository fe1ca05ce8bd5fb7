package workload

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/internal/run"
)

// newReplication returns what keeps the pods of ReplicationControllers.
func newReplication(opts Options, pods *cache.Cache[*corev1.Pod]) (*replicas[*corev1.ReplicationController], []run.Task) {
	r, tasks := newReplicas(opts, "replication-controller", client.ReplicationControllers, pods)
	r.describe, r.report = describeRC, reportRC
	return r, tasks
}

func describeRC(rc *corev1.ReplicationController) replicated {
	r := replicated{
		Object: rc, want: 1, least: time.Duration(rc.Spec.MinReadySeconds) * time.Second,
		selector: selectorOf(rc), template: rc.Spec.Template,
	}
	if rc.Spec.Replicas != nil {
		r.want = int(*rc.Spec.Replicas)
	}
	return r
}

// selectorOf returns what an rc selects; one without a selector has that of its
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

func reportRC(rc *corev1.ReplicationController, n replicaCount, plan replicaPlan, failure error, now time.Time) *corev1.ReplicationController {
	status := *rc.Status.DeepCopy()
	status.Replicas, status.FullyLabeledReplicas, status.ReadyReplicas, status.AvailableReplicas = n.all, n.labeled, n.ready, n.available
	status.ObservedGeneration = rc.Generation
	failing := slices.IndexFunc(status.Conditions, func(c corev1.ReplicationControllerCondition) bool {
		return c.Type == corev1.ReplicationControllerReplicaFailure
	})
	switch {
	case failure == nil && failing >= 0:
		status.Conditions = slices.Delete(status.Conditions, failing, failing+1)
	case failure != nil && failing < 0:
		status.Conditions = append(status.Conditions, corev1.ReplicationControllerCondition{
			Type: corev1.ReplicationControllerReplicaFailure, Status: corev1.ConditionTrue,
			Reason: plan.failureReason(), Message: failure.Error(), LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		})
	}
	if len(status.Conditions) == 0 {
		status.Conditions = nil
	}
	if equality.Semantic.DeepEqual(rc.Status, status) {
		return rc
	}
	told := rc.DeepCopy()
	told.Status = status
	return told
}
