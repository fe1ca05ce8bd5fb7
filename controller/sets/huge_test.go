package sets

import (
	"math"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/controller/dependents"
)

// TestHugeStatefulSet plans a set of two billion pods, of which there are two, in a bounded size.
func TestHugeStatefulSet(t *testing.T) {
	pods := []*corev1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Name: "web-0"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "web-2000000000"}},
	}
	claims := []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
	for _, tt := range []struct {
		policy          appsv1.PodManagementPolicyType
		claims          []corev1.PersistentVolumeClaim
		create, labeled int
	}{
		{appsv1.ParallelPodManagement, nil, dependents.MaxBurst, 2},
		{appsv1.ParallelPodManagement, claims, dependents.MaxBurst, 2},
		{appsv1.OrderedReadyPodManagement, nil, 0, 1}, // web-0 does not serve yet
	} {
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(math.MaxInt32)), PodManagementPolicy: tt.policy, VolumeClaimTemplates: tt.claims,
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType},
		}}
		none := func(string) (*corev1.PersistentVolumeClaim, bool) { return nil, false }
		v := &statefulView{set: set, pods: pods, now: time.Now(), claims: none}
		plan := v.plan()
		if len(plan.create) != tt.create || len(plan.label) != tt.labeled || len(plan.remove) != 0 {
			t.Errorf("%s: creates %d, labels %d and removes %d pods", tt.policy, len(plan.create), len(plan.label), len(plan.remove))
		}
		if tt.create > 0 && (plan.create[0].ordinal != 1 || plan.create[tt.create-1].ordinal != tt.create) {
			t.Errorf("%s: creates from %d to %d", tt.policy, plan.create[0].ordinal, plan.create[tt.create-1].ordinal)
		}
		v.status()
	}
}
