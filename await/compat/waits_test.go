package compat_test

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/await/compat"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/wait"
)

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}
}

// podOf returns a pending pod with the label app=web.
func podOf(name string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: meta(name)}
	p.Labels = map[string]string{"app": "web"}
	p.Status.Phase = corev1.PodPending
	if change != nil {
		change(p)
	}
	return p
}

// controller returns a ReplicationController with 3 replicas, none of which is ready.
func controller() *corev1.ReplicationController {
	return &corev1.ReplicationController{
		ObjectMeta: meta("web"),
		Spec:       corev1.ReplicationControllerSpec{Replicas: new(int32(3)), Selector: map[string]string{"app": "web"}},
		Status:     corev1.ReplicationControllerStatus{Replicas: 3, ObservedGeneration: 1},
	}
}

func target(name string) await.Target {
	r := client.ReplicationControllers
	return await.Target{Resource: r.GroupVersionResource, Kind: r.Kind, Namespace: "default", Name: name}
}

func podOfJob(name string, phase corev1.PodPhase) *corev1.Pod {
	return podOf(name, func(p *corev1.Pod) {
		p.Labels = map[string]string{batchv1.JobNameLabel: "build"}
		p.Status.Phase = phase
	})
}

func TestWaitForJobPodsRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.New(t, podOfJob("a", corev1.PodRunning), podOfJob("b", corev1.PodPending), podOf("other", func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }))
		if err := compat.WaitForJobPodsRunning(t.Context(), s, "default", "build", 1); err != nil {
			t.Error(err)
		}
		time.AfterFunc(time.Minute, func() {
			s.BreakWatches(&client.UnreachableError{Server: "here", Err: errors.New("down")})
			s.Set(t, podOfJob("b", corev1.PodRunning))
		})
		if err := compat.WaitForJobPodsRunning(t.Context(), s, "default", "build", 2); err != nil {
			t.Error(err)
		}
		// Exactly so many: a third is one too many, until another has ended.
		s.Set(t, podOfJob("c", corev1.PodRunning))
		time.AfterFunc(time.Minute, func() { s.Remove(t, podOfJob("a", "")) })
		if err := compat.WaitForJobPodsRunning(t.Context(), s, "default", "build", 2); err != nil {
			t.Error(err)
		}
		began := time.Now()
		err := compat.WaitForJobPodsRunning(t.Context(), s, "default", "build", 5)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 15*time.Minute || !strings.Contains(err.Error(), "pods of job default/build: 2 are Running, 5 are expected") {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		s.Intercept(func(clienttest.Request) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))
		})
		if err := compat.WaitForJobPodsRunning(t.Context(), s, "default", "build", 5); !apierrors.IsForbidden(err) {
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
					err := compat.WaitForJobPodsInPhase(t.Context(), s, "default", "build", 3, tt.phase)
					if err == nil || err.Error() != tt.error || time.Since(began) != took {
						t.Errorf("after %v: %v, want %s after %v", time.Since(began), err, tt.error, took)
					}
					if errors.As(err, new(*compat.JobFailedError)) != tt.failed {
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
		if err := compat.WaitForJobPodsInPhase(t.Context(), s, "default", "build", 2, corev1.PodFailed); err != nil || time.Since(began) != 2*time.Minute {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if err := compat.WaitForJobPodsRunning(t.Context(), s, "default", "build", 0); err != nil {
			t.Error(err)
		}
	})
}

func TestWaitForJobPodsChecksThePhase(t *testing.T) {
	err := compat.WaitForJobPodsInPhase(t.Context(), clienttest.New(t), "default", "build", 1, "running")
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
		if err := compat.WaitForJobPodsRunning(t.Context(), s, "default", "build", 1); err != nil {
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
		if v, err := compat.WaitForJobFinish(t.Context(), s, "default", "build"); err != nil || v.State != await.Done {
			t.Errorf("%v, %v", v, err)
		}
		if err := compat.WaitForJobComplete(t.Context(), s, "default", "build"); err != nil {
			t.Error(err)
		}
		s.Set(t, job(batchv1.JobCondition{Type: batchv1.JobFailed, Status: "True", Reason: "BackoffLimitExceeded", Message: "too often"}))
		if v, err := compat.WaitForJobFinish(t.Context(), s, "default", "build"); err != nil || v.State != await.Failed {
			t.Errorf("%v, %v", v, err)
		}
		err := compat.WaitForJobComplete(t.Context(), s, "default", "build")
		var failed *compat.JobFailedError
		if !errors.As(err, &failed) || err.Error() != "job default/build failed: BackoffLimitExceeded: too often" {
			t.Errorf("it is %v", err)
		}
		if _, err := compat.WaitForJobFinish(t.Context(), s, "default", "nothing"); !apierrors.IsNotFound(err) {
			t.Errorf("%v, want NotFound", err)
		}
		s.Set(t, job())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := compat.WaitForJobFinish(ctx, s, "default", "build"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want DeadlineExceeded", err)
		}
		over, cancel := context.WithDeadline(t.Context(), time.Now())
		defer cancel()
		if _, err := compat.WaitForJobFinish(over, s, "default", "build"); err == nil || err.Error() != "job default/build has not finished: no status yet: context deadline exceeded" {
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
		s := clienttest.New(t, podOf("a", on("one")), podOf("b", on("two")))
		k := &kubelets{s, map[string][]string{"one": {"a"}}}
		look := func(want string) {
			t.Helper()
			if v, err := compat.PodsOnNodes(t.Context(), k, "default", "app=web"); err != nil || v.String() != want {
				t.Errorf("%v, %v, want %s", v, err, want)
			}
		}
		look("waiting: node two does not have pod b yet")
		err := compat.WaitForPodsOnNodes(t.Context(), k, "default", "app=web")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "node two does not have pod b yet") {
			t.Errorf("it is %v", err)
		}
		k.has["two"] = []string{"b"}
		look("done")
		if err := compat.WaitForPodsOnNodes(t.Context(), k, "default", "app=web"); err != nil {
			t.Error(err)
		}
		s.Set(t, podOf("c", nil))
		look("waiting: pod c is not on a node yet")
		if v, err := compat.PodsOnNodes(t.Context(), k, "default", "app=none"); err != nil || v.State != await.Waiting {
			t.Errorf("%v, %v", v, err)
		}
	})
}

