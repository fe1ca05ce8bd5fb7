package admission_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver/admission"
)

func TestUpdatesNeedDeclaredFeatures(t *testing.T) {
	m := newMemory(nil)
	for name, features := range map[string][]string{
		"old": nil, "half": {"InPlacePodLevelResourcesVerticalScaling"},
		"new": {"InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers"},
	} {
		m.put("nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{DeclaredFeatures: features}})
	}
	pod := func(node string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: meta("ship", "p"), Spec: corev1.PodSpec{
			NodeName:       node,
			Resources:      &corev1.ResourceRequirements{Requests: list("1", "1Gi")},
			InitContainers: []corev1.Container{{Name: "i", Resources: corev1.ResourceRequirements{Requests: list("1", "1Gi")}}},
			Containers:     []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: list("1", "1Gi")}}},
		}}
	}
	main := func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = list("2", "1Gi") }
	whole := func(p *corev1.Pod) { p.Spec.Resources.Requests = list("2", "1Gi") }
	both := func(p *corev1.Pod) { whole(p); p.Spec.InitContainers[0].Resources.Requests = list("2", "1Gi") }
	label := func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }
	const refusal = `pods "p" is forbidden: pod update requires features `
	for _, tt := range []struct {
		name, node, sub string
		change          func(*corev1.Pod)
		want            string
	}{
		{"nothing to need", "old", "resize", main, ""},
		{"a label", "old", "", label, ""},
		{"the pod as a whole", "old", "resize", whole, refusal + `InPlacePodLevelResourcesVerticalScaling which are not available on node "old"`},
		{"one of two", "half", "resize", both, refusal + `InPlacePodVerticalScalingInitContainers which are not available on node "half"`},
		{
			"two", "old", "resize", both,
			refusal + `InPlacePodLevelResourcesVerticalScaling, InPlacePodVerticalScalingInitContainers which are not available on node "old"`,
		},
		{"all declared", "new", "resize", both, ""},
		{"an update of the pod itself", "old", "", whole, refusal + `InPlacePodLevelResourcesVerticalScaling which are not available on node "old"`},
		{"another subresource", "old", "status", whole, ""},
		{"no node yet", "", "resize", both, ""},
		{"a node that is gone", "gone", "resize", whole, `pods "p" is forbidden: node "gone" not found`},
		{"a node that is gone, without a need", "gone", "", label, ""},
	} {
		now := pod(tt.node)
		tt.change(now)
		a := updating(podKind(), now, pod(tt.node))
		a.Subresource = tt.sub
		err := admission.NewNodeDeclaredFeatureValidator(m).Validate(t.Context(), a)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != tt.want || err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if err := admission.NewNodeDeclaredFeatureValidator(m).Validate(t.Context(), creating(podKind(), pod("old"))); err != nil {
		t.Errorf("a creation: %v", err)
	}
}
