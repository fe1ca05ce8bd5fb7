package crispec_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/node/crispec"
)

// TestMemoryQoSOfContainers has the rules of KEP-2570 on a node with 1000Mi of memory for pods. The files are memory.min,
// memory.low and memory.high.
func TestMemoryQoSOfContainers(t *testing.T) {
	const guaranteed, burstable, bestEffort = corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort
	both := crispec.MemoryQoS{Unified: true, Factor: 0.5, Protect: true, Allocatable: 1000 << 20}
	with := func(edit func(*crispec.MemoryQoS)) crispec.MemoryQoS { m := both; edit(&m); return m }
	ofPod := func(p *corev1.Pod) {
		r := resources("", "100Mi", "", "300Mi")
		p.Spec.Resources = &r
	}
	for _, tt := range []struct {
		name string
		node crispec.MemoryQoS
		qos  corev1.PodQOSClass
		r    corev1.ResourceRequirements
		edit func(*corev1.Pod)
		want string
	}{
		{name: "between request and limit", node: both, qos: burstable, r: resources("", "100Mi", "", "200Mi"), want: "0 104857600 157286400"},
		{name: "without a limit", node: both, qos: burstable, r: resources("", "100Mi", "", ""), want: "0 104857600 576716800"},
		{name: "without a request", node: both, qos: burstable, r: resources("", "", "", "200Mi"), want: "0 0 104857600"},
		{name: "best effort", node: both, qos: bestEffort, want: "0 0 524288000"},
		{name: "guaranteed", node: both, qos: guaranteed, r: resources("", "100Mi", "", "100Mi"), want: "104857600 0 max"},
		{name: "whole pages", node: both, qos: burstable, r: resources("", "5000", "", "20001"), want: "0 5000 12288"},
		{name: "the pod is throttled as a whole", node: both, qos: burstable, r: resources("", "100Mi", "", ""), edit: ofPod, want: "0 104857600 max"},
		{name: "no factor", node: with(func(m *crispec.MemoryQoS) { m.Factor = 0 }), qos: burstable, r: resources("", "100Mi", "", "200Mi"), want: "0 104857600 max"},
		{name: "no protection", node: with(func(m *crispec.MemoryQoS) { m.Protect = false }), qos: burstable, r: resources("", "100Mi", "", "200Mi"), want: "0 0 157286400"},
		{name: "default", node: crispec.MemoryQoS{Unified: true, Allocatable: 1000 << 20}, qos: burstable, r: resources("", "100Mi", "", "200Mi"), want: "0 0 max"},
		{name: "cgroup v1", node: with(func(m *crispec.MemoryQoS) { m.Unified = false }), qos: burstable, r: resources("", "100Mi", "", "200Mi"), want: "  "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.edit == nil {
				tt.edit = func(*corev1.Pod) {}
			}
			u := crispec.Resources(pod(tt.edit), tt.qos, &corev1.Container{Resources: tt.r}, crispec.Capacity{Memory: 4 << 30, QoS: tt.node}).GetUnified()
			if got := u["memory.min"] + " " + u["memory.low"] + " " + u["memory.high"]; got != tt.want {
				t.Errorf("the files have %q, want %q", got, tt.want)
			}
		})
	}
}

func TestMemoryQoSOfPods(t *testing.T) {
	node := crispec.MemoryQoS{Unified: true, Factor: 0.5, Protect: true, Allocatable: 1000 << 20}
	plain := pod(func(p *corev1.Pod) {
		p.Spec.Containers = []corev1.Container{{Resources: resources("", "100Mi", "", "200Mi")}}
	})
	whole := pod(func(p *corev1.Pod) {
		p.Spec.Containers = []corev1.Container{{Resources: resources("", "100Mi", "", "")}}
		r := resources("", "200Mi", "", "300Mi")
		p.Spec.Resources = &r
	})
	for _, tt := range []struct {
		name      string
		pod       *corev1.Pod
		qos       corev1.PodQOSClass
		high      string
		protected int64
	}{
		{"limits of containers", plain, corev1.PodQOSBurstable, "max", 100 << 20},
		{"limit of the pod", whole, corev1.PodQOSBurstable, "262144000", 200 << 20},
		{"best effort", pod(func(*corev1.Pod) {}), corev1.PodQOSBestEffort, "max", 0},
	} {
		if got := node.Pod(tt.pod)["memory.high"]; got != tt.high {
			t.Errorf("%s: memory.high is %s, want %s", tt.name, got, tt.high)
		}
		if got := node.Protected(tt.pod, tt.qos); got != tt.protected {
			t.Errorf("%s: %d bytes are protected, want %d", tt.name, got, tt.protected)
		}
	}
}
