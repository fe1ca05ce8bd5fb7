package podspec

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Each of these would be billions of comparisons, and sentences.
func TestManyPathsHaveFewWarnings(t *testing.T) {
	const many = 90_000
	items := func(n int) []corev1.KeyToPath {
		all := make([]corev1.KeyToPath, n)
		for i := range all {
			all[i] = corev1.KeyToPath{Key: fmt.Sprint(i), Path: "same"}
		}
		return all
	}
	secret := func(n int) *corev1.PodSpec {
		s := corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s", Items: items(n)}}
		return &corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: s}}}
	}
	ports := func(n int) *corev1.PodSpec {
		c := corev1.Container{Name: "c", Ports: make([]corev1.ContainerPort, n)}
		for i := range c.Ports {
			c.Ports[i] = corev1.ContainerPort{ContainerPort: 80, Protocol: corev1.ProtocolTCP}
		}
		return &corev1.PodSpec{Containers: []corev1.Container{c}}
	}
	for name, c := range map[string]struct {
		spec *corev1.PodSpec
		want int
	}{
		"too many paths": {secret(many), 0},
		"many paths":     {secret(mostCompared), mostWarnings},
		"three paths":    {secret(3), 3},
		"too many ports": {ports(many), 0},
		"many ports":     {ports(mostCompared), mostWarnings},
		"three ports":    {ports(3), 3},
	} {
		if got := Warnings("Pod", "p", &metav1.ObjectMeta{}, c.spec, nil); len(got) != c.want {
			t.Errorf("%s: got %d warnings, want %d", name, len(got), c.want)
		}
	}
}
