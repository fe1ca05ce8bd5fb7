package await

import (
	corev1 "k8s.io/api/core/v1"
)

// judgeReplicationController: ready means that as many pods as asked for exist
// and are ready, running that they exist and have started. It never finishes.
func judgeReplicationController(d Degree, rc *corev1.ReplicationController, v View) (Verdict, error) {
	if d.isOneOf(Finished, Complete) {
		return Verdict{}, &MisuseError{d, "replication controller", "its pods run for ever; wait for ready or deleted"}
	}
	if rc.DeletionTimestamp != nil {
		return waiting("it is being deleted"), nil
	}
	want := int32(1) // the API's default
	if rc.Spec.Replicas != nil {
		want = *rc.Spec.Replicas
	}
	if rc.Status.ObservedGeneration < rc.Generation {
		return waiting("its controller has not seen the latest change yet"), nil
	}
	have, word := rc.Status.ReadyReplicas, "ready"
	if d == Running {
		have, word = 0, "running"
		for _, p := range v.Pods {
			if p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning {
				have++
			}
		}
	}
	switch {
	case rc.Status.Replicas > want:
		return waiting("%d pods too many", rc.Status.Replicas-want), nil
	case have >= want:
		return done(), nil
	}
	verdict := waiting("%d/%d pods %s", have, want, word)
	for _, c := range rc.Status.Conditions {
		if c.Type == corev1.ReplicationControllerReplicaFailure && c.Status == corev1.ConditionTrue {
			verdict = failed(Likely, "%s; %s", verdict.Cause, reason(c.Reason, c.Message))
			return verdict, nil
		}
	}
	if why, some := holdups(d, v); some {
		why.Cause = verdict.Cause + "; " + why.Cause
		return why, nil
	}
	if w := v.warning(rc); w != "" {
		verdict.Cause += "; " + w
	}
	return verdict, nil
}
