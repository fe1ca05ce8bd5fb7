package await_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/wait"
)

func podOfJob(name string, phase corev1.PodPhase) *corev1.Pod {
	return podOf(nil, name, func(p *corev1.Pod) {
		p.Labels = map[string]string{batchv1.JobNameLabel: "build"}
		p.Status.Phase = phase
	})
}

func TestWaitForJobPodsRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.New(t, podOfJob("a", corev1.PodRunning), podOfJob("b", corev1.PodPending), podOf(nil, "other", isReady))
		if err := await.WaitForJobPodsRunning(t.Context(), s, "default", "build", 1); err != nil {
			t.Error(err)
		}
		time.AfterFunc(time.Minute, func() {
			s.BreakWatches(&client.UnreachableError{Server: "here", Err: errors.New("down")})
			s.Set(t, podOfJob("b", corev1.PodRunning))
		})
		if err := await.WaitForJobPodsRunning(t.Context(), s, "default", "build", 2); err != nil {
			t.Error(err)
		}
		// Exactly so many: a third is one too many, until another has ended.
		s.Set(t, podOfJob("c", corev1.PodRunning))
		time.AfterFunc(time.Minute, func() { s.Remove(t, podOfJob("a", "")) })
		if err := await.WaitForJobPodsRunning(t.Context(), s, "default", "build", 2); err != nil {
			t.Error(err)
		}
		began := time.Now()
		err := await.WaitForJobPodsRunning(t.Context(), s, "default", "build", 5)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 15*time.Minute || !strings.Contains(err.Error(), "pods of job default/build: 2 are Running, 5 are expected") {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		s.Intercept(func(clienttest.Request) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))
		})
		if err := await.WaitForJobPodsRunning(t.Context(), s, "default", "build", 5); !apierrors.IsForbidden(err) {
			t.Errorf("%v, want Forbidden", err)
		}
		s.Intercept(nil)
	})
}

func buildJob(c ...batchv1.JobCondition) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: meta("build")}
	j.Status.Conditions = c
	return j
}

// TestWaitForJobPodsEndsWithTheJob has the job end, or be at its end already, with fewer pods
// in the phase than are expected.
func TestWaitForJobPodsEndsWithTheJob(t *testing.T) {
	broken := batchv1.JobCondition{Type: batchv1.JobFailed, Status: "True", Reason: "BackoffLimitExceeded"}
	for name, tt := range map[string]struct {
		end    batchv1.JobCondition
		phase  corev1.PodPhase
		failed bool
		error  string
	}{
		"failed":                 {broken, corev1.PodRunning, true, "pods of job default/build: 1 are Running, 3 are expected: job default/build failed: BackoffLimitExceeded"},
		"failed, want successes": {broken, corev1.PodSucceeded, true, "pods of job default/build: 0 are Succeeded, 3 are expected: job default/build failed: BackoffLimitExceeded"},
		"complete":               {batchv1.JobCondition{Type: batchv1.JobComplete, Status: "True"}, corev1.PodRunning, false, "pods of job default/build: 1 are Running, 3 are expected: job default/build is complete"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := clienttest.New(t, buildJob(), podOfJob("a", corev1.PodRunning))
				time.AfterFunc(time.Minute, func() {
					s.Set(t, buildJob(tt.end))
					if tt.phase == corev1.PodSucceeded { // one that runs may yet succeed
						s.Set(t, podOfJob("a", corev1.PodFailed))
					}
				})
				for _, took := range []time.Duration{time.Minute, 0} {
					began := time.Now()
					err := await.WaitForJobPodsInPhase(t.Context(), s, "default", "build", 3, tt.phase)
					if err == nil || err.Error() != tt.error || time.Since(began) != took {
						t.Errorf("after %v: %v, want %s after %v", time.Since(began), err, tt.error, took)
					}
					if errors.As(err, new(*await.JobFailedError)) != tt.failed {
						t.Errorf("it is a %T", errors.Unwrap(errors.Unwrap(err)))
					}
				}
			})
		})
	}
}

// TestWaitForJobPodsAfterTheEnd asks for pods that a job has left, which are there though it
// failed, and which the watch of the pods may show later than that.
func TestWaitForJobPodsAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.New(t, buildJob(), podOfJob("a", corev1.PodRunning), podOfJob("b", corev1.PodRunning))
		time.AfterFunc(time.Minute, func() {
			s.Set(t, buildJob(batchv1.JobCondition{Type: batchv1.JobFailed, Status: "True"}))
			s.Set(t, podOfJob("a", corev1.PodFailed))
		})
		time.AfterFunc(2*time.Minute, func() { s.Set(t, podOfJob("b", corev1.PodFailed)) })
		began := time.Now()
		if err := await.WaitForJobPodsInPhase(t.Context(), s, "default", "build", 2, corev1.PodFailed); err != nil || time.Since(began) != 2*time.Minute {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if err := await.WaitForJobPodsRunning(t.Context(), s, "default", "build", 0); err != nil {
			t.Error(err)
		}
	})
}

func TestWaitForJobPodsChecksThePhase(t *testing.T) {
	err := await.WaitForJobPodsInPhase(t.Context(), clienttest.New(t), "default", "build", 1, "running")
	if err == nil || !strings.Contains(err.Error(), `the phase is "running", want one of ["Pending" "Running"`) {
		t.Errorf("%v, want what is accepted", err)
	}
}

// TestWaitForJobPodsWithoutTheJob may not read the job.
func TestWaitForJobPodsWithoutTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.New(t, podOfJob("a", corev1.PodPending))
		s.Intercept(func(r clienttest.Request) error {
			if r.Resource == "jobs" {
				return apierrors.NewForbidden(r.GroupResource(), "", errors.New("no"))
			}
			return nil
		})
		time.AfterFunc(time.Minute, func() { s.Set(t, podOfJob("a", corev1.PodRunning)) })
		if err := await.WaitForJobPodsRunning(t.Context(), s, "default", "build", 1); err != nil {
			t.Error(err)
		}
	})
}

