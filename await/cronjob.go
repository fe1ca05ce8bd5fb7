package await

import (
	batchv1 "k8s.io/api/batch/v1"

	"github.com/sampan-io/sampan/await/events"
	"github.com/sampan-io/sampan/client"
)

var cronJobRules = rulesFor(batchv1.SchemeGroupVersion.WithKind("CronJob"), rules[*batchv1.CronJob]{
	judge: judgeCronJob,
	explain: func(x *explainer, _ *batchv1.CronJob) { // its jobs may have any labels; their pods have this one
		x.follow(client.Jobs.GroupVersionResource, "", "")
		x.followParts(client.Pods.GroupVersionResource, batchv1.JobNameLabel)
	},
})

// judgeCronJob judges a CronJob. It is ready as soon as it exists, scheduled and running when a pod of one of its jobs has
// got that far, finished and complete when one of its jobs has completed. A failed job is only a likely failure, because
// the next one may complete.
func judgeCronJob(d Degree, c *batchv1.CronJob, v *view) (Verdict, error) {
	if d == Serving {
		return misuse(d, "CronJob", Ready, Running, Finished)
	}
	if c.DeletionTimestamp != nil {
		return waiting("it is being deleted"), nil
	}
	if n, some := events.Newest(v.notes[v.node.uid]); some {
		switch n.Reason {
		case "UnparseableSchedule", "InvalidSchedule", "UnknownTimeZone":
			return failed(Likely, "%s", n.String()), nil
		}
	}
	if d.isOneOf(Ready, Observed, OldGone) {
		return done(), nil
	}
	pods := v.allPods()
	switch {
	case c.Status.LastSuccessfulTime != nil:
		return done(), nil
	case d.isOneOf(Running, Scheduled) && !v.known:
		return waiting("its pods are not known yet"), nil
	case d == Running && pods.running+pods.ended > 0, d == Scheduled && pods.scheduled+pods.ended > 0:
		return done(), nil
	}
	missing := waiting("no job of it has completed yet")
	switch {
	case len(c.Status.Active) == 0 && c.Spec.Suspend != nil && *c.Spec.Suspend:
		missing = waiting("the cron job is suspended")
	case c.Status.LastScheduleTime == nil && len(c.Status.Active) == 0:
		missing = waiting("it has not been time for a job yet (%s)", c.Spec.Schedule)
	case d == Running, d == Scheduled:
		missing = waiting("no pod of it is %s yet", map[Degree]string{Running: "running", Scheduled: "on a node"}[d])
	}
	verdict := v.held(missing, nil)
	verdict.Certainty = Likely
	return verdict, nil
}
