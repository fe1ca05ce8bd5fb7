package await

import (
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/await/events"
	"github.com/sampan-io/sampan/client"
)

var jobRules = rulesFor(batchv1.SchemeGroupVersion.WithKind("Job"), rules[*batchv1.Job]{
	judge: judgeJob,
	ended: func(j *batchv1.Job) (string, bool) {
		for _, c := range j.Status.Conditions {
			if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
				return strings.TrimSuffix("the job has ended ("+string(c.Type)+"): "+events.Reason(c.Reason, c.Message), ": "), true
			}
		}
		return "", false
	},
	slim: func(j *batchv1.Job) client.Object {
		c := *j
		c.ManagedFields, c.Spec.Template = nil, labelsOf(j.Spec.Template)
		return &c
	},
	explain: func(x *explainer, j *batchv1.Job) {
		x.followParts(client.Pods.GroupVersionResource, text(j.Spec.Selector))
	},
})

// judgeJob judges a Job. It is observed when its controller has started or suspended it, scheduled and running when its
// pods have got that far or have ended, ready when all its active pods are ready or it has completed, finished and
// complete when it has completed. A failed Job is a certain failure for every degree but deleted.
func judgeJob(d Degree, j *batchv1.Job, v *view) (Verdict, error) {
	if d == Serving {
		return misuse(d, "Job", Ready, Running, Finished)
	}
	suspended := false
	for _, c := range j.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case batchv1.JobFailed, batchv1.JobFailureTarget:
			return failed(Certain, "the job failed: %s", events.Reason(c.Reason, c.Message)), nil
		case batchv1.JobComplete:
			return done(), nil
		case batchv1.JobSuspended:
			suspended = true
		default: // says nothing about the end
		}
	}
	pods := v.allPods()
	ready := int32(0)
	if j.Status.Ready != nil {
		ready = *j.Status.Ready
	}
	succeeded, failed := j.Status.Succeeded, j.Status.Failed
	if u := j.Status.UncountedTerminatedPods; u != nil { // they have ended, and are counted in a moment
		succeeded += int32(len(u.Succeeded))
		failed += int32(len(u.Failed))
	}
	ran := succeeded + failed
	switch {
	case d == Observed && (suspended || j.Status.StartTime != nil || j.Status.Active > 0 || ran > 0):
		return done(), nil
	case suspended:
		return waiting("the job is suspended"), nil
	case d == Running && (pods.running > 0 || ready > 0 || ran > 0):
		return done(), nil
	case d == Scheduled && (ran > 0 || pods.live > 0 && pods.live >= j.Status.Active && pods.scheduled == pods.live):
		return done(), nil
	case d.isOneOf(Ready, OldGone) && j.Status.Active > 0 && ready >= j.Status.Active:
		return done(), nil
	case j.DeletionTimestamp != nil:
		return waiting("it is being deleted"), nil
	}
	var missing Verdict
	if j.Status.Active == 0 && ran == 0 {
		missing = waiting("no pod yet")
		if why, some := v.refused(); some && v.known && pods.live == 0 {
			why.Cause = missing.Cause + "; " + why.Cause
			return why, nil
		}
	} else {
		missing = waiting("%d of its pods active, %d succeeded, %d failed", j.Status.Active, succeeded, failed)
	}
	return v.held(missing, nil), nil
}
