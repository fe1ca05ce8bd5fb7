package builtin

import "github.com/sampan-io/sampan/scheduler/plugin"

// Default returns the plug-ins of a scheduler that nobody configured.
//
// Order matters: the first refusal of a node is the one that users read. It is
// upstream's order, and the cheapest come first.
func Default() plugin.Set {
	return plugin.Set{
		Filters: []plugin.Filter{
			NodeUnschedulable{},
			NodeName{},
			TaintToleration{},
			NodeAffinity{},
			NodePorts{},
			NodeResourcesFit{},
		},
		Scorers: []plugin.Weighted{
			{Scorer: LeastAllocated{}, Weight: 1},
			{Scorer: Spread{}, Weight: 2},
		},
	}
}
