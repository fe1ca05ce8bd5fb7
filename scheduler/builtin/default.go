package builtin

import "github.com/sampan-io/sampan/scheduler/plugin"

// Default returns the plug-ins of a scheduler without a configuration file.
//
// Their order matters, because users read the first refusal of a node. It is upstream's order, with the cheapest
// plug-ins first.
func Default() plugin.Set {
	return plugin.Set{Entries: []plugin.Entry{
		{Plugin: PrioritySort{}},
		{Plugin: SchedulingGates{}},
		{Plugin: NodeUnschedulable{}},
		{Plugin: NodeName{}},
		{Plugin: TaintToleration{}, Weight: 3},
		{Plugin: NodeAffinity{}, Weight: 2},
		{Plugin: NodePorts{}},
		{Plugin: NodeResourcesFit{}},
		{Plugin: VolumeRestrictions{}},
		{Plugin: NodeVolumeLimits{}},
		{Plugin: &VolumeBinding{}},
		{Plugin: VolumeZone{}},
		{Plugin: PodTopologySpread{}, Weight: 2},
		{Plugin: InterPodAffinity{}, Weight: 2},
		{Plugin: &DynamicResources{}, Weight: 2},
		{Plugin: DefaultPreemption{}},
		{Plugin: NodeResourcesBalancedAllocation{}},
		{Plugin: ImageLocality{}},
		{Plugin: NodeDeclaredFeatures{}},
	}}
}