func TestControllerHasDesiredReplicas(t *testing.T) {
	rc := controller() // ready or not
	s := clienttest.New(t, rc)
	check := func(want bool) {
		t.Helper()
		if got, err := compat.ControllerHasDesiredReplicas(t.Context(), s, target("web"))(); err != nil || got != want {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
	}
	check(true)
	rc = controller()
	rc.Generation = 2
	s.Set(t, rc)
	check(false)
	rc = controller()
	rc.Status.Replicas = 2
	s.Set(t, rc)
	check(false)
	if _, err := compat.ControllerHasDesiredReplicas(t.Context(), s, target("none"))(); !apierrors.IsNotFound(err) {
		t.Errorf("%v, want NotFound", err)
	}
}

// TestControllerHasDesiredReplicasInALoop uses the condition as early suites did, with the
// generation of what the caller wrote.
func TestControllerHasDesiredReplicasInALoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.New(t, controller())
		written := target("web")
		written.Generation = 2
		condition := compat.ControllerHasDesiredReplicas(t.Context(), s, written)
		if err := wait.Poll(time.Second, 10*time.Second, condition); !errors.Is(err, wait.ErrWaitTimeout) {
			t.Errorf("Poll = %v before the server shows the write, want ErrWaitTimeout", err)
		}
		time.AfterFunc(5*time.Second, func() {
			rc := controller()
			rc.Generation, rc.Status.ObservedGeneration = 2, 2
			s.Set(t, rc)
		})
		if err := wait.WaitFor(wait.Poller(time.Second, 10*time.Second), condition); err != nil {
			t.Errorf("WaitFor = %v", err)
		}
	})
}

// TestTheCauseAtTheDeadline has pods of each state; the error names the worst.
func TestTheCauseAtTheDeadline(t *testing.T) {
	waits := func(reason string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
		}
	}
	on := func(phase corev1.PodPhase, change ...func(*corev1.Pod)) *corev1.Pod {
		p := podOfJob("a", phase)
		for _, c := range change {
			c(p)
		}
		return p
	}
	node := func(p *corev1.Pod) { p.Spec.NodeName = "one" }
	gone := func(p *corev1.Pod) {
		p.DeletionTimestamp, p.Finalizers = new(metav1.Now()), []string{"example.com/keep"}
	}
	for name, tt := range map[string]struct {
		pod   *corev1.Pod
		cause string
	}{
		"no node":               {on(corev1.PodPending), "; pod a: not yet on a node: no scheduler has decided about it yet"},
		"starting":              {on(corev1.PodPending, node), "; pod a: starting on node one"},
		"being deleted":         {on(corev1.PodPending, node, gone), "; pod a: starting on node one"},
		"no image":              {on(corev1.PodPending, node, waits("ErrImagePull")), "; pod a: container main: ErrImagePull"},
		"runs":                  {on(corev1.PodRunning, node), ""},
		"runs, one that starts": {on(corev1.PodRunning, node, waits("ContainerCreating")), ""},
		"crashes":               {on(corev1.PodRunning, node, waits("CrashLoopBackOff")), "; pod a: container main: CrashLoopBackOff"},
		"failed":                {on(corev1.PodFailed, node), "; pod a: starting on node one"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				phase := corev1.PodSucceeded
				s := clienttest.New(t, tt.pod)
				err := compat.WaitForJobPodsInPhase(t.Context(), s, "default", "build", 2, phase)
				want := "pods of job default/build: 0 are Succeeded, 2 are expected" + tt.cause + ": context deadline exceeded"
				if err == nil || err.Error() != want {
					t.Errorf("%v, want %s", err, want)
				}
			})
		})
	}
}
