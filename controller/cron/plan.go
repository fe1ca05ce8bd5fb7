package cron

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/controller/dependents"
)

// A decision is the work for a CronJob now.
type decision struct {
	status  batchv1.CronJobStatus
	events  []event
	slot    time.Time                // to make a job for; zero means none
	replace []corev1.ObjectReference // jobs to delete before
	after   time.Duration            // when to look again; 0 means only after a change
}

type event struct{ kind, reason, message string }

// ending returns how a job ended; empty if it did not.
func ending(job *batchv1.Job) batchv1.JobConditionType {
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return c.Type
		}
	}
	return ""
}

// surplus returns the finished jobs that the history limits of a CronJob no longer keep, the oldest first.
func surplus(c *batchv1.CronJob, jobs []*batchv1.Job) (all []*batchv1.Job) {
	for _, kind := range []struct {
		ending batchv1.JobConditionType
		limit  *int32
	}{
		{batchv1.JobComplete, c.Spec.SuccessfulJobsHistoryLimit},
		{batchv1.JobFailed, c.Spec.FailedJobsHistoryLimit},
	} {
		if kind.limit == nil {
			continue
		}
		var ended []*batchv1.Job
		for _, job := range jobs {
			if ending(job) == kind.ending {
				ended = append(ended, job)
			}
		}
		slices.SortFunc(ended, older)
		for _, job := range ended[:max(0, len(ended)-int(*kind.limit))] {
			if job.DeletionTimestamp == nil {
				all = append(all, job)
			}
		}
	}
	return all
}

// older orders jobs by when they started. Jobs that did not start are last.
func older(a, b *batchv1.Job) int {
	switch x, y := a.Status.StartTime, b.Status.StartTime; {
	case x == nil && y != nil:
		return 1
	case x != nil && y == nil:
		return -1
	case x != nil && !x.Equal(y):
		return x.Compare(y.Time)
	}
	return cmp.Compare(a.Name, b.Name)
}

// decide returns what a CronJob needs, which has these jobs. Gone has the UIDs of active jobs that the server no longer has.
func decide(c *batchv1.CronJob, jobs []*batchv1.Job, gone map[types.UID]bool, now time.Time) decision {
	d := decision{status: *c.Status.DeepCopy()}
	d.follow(jobs, gone)
	if c.DeletionTimestamp != nil {
		return d
	}
	if zone := c.Spec.TimeZone; zone != nil {
		if _, err := time.LoadLocation(*zone); err != nil {
			d.warn("UnknownTimeZone", "invalid timeZone: %q: %s", *zone, err)
			return d
		}
	}
	if c.Spec.Suspend != nil && *c.Spec.Suspend {
		return d
	}
	if namesZone(c.Spec.Schedule) {
		d.warn("UnsupportedSchedule", "CRON_TZ or TZ used in schedule %q is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details", c.Spec.Schedule)
	}
	s, err := parse(&c.Spec)
	if err != nil {
		d.warn("UnparseableSchedule", "unparseable schedule: %q : %s", c.Spec.Schedule, err)
		return d
	}
	if !d.choose(c, s, now) {
		return d
	}
	planned := &batchv1.CronJob{ObjectMeta: c.ObjectMeta, Spec: c.Spec, Status: d.status}
	if !d.slot.IsZero() {
		planned.Status.LastScheduleTime = &metav1.Time{Time: d.slot}
	}
	d.after = untilNext(planned, s, now)
	return d
}

// follow brings the status up to date with the jobs.
func (d *decision) follow(jobs []*batchv1.Job, gone map[types.UID]bool) {
	active, ended := make(map[types.UID]bool, len(d.status.Active)), map[types.UID]bool{}
	for i := range d.status.Active {
		active[d.status.Active[i].UID] = true
	}
	for _, job := range jobs {
		end := ending(job)
		if end == "" {
			if !active[job.UID] {
				d.warn("UnexpectedJob", "Saw a job that the controller did not create or forgot: %s", job.Name)
			}
			continue
		}
		if active[job.UID] && !ended[job.UID] {
			ended[job.UID] = true
			d.say("SawCompletedJob", "Saw completed job: %s, condition: %v", job.Name, end)
		}
		if at, last := job.Status.CompletionTime, d.status.LastSuccessfulTime; end == batchv1.JobComplete && at != nil && (last == nil || at.After(last.Time)) {
			d.status.LastSuccessfulTime = at.DeepCopy()
		}
	}
	d.status.Active = slices.DeleteFunc(slices.Clone(d.status.Active), func(ref corev1.ObjectReference) bool {
		if ended[ref.UID] {
			return true
		}
		if gone[ref.UID] {
			d.say("MissingJob", "Active job went missing: %v", ref.Name)
		}
		return gone[ref.UID]
	})
}

