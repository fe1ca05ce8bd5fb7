package workload_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/controllertest"
)

func deployment(replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Generation: 1},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Strategy: appsv1.DeploymentStrategy{
				Type:          appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: new(intstr.FromInt32(1)), MaxUnavailable: new(intstr.FromInt32(0))},
			},
			ProgressDeadlineSeconds: new(int32(600)), RevisionHistoryLimit: new(int32(2)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "v1"}}},
			},
		},
	}
}

func theDeployment(s *clienttest.Server) *appsv1.Deployment {
	return clienttest.Find(s, client.Deployments, "default", "web")
}

func setImage(t *testing.T, s *clienttest.Server, image string) {
	t.Helper()
	d := theDeployment(s).DeepCopy()
	d.Spec.Template.Spec.Containers[0].Image = image
	if _, err := client.Deployments.Update(t.Context(), s, d, ""); err != nil {
		t.Fatal(err)
	}
}

func TestADeploymentRollsAndCostsNothingAtRest(t *testing.T) {
	controlling(t, func(t *testing.T, s *clienttest.Server) {
		controllertest.ServeAll(t, s)
		st := theDeployment(s).Status
		if st.AvailableReplicas != 3 || st.UpdatedReplicas != 3 || st.ObservedGeneration != 1 {
			t.Errorf("status = %+v", st)
		}
		s.Writes()
		setImage(t, s, "v2")
		controllertest.ServeAll(t, s)
		pods := controllertest.Active(s)
		for _, p := range pods {
			if p.Spec.Containers[0].Image != "v2" {
				t.Errorf("pod %s has image %s", p.Name, p.Spec.Containers[0].Image)
			}
		}
		if len(pods) != 3 {
			t.Errorf("%d pods, want 3", len(pods))
		}
		d := theDeployment(s)
		if d.Annotations["deployment.kubernetes.io/revision"] != "2" || d.Status.AvailableReplicas != 3 || d.Status.Replicas != 3 {
			t.Errorf("annotations %v, status %+v", d.Annotations, d.Status)
		}
		created := 0
		for _, w := range s.Writes() {
			if w.Verb == "create" && w.Resource == "pods" {
				created++
			}
		}
		if created != 3 {
			t.Errorf("%d pods were made for 3", created)
		}
		var asked atomic.Int32
		s.Intercept(func(clienttest.Request) error { asked.Add(1); return nil })
		time.Sleep(24 * time.Hour)
		if asked.Load() != 0 {
			t.Errorf("%d requests on an idle day", asked.Load())
		}
	}, deployment(3))
}

func TestTheDeadlineOfARolloutIsNoticedWithoutAnEvent(t *testing.T) {
	controlling(t, func(t *testing.T, s *clienttest.Server) {
		time.Sleep(599 * time.Second)
		if c := progress(s); c.Reason != "ReplicaSetUpdated" && c.Reason != "NewReplicaSetCreated" {
			t.Errorf("Progressing is %+v before the deadline", c)
		}
		time.Sleep(2 * time.Second)
		if c := progress(s); c.Reason != "ProgressDeadlineExceeded" || c.Status != corev1.ConditionFalse {
			t.Errorf("Progressing is %+v after the deadline", c)
		}
	}, deployment(1))
}

func progress(s *clienttest.Server) appsv1.DeploymentCondition {
	for _, c := range theDeployment(s).Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing {
			return c
		}
	}
	return appsv1.DeploymentCondition{}
}

func TestMinReadySecondsAreWaitedFor(t *testing.T) {
	d := deployment(1)
	d.Spec.MinReadySeconds = 30
	controlling(t, func(t *testing.T, s *clienttest.Server) {
		controllertest.ServeAll(t, s)
		if st := theDeployment(s).Status; st.ReadyReplicas != 1 || st.AvailableReplicas != 0 {
			t.Errorf("status = %+v, want ready and not available", st)
		}
		time.Sleep(31 * time.Second)
		if st := theDeployment(s).Status; st.AvailableReplicas != 1 {
			t.Errorf("status = %+v, want available", st)
		}
	}, d)
}

// TestAForeignSetOfTheSameNameIsAvoided has a ReplicaSet of another template in the way.
func TestAForeignSetOfTheSameNameIsAvoided(t *testing.T) {
	var name string
	controlling(t, func(_ *testing.T, s *clienttest.Server) {
		name = clienttest.All(s, client.ReplicaSets, "default")[0].Name
	}, deployment(0))
	foreign := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Generation: 1},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "other"}}},
		},
	}
	controlling(t, func(t *testing.T, s *clienttest.Server) {
		controllertest.ServeAll(t, s)
		time.Sleep(time.Minute)
		controllertest.ServeAll(t, s)
		st := theDeployment(s).Status
		if st.CollisionCount == nil || *st.CollisionCount != 1 || st.AvailableReplicas != 2 {
			t.Errorf("status = %+v, want 2 available after one collision", st)
		}
	}, deployment(2), foreign)
}

func TestAPodThatIsCertainToFailTakesTheDeploymentBack(t *testing.T) {
	d := deployment(2)
	d.Annotations = map[string]string{"sampan.dev/auto-rollback": "true"}
	controlling(t, func(t *testing.T, s *clienttest.Server) {
		controllertest.ServeAll(t, s)
		setImage(t, s, "V2")
		synctest.Wait()
		for _, p := range controllertest.Active(s) {
			if p.Spec.Containers[0].Image != "V2" {
				continue
			}
			broken := p.DeepCopy()
			broken.Status.Phase = corev1.PodPending
			broken.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "InvalidImageName"},
			}}}
			s.Set(t, broken)
		}
		controllertest.ServeAll(t, s)
		now := theDeployment(s)
		if image := now.Spec.Template.Spec.Containers[0].Image; image != "v1" || now.Generation != 3 {
			t.Errorf("the template has image %s in generation %d, want v1 in 3", image, now.Generation)
		}
		found := slices.ContainsFunc(now.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
			return c.Type == "RolledBack" && c.Status == corev1.ConditionTrue && c.Reason == "PodsFail"
		})
		if !found {
			t.Errorf("conditions = %+v", now.Status.Conditions)
		}
		warned := false
		for _, e := range clienttest.All(s, client.Events, "default") {
			warned = warned || e.Reason == "RolledBack" && e.Type == corev1.EventTypeWarning
		}
		if !warned {
			t.Error("no event tells of the rollback")
		}
	}, d)
}

// TestARolloutEndsTheSameWhateverCrashesWhen kills the controllers after each of their
// writes, starts them again, and wants the same end.
func TestARolloutEndsTheSameWhateverCrashesWhen(t *testing.T) {
	controllertest.CrashAnywhere(
		t, tasks, 30, func() []client.Object { return []client.Object{deployment(3)} },
		func(t *testing.T, s *clienttest.Server) { setImage(t, s, "v2") },
		func(t *testing.T, s *clienttest.Server) {
			st := theDeployment(s).Status
			if st.AvailableReplicas != 3 || st.UpdatedReplicas != 3 || st.Replicas != 3 {
				t.Errorf("status = %+v, want 3 new pods", st)
			}
			if sets := clienttest.All(s, client.ReplicaSets, "default"); len(sets) != 2 {
				t.Errorf("%d sets, want 2", len(sets))
			}
			if pods := controllertest.Active(s); len(pods) != 3 {
				t.Errorf("%d pods, want 3", len(pods))
			}
		},
	)
}