func TestWaitForJobFinishAndComplete(t *testing.T) {
	job := func(c ...batchv1.JobCondition) *batchv1.Job {
		j := &batchv1.Job{ObjectMeta: meta("build")}
		j.Status.Conditions = c
		return j
	}
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.New(t, job())
		time.AfterFunc(time.Minute, func() { s.Set(t, job(batchv1.JobCondition{Type: batchv1.JobComplete, Status: "True"})) })
		if v, err := await.WaitForJobFinish(t.Context(), s, "default", "build"); err != nil || v.State != await.Done {
			t.Errorf("%v, %v", v, err)
		}
		if err := await.WaitForJobComplete(t.Context(), s, "default", "build"); err != nil {
			t.Error(err)
		}
		s.Set(t, job(batchv1.JobCondition{Type: batchv1.JobFailed, Status: "True", Reason: "BackoffLimitExceeded", Message: "too often"}))
		if v, err := await.WaitForJobFinish(t.Context(), s, "default", "build"); err != nil || v.State != await.Failed {
			t.Errorf("%v, %v", v, err)
		}
		err := await.WaitForJobComplete(t.Context(), s, "default", "build")
		var failed *await.JobFailedError
		if !errors.As(err, &failed) || err.Error() != "job default/build failed: BackoffLimitExceeded: too often" {
			t.Errorf("it is %v", err)
		}
		if _, err := await.WaitForJobFinish(t.Context(), s, "default", "nothing"); !apierrors.IsNotFound(err) {
			t.Errorf("%v, want NotFound", err)
		}
		s.Set(t, job())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := await.WaitForJobFinish(ctx, s, "default", "build"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want DeadlineExceeded", err)
		}
		over, cancel := context.WithDeadline(t.Context(), time.Now())
		defer cancel()
		if _, err := await.WaitForJobFinish(over, s, "default", "build"); err == nil || err.Error() != "job default/build has not finished: no status yet: context deadline exceeded" {
			t.Errorf("it is %v", err)
		}
	})
}

// kubelets answers for nodes.
type kubelets struct {
	client.Interface
	has map[string][]string // node to pods
}

func (k *kubelets) Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name, subresource string) (runtime.Object, error) {
	if subresource != "proxy/pods" {
		return k.Interface.Get(ctx, gvr, namespace, name, subresource)
	}
	list := &corev1.PodList{}
	for _, p := range k.has[name] {
		list.Items = append(list.Items, corev1.Pod{ObjectMeta: meta(p)})
	}
	return list, nil
}

func TestPodsOnNodes(t *testing.T) {
	on := func(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.New(t, podOf(nil, "a", on("one")), podOf(nil, "b", on("two")))
		k := &kubelets{s, map[string][]string{"one": {"a"}}}
		look := func(want string) {
			t.Helper()
			if v, err := await.PodsOnNodes(t.Context(), k, "default", "app=web"); err != nil || v.String() != want {
				t.Errorf("%v, %v, want %s", v, err, want)
			}
		}
		look("waiting: node two does not have pod b yet")
		err := await.WaitForPodsOnNodes(t.Context(), k, "default", "app=web")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "node two does not have pod b yet") {
			t.Errorf("it is %v", err)
		}
		k.has["two"] = []string{"b"}
		look("done")
		if err := await.WaitForPodsOnNodes(t.Context(), k, "default", "app=web"); err != nil {
			t.Error(err)
		}
		s.Set(t, podOf(nil, "c", nil))
		look("waiting: pod c is not on a node yet")
		if v, err := await.PodsOnNodes(t.Context(), k, "default", "app=none"); err != nil || v.State != await.Waiting {
			t.Errorf("%v, %v", v, err)
		}
	})
}

func TestControllerHasDesiredReplicas(t *testing.T) {
	rc := controller(3, 0) // ready or not
	s := clienttest.New(t, rc)
	check := func(want bool) {
		t.Helper()
		if got, err := await.ControllerHasDesiredReplicas(t.Context(), s, target(client.ReplicationControllers, "web"))(); err != nil || got != want {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
	}
	check(true)
	rc = controller(3, 3)
	rc.Generation = 2
	s.Set(t, rc)
	check(false)
	rc = controller(3, 3)
	rc.Status.Replicas = 2
	s.Set(t, rc)
	check(false)
	if _, err := await.ControllerHasDesiredReplicas(t.Context(), s, target(client.ReplicationControllers, "none"))(); !apierrors.IsNotFound(err) {
		t.Errorf("%v, want NotFound", err)
	}
}

// TestControllerHasDesiredReplicasInALoop uses the condition as early suites did, with the
// generation of what the caller wrote.
func TestControllerHasDesiredReplicasInALoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.New(t, controller(3, 3))
		written := target(client.ReplicationControllers, "web")
		written.Generation = 2
		condition := await.ControllerHasDesiredReplicas(t.Context(), s, written)
		if err := wait.Poll(time.Second, 10*time.Second, condition); !errors.Is(err, wait.ErrWaitTimeout) {
			t.Errorf("Poll = %v before the server shows the write, want ErrWaitTimeout", err)
		}
		time.AfterFunc(5*time.Second, func() {
			rc := controller(3, 3)
			rc.Generation, rc.Status.ObservedGeneration = 2, 2
			s.Set(t, rc)
		})
		if err := wait.WaitFor(wait.Poller(time.Second, 10*time.Second), condition); err != nil {
			t.Errorf("WaitFor = %v", err)
		}
	})
}
