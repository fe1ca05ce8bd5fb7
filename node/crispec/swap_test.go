package crispec_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/node/crispec"
)

// TestSwapOfContainers has the rules of KEP-2400 on a node with 4 GiB of memory and 1 GiB of swap.
func TestSwapOfContainers(t *testing.T) {
	const burstable = corev1.PodQOSBurstable
	limited := crispec.Swap{Limit: crispec.SwapAlone, Total: 1 << 30, Limited: true}
	with := func(edit func(*crispec.Swap)) crispec.Swap { s := limited; edit(&s); return s }
	critical := func(p *corev1.Pod) { p.Spec.Priority = new(int32(2_000_000_000)) }
	static := func(p *corev1.Pod) { p.Annotations = map[string]string{"kubernetes.io/config.source": "file"} }
	tests := []struct {
		name string
		swap crispec.Swap
		qos  corev1.PodQOSClass
		r    corev1.ResourceRequirements
		edit func(*corev1.Pod)
		file string // memory.swap.max
		both int64  // memory and swap together
	}{
		{name: "a part of the swap", swap: limited, qos: burstable, r: resources("", "1Gi", "", "2Gi"), file: "268435456"},
		{name: "without a limit", swap: limited, qos: burstable, r: resources("", "1Gi", "", ""), file: "268435456"},
		{name: "request is limit", swap: limited, qos: burstable, r: resources("", "1Gi", "", "1Gi"), file: "0"},
		{name: "no request", swap: limited, qos: burstable, r: resources("1", "", "", ""), file: "0"},
		{name: "more than the node has", swap: limited, qos: burstable, r: resources("", "8Gi", "", ""), file: "0"},
		{name: "guaranteed", swap: limited, qos: corev1.PodQOSGuaranteed, r: resources("", "1Gi", "", "2Gi"), file: "0"},
		{name: "best effort", swap: limited, qos: corev1.PodQOSBestEffort, file: "0"},
		{name: "critical", swap: limited, qos: burstable, r: resources("", "1Gi", "", "2Gi"), edit: critical, file: "0"},
		{name: "static", swap: limited, qos: burstable, r: resources("", "1Gi", "", "2Gi"), edit: static, file: "0"},
		{name: "NoSwap", swap: with(func(s *crispec.Swap) { s.Limited = false }), qos: burstable, r: resources("", "1Gi", "", "2Gi"), file: "0"},
		{name: "no swap on the node", swap: with(func(s *crispec.Swap) { s.Total = 0 }), qos: burstable, r: resources("", "1Gi", "", "2Gi"), file: "0"},
		{name: "no accounting", swap: with(func(s *crispec.Swap) { s.Limit = crispec.SwapUnlimited }), qos: burstable, r: resources("", "1Gi", "", "2Gi")},
		{name: "cgroup v1", swap: with(func(s *crispec.Swap) { s.Limit = crispec.SwapWithMemory }), qos: burstable, r: resources("", "1Gi", "", "2Gi"), both: 2<<30 + 1<<28},
		{name: "cgroup v1, NoSwap", swap: crispec.Swap{Limit: crispec.SwapWithMemory, Total: 1 << 30}, qos: burstable, r: resources("", "1Gi", "", "2Gi"), both: 2 << 30},
		{name: "cgroup v1 without a limit", swap: with(func(s *crispec.Swap) { s.Limit = crispec.SwapWithMemory }), qos: burstable, r: resources("", "1Gi", "", "")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.edit == nil {
				tt.edit = func(*corev1.Pod) {}
			}
			r := crispec.Resources(pod(tt.edit), tt.qos, &corev1.Container{Resources: tt.r}, crispec.Capacity{Memory: 4 << 30, Swap: tt.swap})
			if got := r.GetUnified()["memory.swap.max"]; got != tt.file || r.GetMemorySwapLimitInBytes() != tt.both {
				t.Errorf("memory.swap.max %q and %d bytes with memory, want %q and %d", got, r.GetMemorySwapLimitInBytes(), tt.file, tt.both)
			}
		})
	}
}
