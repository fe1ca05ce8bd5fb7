package nodes_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
)

// TestPodWithTooManyContainersFails rejects one pod, as the agent of a real node does, and runs the others.
func TestPodWithTooManyContainersFails(t *testing.T) {
	inBubble(t, "", func(r *rig) {
		r.create(newPod("large", "n-0", func(p *corev1.Pod) {
			for i := range 1500 {
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprint("x", i), Image: "demo:v1"})
			}
		}))
		r.create(newPod("small", "n-0"))
		synctest.Wait()
		const want = "Pod was rejected: spec.containers, spec.initContainers: 1501 containers are more than a node runs in one pod, want at most 500"
		if s := r.pod("large").Status; s.Phase != corev1.PodFailed || s.Reason != "TooManyContainers" || s.Message != want || len(s.ContainerStatuses) > 0 {
			t.Errorf("phase %s, reason %s, message %s, %d container statuses", s.Phase, s.Reason, s.Message, len(s.ContainerStatuses))
		}
		if s := r.pod("small").Status; s.Phase != corev1.PodRunning {
			t.Errorf("the other pod is %s", s.Phase)
		}
	})
}
