package builtin

import (
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// NodePorts keeps pods apart that want the same port of their node.
type NodePorts struct{}

// Name implements [plugin.Plugin].
func (NodePorts) Name() string { return "NodePorts" }

// Filter implements [plugin.Filter].
func (NodePorts) Filter(pod *plugin.Pod, node *plugin.Node) plugin.Verdict {
	if len(pod.Ports) == 0 {
		return plugin.Verdict{}
	}
	if taken := plugin.NewPortSet(node.Ports); taken.Collides(pod.Ports) {
		return plugin.Refuse("node(s) didn't have free ports for the requested pod ports")
	}
	return plugin.Verdict{}
}

// Explain implements [plugin.Explainer].
func (NodePorts) Explain(pod *plugin.Pod, node *plugin.Node) []plugin.Lack {
	var lacks []plugin.Lack
	taken := plugin.NewPortSet(node.Ports)
	for i, want := range pod.Ports {
		if taken.Collides(pod.Ports[i : i+1]) {
			lacks = append(lacks, plugin.Lack{What: "port " + want.String(), Asked: 1, Total: 1})
		}
	}
	return lacks
}

// Hints implements [plugin.Hinter].
func (NodePorts) Hints() []plugin.Hint {
	return []plugin.Hint{
		{Resource: client.Nodes.GroupVersionResource, Action: plugin.Added},
		{Resource: client.Pods.GroupVersionResource, Action: plugin.Deleted, Helps: func(pod *plugin.Pod, c plugin.Change) bool {
			freed := plugin.NewPortSet(c.OldPod.Ports)
			return freed.Collides(pod.Ports)
		}},
	}
}
