package disruption_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/controllertest"
	"github.com/sampan-io/sampan/controller/disruption"
	"github.com/sampan-io/sampan/internal/leaktest"
	"github.com/sampan-io/sampan/internal/run"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

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
			if err := run.Stages(ctx, disruption.Tasks(controllertest.Config(s, nil))); err != nil {
				t.Errorf("the tasks ended with %v", err)
			}
		})
		defer g.Stop()
		owner := clienttest.Find(s, client.ReplicationControllers, "default", "web")
		status := func(want policyv1.PodDisruptionBudgetStatus) {
			t.Helper()
			controllertest.Rest()
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

// TestPercentagesNeedControllersWithAScale has budgets over the pods of controllers of several kinds. A budget that
// requires the expected number of pods allows no eviction if one of the controllers has no scale.
func TestPercentagesNeedControllersWithAScale(t *testing.T) {
	const unmanaged = "UnmanagedPods"
	controlled := func(kind schema.GroupVersionKind, owner client.Object) []metav1.OwnerReference {
		if owner == nil {
			return nil
		}
		return []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)}
	}
	meta := metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web"}
	rc := &corev1.ReplicationController{ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{Replicas: new(int32(2))}}
	job, daemon := &batchv1.Job{ObjectMeta: meta}, &appsv1.DaemonSet{ObjectMeta: meta}
	tests := []struct {
		name   string
		kind   schema.GroupVersionKind
		owner  client.Object
		gone   bool
		spec   policyv1.PodDisruptionBudgetSpec
		allows int32
		reason string
		says   string // in the condition
		event  string
	}{
		{"scaled, percentage", client.ReplicationControllers.GVK(), rc, false, percent(true, "50%"), 1, policyv1.SufficientPodsReason, "", ""},
		{"scaled and gone", client.ReplicationControllers.GVK(), rc, true, percent(true, "50%"), 0, policyv1.SyncFailedReason, `found no controllers for pod "a"`, "CalculateExpectedPodCountFailed"},
		{"job, percentage", client.Jobs.GVK(), job, false, percent(true, "50%"), 0, policyv1.SyncFailedReason, "jobs.batch does not implement the scale subresource", "CalculateExpectedPodCountFailed"},
		{"job, maxUnavailable", client.Jobs.GVK(), job, false, percent(false, "1"), 0, policyv1.SyncFailedReason, "jobs.batch does not implement the scale subresource", "CalculateExpectedPodCountFailed"},
		{"job, a number", client.Jobs.GVK(), job, false, percent(true, "1"), 1, policyv1.SufficientPodsReason, "", ""},
		{"daemon, percentage", client.DaemonSets.GVK(), daemon, false, percent(false, "50%"), 0, policyv1.SyncFailedReason, "daemonsets.apps does not implement the scale subresource", "CalculateExpectedPodCountFailed"},
		{"daemon, a number", client.DaemonSets.GVK(), daemon, false, percent(true, "1"), 1, policyv1.SufficientPodsReason, "", ""},
		{"foreign", schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Job"}, job, false, percent(true, "50%"), 0, policyv1.SyncFailedReason, `found no controllers for pod "a"`, "CalculateExpectedPodCountFailed"},
		{"bare, percentage", schema.GroupVersionKind{}, nil, false, percent(true, "50%"), 0, policyv1.InsufficientPodsReason, "", unmanaged},
		{"bare, maxUnavailable", schema.GroupVersionKind{}, nil, false, percent(false, "1"), 0, policyv1.InsufficientPodsReason, "", unmanaged},
		{"bare, a number", schema.GroupVersionKind{}, nil, false, percent(true, "1"), 1, policyv1.SufficientPodsReason, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b", Generation: 1}, Spec: tt.spec}
				objs := []client.Object{budget}
				if tt.owner != nil && !tt.gone {
					objs = append(objs, tt.owner)
				}
				for _, name := range []string{"a", "b"} {
					pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, OwnerReferences: controlled(tt.kind, tt.owner)}}
					pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
					objs = append(objs, pod)
				}
				s := clienttest.New(t, objs...)
				g := run.NewGroup(t.Context(), 0)
				defer g.Stop()
				g.Go(func(ctx context.Context) { _ = run.Stages(ctx, disruption.Tasks(controllertest.Config(s, nil))) })
				controllertest.Rest()
				st := clienttest.Find(s, client.PodDisruptionBudgets, "default", "b").Status
				if len(st.Conditions) != 1 || st.DisruptionsAllowed != tt.allows || st.ObservedGeneration != 1 {
					t.Fatalf("status = %+v, want %d allowed", st, tt.allows)
				}
				c := st.Conditions[0]
				if c.Type != policyv1.DisruptionAllowedCondition || c.Reason != tt.reason || c.Message != tt.says || (c.Status == metav1.ConditionTrue) != (tt.allows > 0) {
					t.Errorf("condition = %+v, want %s: %q", c, tt.reason, tt.says)
				}
				reason := ""
				for _, e := range clienttest.All(s, client.Events, "default") {
					reason = e.Reason
				}
				if reason != tt.event {
					t.Errorf("event %q, want %q", reason, tt.event)
				}
			})
		})
	}
}

// percent returns a budget over all pods.
func percent(least bool, v string) policyv1.PodDisruptionBudgetSpec {
	spec, n := policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}}, intstr.Parse(v)
	if least {
		spec.MinAvailable = &n
	} else {
		spec.MaxUnavailable = &n
	}
	return spec
}

func TestPodOfSeveralBudgetsHasEvent(t *testing.T) {
	budget := func(name string) *policyv1.PodDisruptionBudget {
		return &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name[:1]}}},
		}
	}
	tasks := func(c client.Interface, caches *cache.Shared) []run.Task {
		return disruption.Tasks(controllertest.Config(c, caches))
	}
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		for _, app := range []string{"a", "b"} {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod-" + app, UID: "uid", Labels: map[string]string{"app": app}}}
			s.Set(t, pod)
			pod.Status.Phase = corev1.PodRunning
			s.Set(t, pod) // no event for a change that matters to no budget
		}
		controllertest.Rest()
		var messages []string
		for _, e := range clienttest.All(s, client.Events, "default") {
			if e.Reason == "MultiplePodDisruptionBudgets" {
				messages = append(messages, e.InvolvedObject.Name+": "+e.Message)
			}
		}
		want := `pod-a: Pod "default"/"pod-a" matches multiple PodDisruptionBudgets.  Chose "a1" arbitrarily.`
		if len(messages) != 1 || messages[0] != want {
			t.Errorf("the events are %q, want %q", messages, want)
		}
	}, budget("a1"), budget("a2"), budget("b1"))
}
