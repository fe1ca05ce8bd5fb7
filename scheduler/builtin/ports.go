package builtin

import (
	"slices"

	"github.com/sampan-io/sampan/scheduler/plugin"
)

// NodePorts keeps pods apart that want the same port of their node.
type NodePorts struct{}

// Name implements [plugin.Plugin].
func (NodePorts) Name() string { return "NodePorts" }

// Filter implements [plugin.Filter].
func (NodePorts) Filter(pod *plugin.Pod, node *plugin.Node) plugin.Verdict {
	for _, want := range pod.Ports {
		if slices.ContainsFunc(node.Ports, want.Collides) {
			return plugin.Refuse("node(s) didn't have free ports for the requested pod ports")
		}
	}
	return plugin.Verdict{}
}
