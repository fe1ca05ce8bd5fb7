package workload_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/controllertest"
)

// finishPods makes every pod that is there succeed.
func finishPods(t *testing.T, s *clienttest.Server) {
	for _, p := range controllertest.Active(s) {
		if p.Status.Phase != corev1.PodSucceeded {
			controllertest.Become(t, s, p, corev1.PodSucceeded, false)
		}
	}
}

// TestAJobCountsEachPodOnceWhateverCrashesWhen kills the controllers after each of their
// writes, starts them again, and wants the same end.
func TestAJobCountsEachPodOnceWhateverCrashesWhen(t *testing.T) {
	three, two := int32(3), int32(2)
	for n := range 20 {
		t.Run(fmt.Sprint("after write ", n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := clienttest.New(t, job(func(spec *batchv1.JobSpec) { spec.Completions, spec.Parallelism = &three, &two }))
				live := func(rounds int) {
					controllertest.Live(t, tasks, s, func() {
						for range rounds {
							synctest.Wait()
							finishPods(t, s)
							time.Sleep(time.Minute)
						}
					})
				}
				controllertest.KillAfter(s, n)
				live(4)
				s.Intercept(nil)
				live(8)
				st := theJob(s).Status
				if st.Succeeded != 3 || st.Failed != 0 || st.CompletionTime == nil || len(st.UncountedTerminatedPods.Succeeded) != 0 {
					t.Errorf("status = %+v, want 3 succeeded", st)
				}
				pods := clienttest.All(s, client.Pods, "default")
				for _, p := range pods {
					if len(p.Finalizers) != 0 {
						t.Errorf("pod %s still has %v", p.Name, p.Finalizers)
					}
				}
				if len(pods) != 3 {
					t.Errorf("%d pods were made, want 3", len(pods))
				}
			})
		})
	}
}
