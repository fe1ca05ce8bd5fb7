package await

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// judgeJob: running is reached when a pod of it runs or has run, ready when all
// its active pods are ready or it has completed, finished and complete when it
// has completed. A Job that has failed has failed for every degree but deleted.
func judgeJob(d Degree, j *batchv1.Job, v View) Verdict {
	for _, c := range j.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case batchv1.JobFailed, batchv1.JobFailureTarget:
			return failed(Certain, "the job failed: %s", reason(c.Reason, c.Message))
		case batchv1.JobComplete:
			return done()
		case batchv1.JobSuspended:
			return waiting("the job is suspended")
		default: // says nothing about the end
		}
	}
	running := int32(0)
	for _, p := range v.Pods {
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			running++
		}
	}
	ready := int32(0)
	if j.Status.Ready != nil {
		ready = *j.Status.Ready
	}
	ran := j.Status.Succeeded + j.Status.Failed
	switch {
	case d == Running && (running > 0 || ready > 0 || ran > 0):
		return done()
	case d == Ready && j.Status.Active > 0 && ready >= j.Status.Active:
		return done()
	case j.DeletionTimestamp != nil:
		return waiting("it is being deleted")
	}
	var verdict Verdict
	switch {
	case j.Status.Active == 0 && ran == 0:
		verdict = waiting("no pod yet")
	default:
		verdict = waiting("%d of its pods active, %d succeeded, %d failed", j.Status.Active, j.Status.Succeeded, j.Status.Failed)
	}
	if why, some := holdups(d, v); some {
		why.Cause = verdict.Cause + "; " + why.Cause
		return why
	}
	if w := v.warning(j); w != "" {
		verdict.Cause += "; " + w
	}
	return verdict
}
