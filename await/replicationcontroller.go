package await

import (
	corev1 "k8s.io/api/core/v1"
)

// judgeReplicationController judges by the numbers in its status. It never
// finishes.
func judgeReplicationController(d Degree, rc *corev1.ReplicationController, v *view) (Verdict, error) {
	r := replicas{
		exist: rc.Status.Replicas, ready: rc.Status.ReadyReplicas, word: "ready",
		seen: rc.Status.ObservedGeneration >= rc.Generation, ending: rc.DeletionTimestamp != nil,
	}
	r.asked(rc.Spec.Replicas, rc.Spec.MinReadySeconds, rc.Status.AvailableReplicas)
	verdict, err := r.judge(d, "ReplicationController", v)
	if err != nil || verdict.State == Done || !r.seen || r.ending || r.ready >= r.want {
		return verdict, err
	}
	for _, c := range rc.Status.Conditions {
		if c.Type == corev1.ReplicationControllerReplicaFailure && c.Status == corev1.ConditionTrue {
			return replicaFailure(v, r, c.Reason, c.Message), nil
		}
	}
	return verdict, nil
}
