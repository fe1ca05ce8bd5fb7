package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/internal/run"
)

var (
	podsGVR    = corev1.SchemeGroupVersion.WithResource("pods")
	budgetsGVR = policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")
)

// A quay has pods and budgets whose status the test writes.
type quay struct {
	*testing.T
	boss *apiserver.Local
}

func (q *quay) pod(name string, phase corev1.PodPhase, ready bool) {
	q.Helper()
	p := pod(name)
	p.Labels = map[string]string{"app": "web"}
	p.Spec.NodeName = "n1"
	made, err := q.boss.Create(q.Context(), podsGVR, "default", "", p, metav1.CreateOptions{}, "")
	if err != nil {
		q.Fatal(err)
	}
	p = made.(*corev1.Pod).DeepCopy()
	p.Status.Phase = phase
	if ready {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	if _, err := q.boss.Update(q.Context(), podsGVR, "default", name, p, metav1.UpdateOptions{}, "status"); err != nil {
		q.Fatal(err)
	}
}

func (q *quay) budget(name string, always bool, status policyv1.PodDisruptionBudgetStatus) {
	q.Helper()
	least := intstr.FromInt32(1)
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &least, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
	if always {
		b.Spec.UnhealthyPodEvictionPolicy = new(policyv1.AlwaysAllow)
	}
	made, err := q.boss.Create(q.Context(), budgetsGVR, "default", "", b, metav1.CreateOptions{}, "")
	if err != nil {
		q.Fatal(err)
	}
	b = made.(*policyv1.PodDisruptionBudget).DeepCopy()
	b.Status = status
	if _, err := q.boss.Update(q.Context(), budgetsGVR, "default", name, b, metav1.UpdateOptions{}, "status"); err != nil {
		q.Fatal(err)
	}
}

func (q *quay) evict(name string, e *policyv1.Eviction) error {
	_, err := q.boss.Create(q.Context(), podsGVR, "default", name, e, metav1.CreateOptions{}, "eviction")
	return err
}

func (q *quay) deleted(name string) bool {
	q.Helper()
	obj, err := q.boss.Get(q.Context(), podsGVR, "default", name, "")
	if apierrors.IsNotFound(err) {
		return true
	}
	if err != nil {
		q.Fatal(err)
	}
	return obj.(*corev1.Pod).DeletionTimestamp != nil
}

func TestEvictions(t *testing.T) {
	observed := func(allowed, healthy, desired int32) policyv1.PodDisruptionBudgetStatus {
		return policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DisruptionsAllowed: allowed, CurrentHealthy: healthy, DesiredHealthy: desired}
	}
	one := []policyv1.PodDisruptionBudgetStatus{observed(1, 2, 1)}
	none := []policyv1.PodDisruptionBudgetStatus{observed(0, 1, 1)}
	dry := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "web"}, DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}}
	tests := []struct {
		name     string
		phase    corev1.PodPhase
		ready    bool
		budgets  []policyv1.PodDisruptionBudgetStatus
		always   bool
		eviction *policyv1.Eviction
		refuse   string // in the error; empty: it is evicted
		stays    bool   // though nothing is refused
		spent    bool
	}{
		{name: "without a budget", phase: corev1.PodRunning, ready: true},
		{name: "with room", phase: corev1.PodRunning, ready: true, budgets: one, spent: true},
		{name: "as a trial", phase: corev1.PodRunning, ready: true, budgets: one, eviction: dry, stays: true},
		{name: "without room", phase: corev1.PodRunning, ready: true, budgets: none, refuse: "needs 1 healthy pods and has 1 currently"},
		{name: "without room as a trial", phase: corev1.PodRunning, ready: true, budgets: none, eviction: dry, refuse: "needs 1 healthy pods"},
		{name: "not looked at yet", phase: corev1.PodRunning, ready: true, budgets: []policyv1.PodDisruptionBudgetStatus{{}}, refuse: "is still being processed by the server"},
		{name: "with two budgets", phase: corev1.PodRunning, ready: true, budgets: append(one, one...), refuse: "more than one PodDisruptionBudget"},
		{name: "that has not started", phase: corev1.PodPending, budgets: none},
		{name: "that has ended", phase: corev1.PodFailed, budgets: none},
		{name: "that does not serve and is not missed", phase: corev1.PodRunning, budgets: none},
		{name: "that does not serve and is missed", phase: corev1.PodRunning, budgets: []policyv1.PodDisruptionBudgetStatus{observed(0, 0, 1)}, refuse: "needs 1 healthy pods and has 0"},
		{name: "that does not serve and may always go", phase: corev1.PodRunning, budgets: []policyv1.PodDisruptionBudgetStatus{observed(0, 0, 1)}, always: true},
		{name: "of another name", phase: corev1.PodRunning, eviction: &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, refuse: "name in URL does not match"},
		{name: "of another pod of that name", phase: corev1.PodRunning, eviction: &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "web"}, DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("x")}}, refuse: "UID in the precondition"},
		{name: "with wrong options", phase: corev1.PodRunning, eviction: &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "web"}, DeleteOptions: &metav1.DeleteOptions{DryRun: []string{"some"}}}, refuse: "dryRun"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := apiservertest.Open(t, nil)
			q := &quay{t, s.As(auth.User{Name: "boss", Groups: []string{"system:masters"}})}
			q.pod("web", tt.phase, tt.ready)
			for i, st := range tt.budgets {
				q.budget(string(rune('a'+i)), tt.always, st)
			}
			e := tt.eviction
			if e == nil {
				e = &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
			}
			err := q.evict("web", e)
			switch {
			case tt.refuse == "" && err != nil:
				t.Fatalf("evict = %v", err)
			case tt.refuse != "" && (err == nil || !strings.Contains(describe(err), tt.refuse)):
				t.Fatalf("evict = %v, want %q in it", describe(err), tt.refuse)
			}
			if gone := q.deleted("web"); gone != (tt.refuse == "" && !tt.stays) {
				t.Errorf("the pod is deleted: %v", gone)
			}
			if len(tt.budgets) != 1 {
				return
			}
			obj, err := q.boss.Get(t.Context(), budgetsGVR, "default", "a", "")
			if err != nil {
				t.Fatal(err)
			}
			st := obj.(*policyv1.PodDisruptionBudget).Status
			if _, noted := st.DisruptedPods["web"]; noted != tt.spent || tt.spent && st.DisruptionsAllowed != 0 {
				t.Errorf("status = %+v, spent want %v", st, tt.spent)
			}
		})
	}
}

