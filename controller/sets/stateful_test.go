package sets_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/controllertest"
	"github.com/sampan-io/sampan/controller/sets"
	"github.com/sampan-io/sampan/internal/leaktest"
	"github.com/sampan-io/sampan/internal/run"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// tasks are the controllers under test.
func tasks(c client.Interface, caches *cache.Shared) []run.Task {
	return sets.Tasks(controllertest.Config(c, caches))
}

func controlling(t *testing.T, f func(t *testing.T, s *clienttest.Server), objs ...client.Object) {
	controllertest.Controlling(t, tasks, f, objs...)
}

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
		controllertest.ServeAll(t, s)
		first := theSet(s).Status.CurrentRevision
		for _, image := range []string{"v2", "v3"} {
			setSetImage(t, s, image)
			controllertest.ServeAll(t, s)
		}
		st := theSet(s).Status
		if st.UpdatedReplicas != 2 || st.AvailableReplicas != 2 || st.CurrentRevision != st.UpdateRevision || st.CurrentRevision == first {
			t.Errorf("status = %+v", st)
		}
		if n := len(clienttest.All(s, client.ControllerRevisions, "default")); n != 2 {
			t.Errorf("%d revisions, want the present one and one before it", n)
		}
		setSetImage(t, s, "v2")
		controllertest.ServeAll(t, s)
		for _, p := range controllertest.Active(s) {
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
		controllertest.Rest()
		if n := len(controllertest.Active(s)); n != 1 {
			t.Errorf("%d pods, want the foreign one alone", n)
		}
		s.Remove(t, clienttest.Find(s, client.Pods, "default", "db-0"))
		controllertest.Rest()
		p := clienttest.Find(s, client.Pods, "default", "db-0")
		if p == nil || metav1.GetControllerOf(p) == nil {
			t.Errorf("the pod is not made although its name is free")
		}
	}, statefulSet(1), foreign)
}

// TestClaimsAreMadeOnceWhateverCrashesWhen grows a set with claims, and crashes.
func TestClaimsAreMadeOnceWhateverCrashesWhen(t *testing.T) {
	set := statefulSet(1)
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}, {ObjectMeta: metav1.ObjectMeta{Name: "log"}}}
	controllertest.CrashAnywhere(
		t, tasks, 12, func() []client.Object { return []client.Object{set.DeepCopy()} },
		func(t *testing.T, s *clienttest.Server) {
			larger := theSet(s).DeepCopy()
			*larger.Spec.Replicas = 3
			if _, err := client.StatefulSets.Update(t.Context(), s, larger, ""); err != nil {
				t.Fatal(err)
			}
		},
		func(t *testing.T, s *clienttest.Server) {
			claims := clienttest.All(s, client.PersistentVolumeClaims, "default")
			if len(claims) != 6 || theSet(s).Status.AvailableReplicas != 3 {
				t.Errorf("%d claims, status = %+v, want 6 and 3 available", len(claims), theSet(s).Status)
			}
			for _, c := range claims {
				if len(c.OwnerReferences) != 0 || c.Labels["app"] != "db" {
					t.Errorf("claim %s has owners %v and labels %v", c.Name, c.OwnerReferences, c.Labels)
				}
			}
		},
	)
}

// TestAClaimThatGoesIsWaitedFor deletes a pod whose claim is being deleted.
func TestAClaimThatGoesIsWaitedFor(t *testing.T) {
	set := statefulSet(1)
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
	controlling(t, func(t *testing.T, s *clienttest.Server) {
		controllertest.ServeAll(t, s)
		claim := clienttest.Find(s, client.PersistentVolumeClaims, "default", "data-db-0").DeepCopy()
		claim.DeletionTimestamp, claim.Finalizers = new(metav1.Now()), []string{"kubernetes.io/pvc-protection"}
		s.Set(t, claim)
		controllertest.Rest() // the caches of claims and of pods are two
		s.Remove(t, controllertest.Active(s)[0])
		controllertest.Rest()
		if n := len(controllertest.Active(s)); n != 0 {
			t.Errorf("%d pods are made while their claim goes", n)
		}
		s.Remove(t, clienttest.Find(s, client.PersistentVolumeClaims, "default", "data-db-0"))
		controllertest.Rest()
		if n := len(controllertest.Active(s)); n != 1 {
			t.Errorf("%d pods after the claim is gone, want 1", n)
		}
		events := 0
		for _, e := range clienttest.All(s, client.Events, "default") {
			if e.Reason == "FailedCreate" && e.Message == "create Pod db-0 in StatefulSet db failed error: pvc data-db-0 is being deleted" {
				events++
			}
		}
		if events == 0 {
			t.Error("no event tells for what the pod waits")
		}
	}, set)
}

// TestAStatefulSetEndsTheSameWhateverCrashesWhen kills the controllers after each of
// their writes, starts them again, and wants the same end.
func TestAStatefulSetEndsTheSameWhateverCrashesWhen(t *testing.T) {
	controllertest.CrashAnywhere(
		t, tasks, 20, func() []client.Object { return []client.Object{statefulSet(2)} },
		func(t *testing.T, s *clienttest.Server) { setSetImage(t, s, "v2") },
		func(t *testing.T, s *clienttest.Server) {
			st := theSet(s).Status
			if st.AvailableReplicas != 2 || st.UpdatedReplicas != 2 || st.Replicas != 2 || st.CurrentRevision != st.UpdateRevision {
				t.Errorf("status = %+v, want 2 new pods", st)
			}
			if n := len(clienttest.All(s, client.ControllerRevisions, "default")); n != 2 {
				t.Errorf("%d revisions, want 2", n)
			}
		},
	)
}
