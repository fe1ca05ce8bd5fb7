package controllertest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/internal/run"
)

// Tasks returns the tasks of controllers that see a cluster through c, and read it from
// caches, which the kit runs.
type Tasks func(c client.Interface, caches *cache.Shared) []run.Task

// Controlling runs controllers on a server of the given objects while f looks at it, in a
// bubble of [synctest].
func Controlling(t *testing.T, tasks Tasks, f func(t *testing.T, s *clienttest.Server), objs ...client.Object) {
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.New(t, objs...)
		Live(t, tasks, s, func() {
			synctest.Wait()
			f(t, s)
		})
	})
}

// Live runs controllers on a server for as long as f takes, which must be in a bubble.
func Live(t *testing.T, tasks Tasks, s *clienttest.Server, f func()) {
	t.Helper()
	caches := cache.NewShared(s, nil)
	all := append(tasks(s, caches), run.Task{Name: "caches", Run: caches.Run, Ready: caches.Ready()})
	g := run.NewGroup(t.Context(), 0)
	defer g.Stop()
	g.Go(func(ctx context.Context) {
		if err := run.Stages(ctx, all); err != nil {
			t.Errorf("the tasks ended with %v", err)
		}
	})
	f()
}

// Rest returns when the controllers are idle, in a bubble. It lets half a second pass: a write that has lost a
// race is answered late, and is tried again after a pause.
func Rest() {
	time.Sleep(500 * time.Millisecond)
	synctest.Wait()
}

// CrashAnywhere lets controllers come to rest, calls begin, kills them after each of their
// next n writes in turn, starts them again, and calls f with what came of it.
func CrashAnywhere(t *testing.T, tasks Tasks, n int, objs func() []client.Object, begin func(t *testing.T, s *clienttest.Server), f func(t *testing.T, s *clienttest.Server)) {
	for writes := range n {
		synctest.Test(t, func(t *testing.T) {
			s := clienttest.New(t, objs()...)
			live := func() { Live(t, tasks, s, func() { ServeAll(t, s) }) }
			live()
			begin(t, s)
			KillAfter(s, writes)
			live()
			s.Intercept(nil)
			live()
			if f(t, s); t.Failed() {
				t.Fatalf("so it is after a crash after write %d", writes)
			}
		})
	}
}

// KillAfter lets n writes through and then nothing at all, as if the program had been
// killed. Events do not count.
func KillAfter(s *clienttest.Server, n int) {
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

// Become sets the phase and readiness of a pod.
func Become(t *testing.T, s *clienttest.Server, pod *corev1.Pod, phase corev1.PodPhase, ready bool) {
	t.Helper()
	pod = clienttest.Find(s, client.Pods, pod.Namespace, pod.Name).DeepCopy()
	pod.Status.Phase = phase
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Now()}}
	s.Set(t, pod)
}

// Active returns the pods in namespace default that are not to be deleted.
func Active(s *clienttest.Server) (pods []*corev1.Pod) {
	for _, p := range clienttest.All(s, client.Pods, "default") {
		if p.DeletionTimestamp == nil {
			pods = append(pods, p)
		}
	}
	return pods
}

// ServeAll lets all pods serve and all that is to go be gone, until nothing happens any
// more.
func ServeAll(t *testing.T, s *clienttest.Server) {
	t.Helper()
	for range 100 {
		Rest()
		different := false
		for _, p := range clienttest.All(s, client.Pods, "default") {
			switch {
			case p.DeletionTimestamp != nil:
				s.Remove(t, p)
			case p.Status.Phase != corev1.PodRunning:
				Become(t, s, p, corev1.PodRunning, true)
			default:
				continue
			}
			different = true
		}
		if !different {
			return
		}
	}
	t.Fatal("it does not come to rest")
}
