package sets_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/controllertest"
)

func daemonSet() *appsv1.DaemonSet {
	labels := map[string]string{"app": "agent"}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent", Generation: 1},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{
				Type:          appsv1.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: new(intstr.FromInt32(1)), MaxSurge: new(intstr.FromInt32(0))},
			},
			RevisionHistoryLimit: new(int32(1)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "v1"}}},
			},
		},
	}
}

func node(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}}}
}

func theDaemonSet(s *clienttest.Server) *appsv1.DaemonSet {
	return clienttest.Find(s, client.DaemonSets, "default", "agent")
}

func TestADaemonSetFollowsTheNodes(t *testing.T) {
	controlling(t, func(t *testing.T, s *clienttest.Server) {
		controllertest.ServeAll(t, s)
		if st := theDaemonSet(s).Status; st.DesiredNumberScheduled != 2 || st.NumberAvailable != 2 || st.UpdatedNumberScheduled != 2 {
			t.Errorf("status = %+v", st)
		}
		s.Set(t, node("c"))
		controllertest.ServeAll(t, s)
		if st := theDaemonSet(s).Status; st.NumberAvailable != 3 {
			t.Errorf("status = %+v after a third node came", st)
		}
		for _, image := range []string{"v2", "v3"} {
			set := theDaemonSet(s).DeepCopy()
			set.Spec.Template.Spec.Containers[0].Image = image
			if _, err := client.DaemonSets.Update(t.Context(), s, set, ""); err != nil {
				t.Fatal(err)
			}
			controllertest.ServeAll(t, s)
		}
		if st := theDaemonSet(s).Status; st.NumberAvailable != 3 || st.UpdatedNumberScheduled != 3 {
			t.Errorf("status = %+v after two updates", st)
		}
		if n := len(clienttest.All(s, client.ControllerRevisions, "default")); n != 2 {
			t.Errorf("%d revisions, want 2", n)
		}
		s.Writes()
		alive := clienttest.Find(s, client.Nodes, "", "a").DeepCopy()
		alive.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: metav1.Now()}}
		s.Set(t, alive)
		time.Sleep(24 * time.Hour)
		if w := s.Writes(); len(w) != 0 {
			t.Errorf("%v on an idle day", w)
		}
	}, daemonSet(), node("a"), node("b"))
}

func TestANodeWhosePodsFailIsSpared(t *testing.T) {
	controlling(t, func(t *testing.T, s *clienttest.Server) {
		made := 0
		for range 8 {
			controllertest.Rest()
			for _, p := range controllertest.Active(s) {
				if p.Status.Phase != corev1.PodFailed {
					made++
					controllertest.Become(t, s, p, corev1.PodFailed, false)
				}
			}
			controllertest.Rest()
			for _, p := range clienttest.All(s, client.Pods, "default") {
				if p.DeletionTimestamp != nil {
					s.Remove(t, p)
				}
			}
			time.Sleep(time.Second)
		}
		if made < 3 || made > 5 {
			t.Errorf("%d pods were made in 8 s on a node where each fails at once, want 3 to 5", made)
		}
	}, daemonSet(), node("a"))
}
