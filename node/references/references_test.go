package references

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/growthtest"
)

// naming returns a pod whose container names so many ConfigMaps and Secrets.
func naming(n int) *corev1.Pod {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	for i := range n {
		from := corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: fmt.Sprint("m", i)}}}
		if i%2 == 1 {
			from = corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: fmt.Sprint("s", i)}}}
		}
		pod.Spec.Containers[0].EnvFrom = append(pod.Spec.Containers[0].EnvFrom, from, from)
	}
	return pod
}

func TestReferencesOfOnePodAreBounded(t *testing.T) {
	if r := TooMany(naming(mostReferences)); r != nil {
		t.Errorf("as many as there may be: %v", r)
	}
	want := "spec: the pod names 1001 ConfigMaps and Secrets, which are more than a node watches for one pod, want at most 1000"
	if r := TooMany(naming(mostReferences + 1)); r == nil || r.Message != want {
		t.Errorf("one more: %v, want %s", r, want)
	}
}

func TestReferencesCostIsLinear(t *testing.T) {
	growthtest.Linear(t, 4000, func(n int) func() {
		pod := naming(n)
		return func() { TooMany(pod) }
	})
}
