package cron_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/controllertest"
	"github.com/sampan-io/sampan/controller/cron"
	"github.com/sampan-io/sampan/internal/leaktest"
	"github.com/sampan-io/sampan/internal/run"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func tasks(c client.Interface, caches *cache.Shared) []run.Task {
	return cron.Tasks(controllertest.Config(c, caches))
}

// cronJob returns a CronJob that was created when the clock of a bubble starts.
func cronJob(schedule string, policy batchv1.ConcurrencyPolicy) *batchv1.CronJob {
	c := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tick", UID: "tick", CreationTimestamp: metav1.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)}}
	c.Spec.Schedule, c.Spec.ConcurrencyPolicy = schedule, policy
	c.Spec.SuccessfulJobsHistoryLimit, c.Spec.FailedJobsHistoryLimit = new(int32(1)), new(int32(1))
	c.Spec.JobTemplate.Labels = map[string]string{"from": "template"}
	c.Spec.JobTemplate.Annotations = map[string]string{"note": "template"}
	c.Spec.JobTemplate.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}}
	return c
}

func jobNames(s *clienttest.Server) (names []string) {
	for _, j := range clienttest.All(s, client.Jobs, "default") {
		names = append(names, j.Name)
	}
	slices.Sort(names)
	return names
}

// reasons returns the reasons of the events, sorted.
func reasons(s *clienttest.Server) string {
	var all []string
	for _, e := range clienttest.All(s, client.Events, "default") {
		all = append(all, e.Reason)
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), " ")
}

func finish(t *testing.T, s *clienttest.Server, name string) {
	t.Helper()
	job := clienttest.Find(s, client.Jobs, "default", name).DeepCopy()
	now := metav1.Now()
	job.Status.CompletionTime = &now
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: now}}
	s.Set(t, job)
	synctest.Wait()
}

func tick(s *clienttest.Server) *batchv1.CronJob {
	return clienttest.Find(s, client.CronJobs, "default", "tick")
}

// minute is the start of the clock of a bubble, in the names of jobs.
const minute = 946684800 / 60

func TestCronJobMakesJobs(t *testing.T) {
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := jobNames(s); len(got) != 0 {
			t.Fatalf("jobs %v at the time of the slot, want none until a little later", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		got := jobNames(s)
		if !slices.Equal(got, []string{"tick-15778081"}) {
			t.Fatalf("jobs %v, want tick-%d", got, minute+1)
		}
		job, c := clienttest.Find(s, client.Jobs, "default", got[0]), tick(s)
		if !metav1.IsControlledBy(job, c) || job.Labels["from"] != "template" || job.Annotations["note"] != "template" ||
			job.Annotations["batch.kubernetes.io/cronjob-scheduled-timestamp"] != "2000-01-01T00:01:00Z" {
			t.Errorf("the job is %+v", job.ObjectMeta)
		}
		if len(c.Status.Active) != 1 || c.Status.Active[0].UID != job.UID || c.Status.Active[0].APIVersion != "batch/v1" || !c.Status.LastScheduleTime.Equal(new(metav1.Date(2000, 1, 1, 0, 1, 0, 0, time.UTC))) {
			t.Errorf("status = %+v", c.Status)
		}
		finish(t, s, job.Name)
		if st := tick(s).Status; len(st.Active) != 0 || st.LastSuccessfulTime == nil {
			t.Errorf("status = %+v after the job completed", st)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		finish(t, s, "tick-15778082")
		if got := jobNames(s); !slices.Equal(got, []string{"tick-15778082"}) {
			t.Errorf("jobs %v after the second one, want only that", got)
		}
		if got := reasons(s); got != "SawCompletedJob SuccessfulCreate SuccessfulDelete" {
			t.Errorf("events %s", got)
		}
	}, cronJob("* * * * *", batchv1.AllowConcurrent))
}

func TestCronJobReplacesJobs(t *testing.T) {
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		time.Sleep(2*time.Minute + time.Second)
		synctest.Wait()
		if got := jobNames(s); !slices.Equal(got, []string{"tick-15778082"}) {
			t.Errorf("jobs %v, want only the second one", got)
		}
		if got := reasons(s); got != "SuccessfulCreate SuccessfulDelete" {
			t.Errorf("events %s", got)
		}
	}, cronJob("* * * * *", batchv1.ReplaceConcurrent))
}

// TestNewScheduleWaitsForItsNextSlot changes a schedule to one with slots in the past, which make no job (cron-C3).
func TestNewScheduleWaitsForItsNextSlot(t *testing.T) {
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		time.Sleep(90 * time.Second)
		c := tick(s).DeepCopy()
		c.Spec.Schedule = "* * * * *"
		s.Set(t, c)
		synctest.Wait()
		if got := jobNames(s); len(got) != 0 {
			t.Errorf("jobs %v right after the change", got)
		}
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if got := jobNames(s); !slices.Equal(got, []string{"tick-15778082"}) {
			t.Errorf("jobs %v, want that of the next slot", got)
		}
	}, cronJob("@hourly", batchv1.AllowConcurrent))
}

func TestSuspendedCronJobIsIdle(t *testing.T) {
	c := cronJob("* * * * *", batchv1.AllowConcurrent)
	c.Spec.Suspend = new(true)
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		var asked atomic.Int32
		s.Intercept(func(clienttest.Request) error { asked.Add(1); return nil })
		time.Sleep(24 * time.Hour)
		if asked.Load() != 0 {
			t.Errorf("%d requests on an idle day", asked.Load())
		}
	}, c)
}

// TestOneJobForEachSlotAfterCrashes kills the controller after each of its writes (cron-C1).
func TestOneJobForEachSlotAfterCrashes(t *testing.T) {
	controllertest.CrashAnywhere(t, tasks, 4, func() []client.Object { return []client.Object{cronJob("0 * * * *", batchv1.ForbidConcurrent)} },
		func(*testing.T, *clienttest.Server) { time.Sleep(time.Hour + time.Minute) },
		func(t *testing.T, s *clienttest.Server) {
			c := tick(s)
			if got := jobNames(s); !slices.Equal(got, []string{"tick-15778140"}) || len(c.Status.Active) != 1 || c.Status.Active[0].Name != got[0] {
				t.Errorf("jobs %v, status %+v, want one job, in the status", got, c.Status)
			}
		})
}
