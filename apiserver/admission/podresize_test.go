package admission_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver/admission"
)

func list(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

func TestResizeBeyondTheNodeIsRefused(t *testing.T) {
	m := newMemory(nil)
	m.put("nodes", &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelOSStable: "linux"}},
		Status:     corev1.NodeStatus{Allocatable: list("2", "1Gi")},
	})
	m.put("nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "unlabelled"}, Status: corev1.NodeStatus{Allocatable: list("2", "1Gi")}})
	m.put("nodes", &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "w1", Labels: map[string]string{corev1.LabelOSStable: "windows"}},
		Status:     corev1.NodeStatus{Allocatable: list("2", "1Gi")},
	})
	pod := func(node, cpu, memory string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: meta("ship", "p"), Spec: corev1.PodSpec{
			NodeName:   node,
			Overhead:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")},
			Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: list(cpu, memory)}}},
		}}
	}
	whole := func(node, cpu, memory string) *corev1.Pod {
		p := pod(node, "100m", "1Mi")
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: list(cpu, memory)}
		return p
	}
	const forbidden = `pods "p" is forbidden: `
	for _, tt := range []struct {
		name    string
		pod     *corev1.Pod
		sub     string
		want    string
		because metav1.CauseType
		same    bool // the specification does not change
	}{
		{name: "as much as the node has", pod: pod("n1", "1900m", "1Gi"), sub: "resize"},
		{
			name: "more CPU, with the overhead", pod: pod("n1", "1901m", "1Gi"), sub: "resize", because: "NodeCapacity",
			want: forbidden + "node didn't have enough allocatable resources: cpu, requested: 2001, allocatable: 2000",
		},
		{
			name: "more of both, on a node without the label", pod: pod("unlabelled", "3", "2Gi"), sub: "resize", because: "NodeCapacity",
			want: forbidden + "node didn't have enough allocatable resources: cpu, requested: 3100, allocatable: 2000; memory, requested: 2147483648, allocatable: 1073741824",
		},
		{
			name: "more for the pod as a whole", pod: whole("n1", "1", "2Gi"), sub: "resize", because: "NodeCapacity",
			want: forbidden + "node didn't have enough allocatable resources: memory, requested: 2147483648, allocatable: 1073741824",
		},
		{
			name: "another system", pod: pod("w1", "1", "1Mi"), sub: "resize", because: "UnsupportedPlatform",
			want: forbidden + `pod resize is only supported on linux nodes, node "w1" is "windows"`,
		},
		{name: "a node that is gone", pod: pod("n2", "1", "1Mi"), sub: "resize", want: forbidden + `node "n2" not found`},
		{name: "no node yet", pod: pod("", "64", "1Ti"), sub: "resize"},
		{name: "no change", pod: pod("n1", "64", "1Ti"), sub: "resize", same: true},
		{name: "another subresource", pod: pod("n1", "64", "1Ti"), sub: "status"},
		{name: "the pod itself", pod: pod("n1", "64", "1Ti")},
	} {
		old := pod(tt.pod.Spec.NodeName, "10m", "1Mi")
		if tt.same {
			old = tt.pod.DeepCopy()
			tt.pod.Labels = map[string]string{"a": "b"}
		}
		a := updating(podKind(), tt.pod, old)
		a.Subresource = tt.sub
		err := admission.NewPodResizeValidator(m).Validate(t.Context(), a)
		if tt.want == "" {
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		if err == nil || err.Error() != tt.want || !apierrors.IsForbidden(err) || apierrors.HasStatusCause(err, "NodeCapacity") != (tt.because == "NodeCapacity") ||
			apierrors.HasStatusCause(err, "UnsupportedPlatform") != (tt.because == "UnsupportedPlatform") {
			t.Errorf("%s: %#v, want %s because %q", tt.name, err, tt.want, tt.because)
		}
	}
}