// choose sets the slot to make a job for, if there is one. It returns false if the schedule has no slots at all.
func (d *decision) choose(c *batchv1.CronJob, s cron.Schedule, now time.Time) bool {
	since, deadline := begin(c), c.Spec.StartingDeadlineSeconds
	if deadline != nil {
		if earliest := now.Add(-time.Duration(*deadline) * time.Second); earliest.After(since) {
			since = earliest
		}
	}
	slot, missed, err := lastSlot(s, since, now)
	if err != nil {
		d.warn("InvalidSchedule", "invalid schedule: %s : %s", c.Spec.Schedule, err)
		return false
	}
	if slot.IsZero() {
		return true
	}
	if missed > manySlots {
		d.warn("TooManyMissedTimes", "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew")
	}
	named := func(ref corev1.ObjectReference) bool {
		return ref.Name == jobName(c, slot) && ref.Namespace == c.Namespace
	}
	switch {
	case deadline != nil && slot.Add(time.Duration(*deadline)*time.Second).Before(now):
		d.warn("MissSchedule", "Missed scheduled time to start a job: %s", slot.UTC().Format(time.RFC1123Z))
	case slices.ContainsFunc(d.status.Active, named), c.Status.LastScheduleTime.Equal(&metav1.Time{Time: slot}):
		// It has its job.
	case c.Spec.ConcurrencyPolicy == batchv1.ForbidConcurrent && len(d.status.Active) > 0:
		d.say("JobAlreadyActive", "Not starting job because prior execution is running and concurrency policy is Forbid")
	default:
		d.slot = slot
		if c.Spec.ConcurrencyPolicy == batchv1.ReplaceConcurrent {
			d.replace = slices.Clone(d.status.Active)
		}
	}
	return true
}

func (d *decision) say(reason, format string, args ...any) {
	d.events = append(d.events, event{corev1.EventTypeNormal, reason, fmt.Sprintf(format, args...)})
}

func (d *decision) warn(reason, format string, args ...any) {
	d.events = append(d.events, event{corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...)})
}

func inList(refs []corev1.ObjectReference, uid types.UID) bool {
	return slices.ContainsFunc(refs, func(ref corev1.ObjectReference) bool { return ref.UID == uid })
}

// without returns the references without those to the object of that UID, in a slice of its own.
func without(refs []corev1.ObjectReference, uid types.UID) []corev1.ObjectReference {
	return slices.DeleteFunc(slices.Clone(refs), func(ref corev1.ObjectReference) bool { return ref.UID == uid })
}

// jobName returns the name of the job for a slot (cron-C1).
func jobName(c *batchv1.CronJob, slot time.Time) string {
	return fmt.Sprintf("%s-%d", c.Name, slot.Unix()/60)
}

// newJob returns the job for a slot. It shares nothing with the CronJob.
func newJob(c *batchv1.CronJob, slot time.Time) *batchv1.Job {
	zone := time.UTC
	if c.Spec.TimeZone != nil {
		if l, err := time.LoadLocation(*c.Spec.TimeZone); err == nil { // decide has checked it
			zone = l
		}
	}
	template := &c.Spec.JobTemplate
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       c.Namespace,
			Name:            jobName(c, slot),
			Labels:          maps.Clone(template.Labels),
			Annotations:     dependents.With(template.Annotations, batchv1.CronJobScheduledTimestampAnnotation, slot.In(zone).Format(time.RFC3339)),
			OwnerReferences: []metav1.OwnerReference{dependents.Reference(c)},
		},
		Spec: *template.Spec.DeepCopy(),
	}
}

// reference returns the status's reference to an active job.
func reference(job *batchv1.Job) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: batchv1.SchemeGroupVersion.String(), Kind: client.Jobs.Kind,
		Namespace: job.Namespace, Name: job.Name, UID: job.UID, ResourceVersion: job.ResourceVersion,
	}
}
