package nodelifecycle_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/controllertest"
	"github.com/sampan-io/sampan/controller/nodelifecycle"
	"github.com/sampan-io/sampan/internal/leaktest"
	"github.com/sampan-io/sampan/internal/run"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func tasks(c client.Interface, caches *cache.Shared) []run.Task {
	return nodelifecycle.Tasks(nodelifecycle.Options{Config: controllertest.Config(c, caches), FinishedPods: 2})
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name + "-uid")}
}

func pod(name, ip string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: meta(name)}
	p.Labels = map[string]string{"app": "web"}
	p.Spec.NodeName = "n1"
	p.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: ip,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Unix(1000, 0))}},
	}
	return p
}

func node(ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n1"},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastHeartbeatTime: metav1.NewTime(time.Unix(1000, 0))}}},
	}
}

func lease(at time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "n1", UID: "lease"},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: at}},
	}
}

func ready(s *clienttest.Server) corev1.ConditionStatus {
	return clienttest.Find(s, client.Nodes, "", "n1").Status.Conditions[0].Status
}

func taints(s *clienttest.Server) (keys []string) {
	for _, t := range clienttest.Find(s, client.Nodes, "", "n1").Spec.Taints {
		keys = append(keys, fmt.Sprintf("%s:%s", t.Key, t.Effect))
	}
	return keys
}

func TestSilentNodeIsLostAndComesBack(t *testing.T) {
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		for range 30 { // five minutes of renewals
			time.Sleep(10 * time.Second)
			s.Set(t, lease(time.Now().Add(-time.Hour))) // its clock is wrong
		}
		if ready(s) != corev1.ConditionTrue {
			t.Fatal("a node that renews its lease was lost")
		}
		s.Writes()
		time.Sleep(39 * time.Second)
		if w := s.Writes(); len(w) != 0 || ready(s) != corev1.ConditionTrue {
			t.Fatalf("it is %s before its grace is over; writes: %v", ready(s), w)
		}
		time.Sleep(2 * time.Second)
		if ready(s) != corev1.ConditionUnknown {
			t.Fatalf("it is %s when its grace is over", ready(s))
		}
		if want := []string{"node.kubernetes.io/unreachable:NoSchedule", "node.kubernetes.io/unreachable:NoExecute"}; !slices.Equal(taints(s), want) {
			t.Errorf("taints = %v", taints(s))
		}
		p := clienttest.Find(s, client.Pods, "default", "a")
		if p.Status.Conditions[0].Status != corev1.ConditionFalse || p.DeletionTimestamp != nil {
			t.Errorf("its pod is ready=%s, deleted at %v", p.Status.Conditions[0].Status, p.DeletionTimestamp)
		}
		// It comes back after four minutes, before its pods would have to go.
		time.Sleep(4 * time.Minute)
		back := clienttest.Find(s, client.Nodes, "", "n1").DeepCopy()
		back.Status = node(corev1.ConditionTrue).Status
		s.Set(t, back)
		s.Set(t, lease(time.Now()))
		synctest.Wait()
		if len(taints(s)) != 0 {
			t.Errorf("taints = %v after it came back", taints(s))
		}
		for range 60 {
			time.Sleep(10 * time.Second)
			s.Set(t, lease(time.Now()))
		}
		if p := clienttest.Find(s, client.Pods, "default", "a"); p.DeletionTimestamp != nil {
			t.Error("its pod was evicted")
		}
	}, node(corev1.ConditionTrue), lease(time.Unix(0, 0)), pod("a", "10.1.0.1"))
}

func TestPodsAreEvictedFromLostNode(t *testing.T) {
	a := pod("a", "10.1.0.1")
	a.Generation = 3
	stays := pod("stays", "10.1.0.2")
	stays.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		time.Sleep(40*time.Second + 299*time.Second)
		if p := clienttest.Find(s, client.Pods, "default", "a"); p.DeletionTimestamp != nil {
			t.Fatal("the pod was evicted before its time")
		}
		time.Sleep(2 * time.Second)
		p := clienttest.Find(s, client.Pods, "default", "a")
		if p.DeletionTimestamp == nil {
			t.Fatal("the pod was not evicted")
		}
		if !slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.DisruptionTarget && c.Reason == "DeletionByTaintManager" && c.ObservedGeneration == 3
		}) {
			t.Errorf("conditions = %+v", p.Status.Conditions)
		}
		time.Sleep(time.Hour)
		if p := clienttest.Find(s, client.Pods, "default", "stays"); p.DeletionTimestamp != nil {
			t.Error("a pod that tolerates everything was evicted")
		}

		// The node is given up: what is left of its pods goes.
		if err := client.Nodes.Delete(t.Context(), s, "", "n1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		if clienttest.Find(s, client.Pods, "default", "stays") == nil {
			t.Error("the pods of a node went before it could come back")
		}
		time.Sleep(11 * time.Second)
		if n := len(clienttest.All(s, client.Pods, "default")); n != 0 {
			t.Errorf("%d pods are left on a node that is gone", n)
		}
	}, node(corev1.ConditionTrue), a, stays)
}

