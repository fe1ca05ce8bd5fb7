package eviction_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sampan-io/sampan/node/eviction"
)

func TestPreemptTakesTheLeast(t *testing.T) {
	pod := func(name string, class corev1.PodQOSClass, priority int32, cpu, memory string) eviction.Candidate {
		p := &corev1.Pod{Spec: corev1.PodSpec{Priority: &priority, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)},
		}}}}}
		p.Name = name
		return eviction.Candidate{Pod: p, Class: class}
	}
	const critical = 2_000_000_000
	best, burst, sure := corev1.PodQOSBestEffort, corev1.PodQOSBurstable, corev1.PodQOSGuaranteed
	tests := []struct {
		name  string
		pods  []eviction.Candidate
		needs []eviction.Need
		want  string // names, or "-" if nothing suffices
	}{
		{"nothing", nil, nil, ""},
		{"no candidates", nil, []eviction.Need{{Resource: "cpu", Amount: 1}}, "-"},
		{"critical ones stay", []eviction.Candidate{pod("a", burst, critical, "1", "0")}, []eviction.Need{{Resource: "cpu", Amount: 1}}, "-"},
		{"burstable before guaranteed", []eviction.Candidate{pod("a", sure, 0, "1", "1Gi"), pod("b", burst, 0, "1", "1Gi")}, []eviction.Need{{Resource: "cpu", Amount: 500}}, "b"},
		{"the smallest that suffices", []eviction.Candidate{pod("a", burst, 0, "4", "4Gi"), pod("b", burst, 0, "1", "1Gi"), pod("c", burst, 0, "2", "2Gi")}, []eviction.Need{{Resource: "cpu", Amount: 1500}}, "c"},
		{"few", []eviction.Candidate{pod("a", burst, 0, "1", "1"), pod("b", burst, 0, "1", "1"), pod("c", burst, 0, "2", "1")}, []eviction.Need{{Resource: "cpu", Amount: 2000}}, "c"},
		{"several resources", []eviction.Candidate{pod("a", burst, 0, "1", "0"), pod("b", burst, 0, "0", "1Gi"), pod("c", sure, 0, "9", "9Gi")}, []eviction.Need{{Resource: "cpu", Amount: 1000}, {Resource: "memory", Amount: 1 << 30}}, "a b"},
		{"a place", []eviction.Candidate{pod("a", sure, 0, "1", "1"), pod("b", best, 0, "0", "0")}, []eviction.Need{{Resource: "pods", Amount: 1}}, "b"},
		{"enormous requests", []eviction.Candidate{pod("a", burst, 0, "7E", "7Ei"), pod("b", burst, 0, "7E", "7Ei")}, []eviction.Need{{Resource: "memory", Amount: 1<<63 - 1}}, "a b"},
	}
	for _, tt := range tests {
		preemptor := pod("critical", burst, critical, "1", "1").Pod
		victims, suffice := eviction.Preempt(preemptor, tt.pods, tt.needs)
		var names []string
		for _, v := range victims {
			names = append(names, v.Name)
		}
		got := strings.Join(names, " ")
		if !suffice {
			got = "-"
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
