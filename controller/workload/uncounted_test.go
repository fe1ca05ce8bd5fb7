package workload

import (
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestUncountedPodsAreLimited lets many pods of a Job finish at once. Each of them is counted once, and the status never
// has more UIDs than upstream's.
func TestUncountedPodsAreLimited(t *testing.T) {
	const n = 2*maxUncounted + 100
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name              string
		phase             corev1.PodPhase
		deadline          int64 // 0: none
		succeeded, failed int32
		end               batchv1.JobConditionType
	}{
		{"successes", corev1.PodSucceeded, 0, n, 0, batchv1.JobComplete},
		{"failures", corev1.PodFailed, 0, 0, n, batchv1.JobFailed},
		{"active after the deadline", corev1.PodRunning, 1, 0, n, batchv1.JobFailed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", UID: "j"}, Spec: batchv1.JobSpec{
				Completions: new(int32(n)), Parallelism: new(int32(n)), BackoffLimit: new(int32(3)),
			}}
			job.Status.StartTime = &metav1.Time{Time: now.Add(-time.Minute)}
			if tt.deadline > 0 {
				job.Spec.ActiveDeadlineSeconds = &tt.deadline
			}
			var pods []*corev1.Pod
			for i := range n {
				name := fmt.Sprint("p", i)
				pods = append(pods, &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Finalizers: []string{batchv1.JobTrackingFinalizer}},
					Spec:       corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{Phase: tt.phase},
				})
			}
			for round := 0; jobEnd(&job.Status) == nil; round++ {
				if round > 20 {
					t.Fatalf("the job does not end: %+v", job.Status)
				}
				plan := planJob(job, pods, now)
				if len(plan.create) > 0 {
					t.Fatalf("round %d: %d more pods are created", round, len(plan.create))
				}
				u := plan.status.UncountedTerminatedPods
				if len(u.Succeeded)+len(u.Failed) > maxUncounted {
					t.Fatalf("round %d: %d successes and %d failures are uncounted, want at most %d", round, len(u.Succeeded), len(u.Failed), maxUncounted)
				}
				job.Status = plan.status
				for _, pod := range plan.release {
					pod.Finalizers = nil
				}
				for _, pod := range plan.remove {
					if len(pod.Finalizers) > 0 {
						t.Fatalf("round %d: pod %s is deleted before it is counted", round, pod.Name)
					}
				}
				pods = slices.DeleteFunc(pods, func(pod *corev1.Pod) bool { return slices.Contains(plan.remove, pod) })
			}
			if job.Status.Succeeded != tt.succeeded || job.Status.Failed != tt.failed || jobEnd(&job.Status).Type != tt.end {
				t.Errorf("%d succeeded, %d failed, %s; want %d, %d, %s", job.Status.Succeeded, job.Status.Failed, jobEnd(&job.Status).Type, tt.succeeded, tt.failed, tt.end)
			}
		})
	}
}