// describe returns an error with its causes, by which clients tell apart a budget and a busy
// server.
func describe(err error) string {
	text := ""
	if err != nil {
		text = err.Error()
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, c := range status.Status().Details.Causes {
			text += " " + string(c.Type) + ": " + c.Message
		}
	}
	return text
}

func TestAnEvictedPodSaysWhyItEnds(t *testing.T) {
	s := apiservertest.Open(t, nil)
	q := &quay{t, s.As(auth.User{Name: "boss", Groups: []string{"system:masters"}})}
	q.pod("web", corev1.PodRunning, true)
	if err := q.evict("web", &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "web"}}); err != nil {
		t.Fatal(err)
	}
	obj, err := q.boss.Get(t.Context(), podsGVR, "default", "web", "")
	if err != nil {
		t.Fatal(err)
	}
	c := obj.(*corev1.Pod).Status.Conditions
	if last := c[len(c)-1]; last.Type != corev1.DisruptionTarget || last.Reason != "EvictionByEvictionAPI" {
		t.Errorf("conditions = %+v", c)
	}
	err = q.evict("none", &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "none"}})
	if !apierrors.IsNotFound(err) {
		t.Errorf("evicting what is not there = %v", err)
	}
	if _, err := q.boss.Create(t.Context(), podsGVR, "default", "web", pod("x"), metav1.CreateOptions{}, "eviction"); !apierrors.IsBadRequest(err) {
		t.Errorf("evicting with a pod as the body = %v", err)
	}
}

// TestABudgetIsNotSpentTwice has many evict different pods at once where there is room for
// two.
func TestABudgetIsNotSpentTwice(t *testing.T) {
	s := apiservertest.Open(t, nil)
	q := &quay{t, s.As(auth.User{Name: "boss", Groups: []string{"system:masters"}})}
	const pods = 12
	for i := range pods {
		q.pod(fmt.Sprint("web-", i), corev1.PodRunning, true)
	}
	q.budget("a", false, policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DisruptionsAllowed: 2, CurrentHealthy: pods, DesiredHealthy: pods - 2})
	var granted, refused atomic.Int32
	g := run.NewGroup(t.Context(), 0)
	for i := range pods {
		g.Go(func(context.Context) {
			switch err := q.evict(fmt.Sprint("web-", i), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("web-", i)}}); {
			case err == nil:
				granted.Add(1)
			case apierrors.IsTooManyRequests(err):
				refused.Add(1)
			default:
				t.Errorf("evict = %v", err)
			}
		})
	}
	g.Wait()
	g.Stop()
	if granted.Load() != 2 || refused.Load() != pods-2 {
		t.Errorf("%d granted, %d refused, want 2 and %d", granted.Load(), refused.Load(), pods-2)
	}
}

// Clients of before 1.22 write their evictions in the version of that time.
func TestEvictionMayBeV1beta1(t *testing.T) {
	f := serve(t)
	f.create("/api/v1/namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	f.create(pods, pod("p"))
	for version, code := range map[string]int{"policy/v1beta2": 400, "policy/v1beta1": 201} {
		body := map[string]any{"apiVersion": version, "kind": "Eviction", "metadata": map[string]any{"name": "p", "namespace": "default"}}
		if a := f.do("POST", pods+"/p/eviction", body); a.code != code {
			t.Errorf("%s: %d %s, want %d", version, a.code, a.body, code)
		}
	}
	f.refused(f.do("GET", pods+"/p", nil), 404, metav1.StatusReasonNotFound, "")
}
