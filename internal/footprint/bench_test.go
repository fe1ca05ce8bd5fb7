package footprint_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/internal/footprint"
)

// BenchmarkOf measures what each write of a pod pays.
func BenchmarkOf(b *testing.B) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", Labels: map[string]string{"app": "web", "tier": "front"}},
		Spec: corev1.PodSpec{
			NodeName:    "n",
			Containers:  []corev1.Container{{Name: "a", Image: "nginx", Env: make([]corev1.EnvVar, 5), VolumeMounts: make([]corev1.VolumeMount, 2)}, {Name: "b"}},
			Volumes:     make([]corev1.Volume, 2),
			Tolerations: make([]corev1.Toleration, 2),
		},
		Status: corev1.PodStatus{Conditions: make([]corev1.PodCondition, 5), ContainerStatuses: make([]corev1.ContainerStatus, 2)},
	}
	b.ReportAllocs()
	for b.Loop() {
		footprint.Of(pod)
	}
}
