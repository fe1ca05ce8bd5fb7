package cron

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/internal/storytest"
)

// TestStories plays the stories in testdata. A story has one CronJob and its jobs. Commands are
//
//	cron name=value …      makes or changes the CronJob; "_" in a schedule stands for a space
//	job NAME STATE         sets a job to active, complete, failed or gone; the name of one that the CronJob does not have
//	                       yet makes it, without the controller
//	now TIME               sets the clock (RFC 3339)
//	+DURATION              time passes
//	plan                   decides and carries out; what follows in lines with ">" changed
//
// To accept changed output run the test with -update, then review the difference.
func TestStories(t *testing.T) {
	storytest.PlayCommands(t, "testdata", func(script *storytest.Story) storytest.Commands {
		s := &story{Story: script}
		return storytest.Commands{
			"cron": s.setCron,
			"job":  func(words []string) { s.setJob(words[0], words[1]) },
			"plan": func([]string) { s.plan() },
			"now": func(words []string) {
				now, err := time.Parse(time.RFC3339, words[0])
				if err != nil {
					s.T.Fatal(err)
				}
				s.Now = now
			},
		}
	})
}

type story struct {
	*storytest.Story
	cron *batchv1.CronJob
	jobs []*batchv1.Job
}

func (s *story) setCron(words []string) {
	if s.cron == nil {
		s.cron = &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c", UID: "c", CreationTimestamp: metav1.NewTime(s.Now)}}
	}
	spec := &s.cron.Spec
	storytest.Pairs(words, func(name, value string, n int32) {
		long := int64(n)
		switch name {
		case "schedule":
			spec.Schedule = strings.ReplaceAll(value, "_", " ")
		case "zone":
			spec.TimeZone = &value
		case "policy":
			spec.ConcurrencyPolicy = batchv1.ConcurrencyPolicy(value)
		case "deadline":
			spec.StartingDeadlineSeconds = &long
		case "suspend":
			spec.Suspend = new(value == "true")
		case "keepComplete":
			spec.SuccessfulJobsHistoryLimit = &n
		case "keepFailed":
			spec.FailedJobsHistoryLimit = &n
		case "deleted":
			s.cron.DeletionTimestamp = &metav1.Time{Time: s.Now}
		default:
			s.T.Fatalf("unknown field %q of a cron job", name)
		}
	})
}

func (s *story) setJob(name, state string) {
	i := slices.IndexFunc(s.jobs, func(j *batchv1.Job) bool { return j.Name == name })
	if i < 0 {
		s.jobs = append(s.jobs, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}})
		i = len(s.jobs) - 1
	}
	job := s.jobs[i].DeepCopy()
	s.jobs[i] = job
	at := metav1.NewTime(s.Now)
	if job.Status.StartTime == nil {
		job.Status.StartTime = &at
	}
	end := func(kind batchv1.JobConditionType) {
		job.Status.Conditions = []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: at}}
	}
	switch state {
	case "active":
	case "complete":
		job.Status.CompletionTime = &at
		end(batchv1.JobComplete)
	case "failed":
		end(batchv1.JobFailed)
	case "gone":
		s.jobs = slices.Delete(s.jobs, i, i+1)
	default:
		s.T.Fatalf("unknown state %q of a job", state)
	}
}

func (s *story) plan() {
	for _, job := range surplus(s.cron, s.jobs) {
		s.Say("remove %s", job.Name)
		s.cron.Status.Active = without(s.cron.Status.Active, job.UID)
		s.setJob(job.Name, "gone")
	}
	gone := map[types.UID]bool{}
	for _, ref := range s.cron.Status.Active {
		gone[ref.UID] = !slices.ContainsFunc(s.jobs, func(j *batchv1.Job) bool { return j.UID == ref.UID })
	}
	d := decide(s.cron, s.jobs, gone, s.Now)
	for _, e := range d.events {
		s.Say("event %s %s: %s", e.kind, e.reason, e.message)
	}
	before := status(s.cron.Status)
	s.cron.Status = d.status
	for _, ref := range d.replace {
		s.Say("replace %s", ref.Name)
		s.cron.Status.Active = without(s.cron.Status.Active, ref.UID)
		s.setJob(ref.Name, "gone")
	}
	if !d.slot.IsZero() {
		made := newJob(s.cron, d.slot)
		s.Say("create %s for %s", made.Name, made.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
		s.setJob(made.Name, "active")
		s.cron.Status.Active = append(s.cron.Status.Active, reference(s.jobs[len(s.jobs)-1]))
		s.cron.Status.LastScheduleTime = &metav1.Time{Time: d.slot}
	}
	if now := status(s.cron.Status); now != before {
		s.Say("status %s", now)
	}
	if d.after > 0 {
		s.Say("look again in %v", d.after)
	}
}

func status(s batchv1.CronJobStatus) string {
	names := []string{}
	for _, ref := range s.Active {
		names = append(names, ref.Name)
	}
	text := fmt.Sprintf("active=%v", names)
	if s.LastScheduleTime != nil {
		text += " scheduled=" + s.LastScheduleTime.UTC().Format(time.DateTime)
	}
	if s.LastSuccessfulTime != nil {
		text += " succeeded=" + s.LastSuccessfulTime.UTC().Format(time.DateTime)
	}
	return text
}