func TestFinishedPodsAreBounded(t *testing.T) {
	var pods []client.Object
	for i := range 5 {
		p := pod(fmt.Sprint("p", i), "")
		p.CreationTimestamp = metav1.NewTime(time.Unix(int64(1000+i), 0))
		p.Status = corev1.PodStatus{Phase: corev1.PodSucceeded}
		pods = append(pods, p)
	}
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		var left []string
		for _, p := range clienttest.All(s, client.Pods, "default") {
			left = append(left, p.Name)
		}
		if !slices.Equal(left, []string{"p3", "p4"}) {
			t.Errorf("left are %v, want the two youngest", left)
		}
	}, append(pods, node(corev1.ConditionTrue))...)
}

// TestIdleNodeCausesNoRequests checks nodelifecycle-N2.
func TestIdleNodeCausesNoRequests(t *testing.T) {
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		time.Sleep(10 * time.Second) // the node gets its annotation
		var asked atomic.Int32
		s.Intercept(func(r clienttest.Request) error { asked.Add(1); return nil })
		for range 360 { // an hour of renewals
			time.Sleep(10 * time.Second)
			s.Set(t, lease(time.Now()))
		}
		if asked.Load() != 0 {
			t.Errorf("%d requests in an idle hour", asked.Load())
		}
	}, node(corev1.ConditionTrue), lease(time.Unix(0, 0)), pod("a", "10.1.0.1"))
}

func TestNodeSaysHowLongToKeepSecrets(t *testing.T) {
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		annotated := func(want string) {
			t.Helper()
			time.Sleep(10 * time.Second)
			for _, n := range clienttest.All(s, client.Nodes, "") {
				if got := n.Annotations[corev1.ObjectTTLAnnotationKey]; got != want {
					t.Fatalf("the annotation of node %s is %q, want %q", n.Name, got, want)
				}
			}
		}
		annotated("0")
		for i := range 100 {
			more := node(corev1.ConditionTrue)
			more.Name, more.UID = fmt.Sprint("more-", i), types.UID(fmt.Sprint("more-", i))
			s.Set(t, more)
		}
		annotated("15")
	}, node(corev1.ConditionTrue))
}

func TestOutOfServiceNodeLosesItsTerminatingPods(t *testing.T) {
	stuck := pod("stuck", "10.1.0.1")
	stuck.DeletionTimestamp, stuck.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Unix(1000, 0)}, new(int64(30))
	alive := pod("alive", "10.1.0.2")
	alive.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	evicted := pod("evicted", "10.1.0.3")
	off := node(corev1.ConditionFalse)
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		time.Sleep(time.Minute)
		if clienttest.Find(s, client.Pods, "default", "stuck") == nil {
			t.Fatal("a terminating pod of a node that is only not ready is gone")
		}
		away := clienttest.Find(s, client.Nodes, "", "n1").DeepCopy()
		away.Spec.Taints = append(away.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute})
		s.Set(t, away)
		time.Sleep(time.Minute)
		if p := clienttest.Find(s, client.Pods, "default", "stuck"); p != nil {
			t.Errorf("the terminating pod is still there: %+v", p.Status)
		}
		if p := clienttest.Find(s, client.Pods, "default", "evicted"); p != nil {
			t.Errorf("the pod that does not tolerate the taint is still there: %+v", p.Status)
		}
		if clienttest.Find(s, client.Pods, "default", "alive") == nil {
			t.Error("a pod that was not deleted is gone")
		}
	}, off, stuck, alive, evicted)
}

func TestEvictionIsCancelledWithItsTaint(t *testing.T) {
	patient := pod("patient", "10.1.0.1")
	patient.Spec.Tolerations = []corev1.Toleration{{Key: "x", Operator: corev1.TolerationOpExists, TolerationSeconds: new(int64(600))}}
	tainted := node(corev1.ConditionTrue)
	tainted.Spec.Taints = []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoExecute, TimeAdded: &metav1.Time{Time: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)}}}
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		s.Set(t, lease(time.Now()))
		free := clienttest.Find(s, client.Nodes, "", "n1").DeepCopy()
		free.Spec.Taints = nil
		s.Set(t, free)
		time.Sleep(10 * time.Second)
		var messages []string
		for _, e := range clienttest.All(s, client.Events, "default") {
			if e.Reason == "TaintManagerEviction" {
				messages = append(messages, e.Message)
			}
		}
		if !slices.Equal(messages, []string{"Cancelling deletion of Pod default/patient"}) {
			t.Errorf("the events are %q", messages)
		}
		if clienttest.Find(s, client.Pods, "default", "patient") == nil {
			t.Error("the pod is gone")
		}
	}, tainted, patient)
}
