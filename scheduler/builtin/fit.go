package builtin

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/scheduler/plugin"
)

// NodeResourcesFit keeps pods off nodes that have not what they request, or
// that run as many pods as they may.
type NodeResourcesFit struct{}

// Name implements [plugin.Plugin].
func (NodeResourcesFit) Name() string { return "NodeResourcesFit" }

// Filter implements [plugin.Filter].
func (NodeResourcesFit) Filter(pod *plugin.Pod, node *plugin.Node) plugin.Verdict {
	var v plugin.Verdict
	refuse := func(why string) {
		if v.Code = max(v.Code, plugin.Unschedulable); v.Reason == "" {
			v.Reason = why
		} else {
			v.Also = append(v.Also, why)
		}
	}
	has, taken, asks := &node.Allocatable, &node.Requested, &pod.Requests
	if int64(len(node.Pods)) >= has.Pods {
		refuse("Too many pods")
	}
	check := func(why string, asks, has, taken int64) {
		if asks > 0 && asks > has-taken {
			refuse(why)
			if asks > has {
				v.Code = plugin.Unresolvable
			}
		}
	}
	check("Insufficient cpu", asks.MilliCPU, has.MilliCPU, taken.MilliCPU)
	check("Insufficient memory", asks.Memory, has.Memory, taken.Memory)
	check("Insufficient ephemeral-storage", asks.Ephemeral, has.Ephemeral, taken.Ephemeral)
	if len(asks.Other) > 0 {
		names := make([]corev1.ResourceName, 0, len(asks.Other))
		for name := range asks.Other {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			if n := asks.Other[name]; n > 0 && n > has.Other[name]-taken.Other[name] {
				refuse("Insufficient " + string(name))
				if n > has.Other[name] {
					v.Code = plugin.Unresolvable
				}
			}
		}
	}
	return v
}

// LeastAllocated prefers nodes that have more CPU and memory left, as a share of
// what they have. A container that requests none is presumed to use a little, so
// that a hundred of them do not all go to one node.
type LeastAllocated struct{}

// Name implements [plugin.Plugin].
func (LeastAllocated) Name() string { return "NodeResourcesLeastAllocated" }

// Score implements [plugin.Score].
func (LeastAllocated) Score(pod *plugin.Pod, n *plugin.Node) int64 {
	cpu := left(n.Allocatable.MilliCPU, n.Presumed.MilliCPU+pod.Presumed.MilliCPU)
	memory := left(n.Allocatable.Memory, n.Presumed.Memory+pod.Presumed.Memory)
	return (cpu + memory) / 2
}

func left(has, taken int64) int64 {
	if has == 0 || taken > has {
		return 0
	}
	return (has - taken) * plugin.MaxScore / has
}
