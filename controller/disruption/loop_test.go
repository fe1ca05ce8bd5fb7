package disruption_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/disruption"
	"github.com/sampan-io/sampan/internal/run"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestABudgetFollowsItsPods(t *testing.T) {
	app := map[string]string{"app": "web"}
	rc := &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web"}}
	rc.Spec.Replicas = new(int32(3))
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Generation: 1},
		Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: app}},
	}
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.New(t, rc, budget)
		g := run.NewGroup(t.Context(), 0)
		g.Go(func(ctx context.Context) {
			if err := run.Stages(ctx, disruption.Tasks(disruption.Options{Client: s})); err != nil {
				t.Errorf("the tasks ended with %v", err)
			}
		})
		defer g.Stop()
		owner := clienttest.Find(s, client.ReplicationControllers, "default", "web")
		status := func(want policyv1.PodDisruptionBudgetStatus) {
			t.Helper()
			synctest.Wait()
			st := clienttest.Find(s, client.PodDisruptionBudgets, "default", "web").Status
			st.Conditions, st.ObservedGeneration = nil, 0
			if st.ExpectedPods != want.ExpectedPods || st.CurrentHealthy != want.CurrentHealthy || st.DisruptionsAllowed != want.DisruptionsAllowed {
				t.Errorf("status = %+v, want %+v", st, want)
			}
		}
		status(policyv1.PodDisruptionBudgetStatus{})
		for _, name := range []string{"a", "b", "c"} {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: name, Labels: app,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, client.ReplicationControllers.GVK())},
			}}
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			s.Set(t, pod)
		}
		status(policyv1.PodDisruptionBudgetStatus{ExpectedPods: 3, CurrentHealthy: 3, DisruptionsAllowed: 1})
		more := owner.DeepCopy()
		more.Spec.Replicas = new(int32(5))
		s.Set(t, more)
		status(policyv1.PodDisruptionBudgetStatus{ExpectedPods: 5, CurrentHealthy: 3})
		s.Remove(t, clienttest.Find(s, client.Pods, "default", "a"))
		status(policyv1.PodDisruptionBudgetStatus{ExpectedPods: 5, CurrentHealthy: 2})

		var asked atomic.Int32
		s.Intercept(func(clienttest.Request) error { asked.Add(1); return nil })
		time.Sleep(24 * time.Hour)
		if asked.Load() != 0 {
			t.Errorf("%d requests on an idle day", asked.Load())
		}
	})
}
