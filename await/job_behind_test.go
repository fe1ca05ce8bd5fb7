package await_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/client"
)

// TestFailedJobWaitsForItsPods ends a wait for a Job that has failed while its pod is still seen to run: the end of the pod,
// which has the cause, is awaited, for a limited time.
func TestFailedJobWaitsForItsPods(t *testing.T) {
	for _, tt := range []struct {
		name string
		ends bool
		once bool
		want string
	}{
		{"the pod ends", true, false, "it failed: container main exited with code 4"},
		{"one look", true, true, "it failed: container main exited with code 4"},
		{"the pod goes on", false, false, "running"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				job := &batchv1.Job{ObjectMeta: meta("build")}
				job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded"}}
				running := podOf(job, "build-a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })
				v := newWait(t, job, running)
				if tt.ends {
					time.AfterFunc(time.Second, func() {
						v.s.Set(t, podOf(job, "build-a", func(p *corev1.Pod) {
							p.Status.Phase = corev1.PodFailed
							p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 4}}}}
						}))
					})
				}
				out := v.want(await.SomeFailed, await.Request{For: await.Complete, Once: tt.once, Targets: []await.Target{target(client.Jobs, "build")}})
				parts := out.Objects[0].Parts
				if len(parts) != 1 || !strings.HasPrefix(parts[0].Verdict.Cause, tt.want) {
					t.Errorf("parts %+v, want the cause %q", parts, tt.want)
				}
			})
		})
	}
}
