package builtin_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// TestRequiredFeaturesAreSigned compares pods that are equal but for a feature that one of them needs: decisions about them differ.
func TestRequiredFeaturesAreSigned(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	needing := pod.DeepCopy()
	needing.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers}}
	var p builtin.NodeDeclaredFeatures
	if plugin.NewPod(pod).Signature(p) == plugin.NewPod(needing).Signature(p) {
		t.Error("the signatures are equal")
	}
}

// TestOnlyAHelpfulNodeChangeRetries checks that a pod that lacks a feature waits until a node declares it.
func TestOnlyAHelpfulNodeChangeRetries(t *testing.T) {
	pod := plugin.NewPod(&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Name: "c", RestartPolicyRules: []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers}}},
	}}})
	declaring := func(features ...string) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{DeclaredFeatures: features}}
	}
	const feature = "RestartAllContainersOnContainerExits"
	ready := declaring(feature)
	ready.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, tt := range []struct {
		name        string
		before, now *corev1.Node
		want        bool
	}{
		{"a node without the feature comes", nil, declaring("A"), false},
		{"a node with the feature comes", nil, declaring(feature), true},
		{"a node declares another feature", declaring(), declaring("A"), false},
		{"a node declares the feature", declaring(), declaring(feature), true},
		{"a node no longer declares it", declaring(feature), declaring(), false},
		{"a node with the feature changes in another way", declaring(feature), ready, false},
	} {
		if got := plugin.Helps(builtin.NodeDeclaredFeatures{}, pod, plugin.NodeChange(tt.before, tt.now)); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
