package workload_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/workload"
	"github.com/sampan-io/sampan/internal/run"
)

// killAfter lets n writes through and then nothing at all, as if the program had been
// killed.
func killAfter(s *clienttest.Server, n int) {
	killed := errors.New("killed")
	var mu sync.Mutex
	s.Intercept(func(r clienttest.Request) error {
		mu.Lock()
		defer mu.Unlock()
		if n < 0 {
			return killed
		}
		switch r.Verb {
		case "create", "update", "patch", "delete":
			if r.Resource == "events" {
				return nil
			}
			if n--; n < 0 {
				return killed
			}
		}
		return nil
	})
}

// finishPods makes every pod that is there succeed.
func finishPods(t *testing.T, s *clienttest.Server) {
	for _, p := range active(s) {
		if p.Status.Phase != corev1.PodSucceeded {
			become(t, s, p, corev1.PodSucceeded, false)
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
					g := run.NewGroup(t.Context(), 0)
					defer g.Stop()
					g.Go(func(ctx context.Context) { _ = run.Stages(ctx, workload.Tasks(workload.Options{Client: s})) })
					for range rounds {
						synctest.Wait()
						finishPods(t, s)
						time.Sleep(time.Minute)
					}
				}
				killAfter(s, n)
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
