package workload_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/workload"
	"github.com/sampan-io/sampan/internal/run"
)

func statefulSet(replicas int32) *appsv1.StatefulSet {
	labels := map[string]string{"app": "db"}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db", Generation: 1},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, ServiceName: "db",
			UpdateStrategy:       appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType},
			RevisionHistoryLimit: new(int32(1)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "v1"}}},
			},
		},
	}
}

func theSet(s *clienttest.Server) *appsv1.StatefulSet {
	return clienttest.Find(s, client.StatefulSets, "default", "db")
}

func setSetImage(t *testing.T, s *clienttest.Server, image string) {
	t.Helper()
	set := theSet(s).DeepCopy()
	set.Spec.Template.Spec.Containers[0].Image = image
	if _, err := client.StatefulSets.Update(t.Context(), s, set, ""); err != nil {
		t.Fatal(err)
	}
}

func TestAStatefulSetKeepsItsHistory(t *testing.T) {
	controlling(t, func(t *testing.T, s *clienttest.Server) {
		serveAll(t, s)
		first := theSet(s).Status.CurrentRevision
		for _, image := range []string{"v2", "v3"} {
			setSetImage(t, s, image)
			serveAll(t, s)
		}
		st := theSet(s).Status
		if st.UpdatedReplicas != 2 || st.AvailableReplicas != 2 || st.CurrentRevision != st.UpdateRevision || st.CurrentRevision == first {
			t.Errorf("status = %+v", st)
		}
		if n := len(clienttest.All(s, client.ControllerRevisions, "default")); n != 2 {
			t.Errorf("%d revisions, want the present one and one before it", n)
		}
		setSetImage(t, s, "v2")
		serveAll(t, s)
		for _, p := range active(s) {
			if p.Spec.Containers[0].Image != "v2" {
				t.Errorf("pod %s has image %s", p.Name, p.Spec.Containers[0].Image)
			}
		}
		last := int64(0)
		for _, r := range clienttest.All(s, client.ControllerRevisions, "default") {
			last = max(last, r.Revision)
		}
		if last != 4 {
			t.Errorf("the last revision is %d, want 4", last)
		}
		s.Writes()
		time.Sleep(24 * time.Hour)
		if w := s.Writes(); len(w) != 0 {
			t.Errorf("%v on an idle day", w)
		}
	}, statefulSet(2))
}

func TestAPodThatIsInTheWayIsWaitedFor(t *testing.T) {
	foreign := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db-0", Labels: map[string]string{"app": "other"}}}
	controlling(t, func(t *testing.T, s *clienttest.Server) {
		synctest.Wait()
		if n := len(active(s)); n != 1 {
			t.Errorf("%d pods, want the foreign one alone", n)
		}
		s.Remove(t, clienttest.Find(s, client.Pods, "default", "db-0"))
		synctest.Wait()
		p := clienttest.Find(s, client.Pods, "default", "db-0")
		if p == nil || metav1.GetControllerOf(p) == nil {
			t.Errorf("the pod is not made although its name is free")
		}
	}, statefulSet(1), foreign)
}

// TestAStatefulSetEndsTheSameWhateverCrashesWhen kills the controllers after each of
// their writes, starts them again, and wants the same end.
func TestAStatefulSetEndsTheSameWhateverCrashesWhen(t *testing.T) {
	for n := range 20 {
		synctest.Test(t, func(t *testing.T) {
			s := clienttest.New(t, statefulSet(2))
			live := func() {
				g := run.NewGroup(t.Context(), 0)
				defer g.Stop()
				g.Go(func(ctx context.Context) { _ = run.Stages(ctx, workload.Tasks(workload.Options{Client: s})) })
				serveAll(t, s)
			}
			live()
			setSetImage(t, s, "v2")
			killAfter(s, n)
			live()
			s.Intercept(nil)
			live()
			st := theSet(s).Status
			if st.AvailableReplicas != 2 || st.UpdatedReplicas != 2 || st.Replicas != 2 || st.CurrentRevision != st.UpdateRevision {
				t.Errorf("after write %d: status = %+v, want 2 new pods", n, st)
			}
			if n := len(clienttest.All(s, client.ControllerRevisions, "default")); n != 2 {
				t.Errorf("%d revisions, want 2", n)
			}
		})
	}
}
