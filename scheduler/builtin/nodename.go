package builtin

import (
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// NodeName keeps a pod that names its node off all others.
type NodeName struct{}

// Name implements [plugin.Plugin].
func (NodeName) Name() string { return "NodeName" }

// Filter implements [plugin.Filter].
func (NodeName) Filter(pod *plugin.Pod, node *plugin.Node) plugin.Verdict {
	if pod.Spec.NodeName == "" || pod.Spec.NodeName == node.Name {
		return plugin.Verdict{}
	}
	return plugin.Never("node(s) didn't match the requested node name")
}

// Hints implements [plugin.Hinter].
func (NodeName) Hints() []plugin.Hint {
	return []plugin.Hint{{Resource: client.Nodes.GroupVersionResource, Action: plugin.Added, Helps: func(pod *plugin.Pod, c plugin.Change) bool {
		return pod.Spec.NodeName == c.Node.Name
	}}}
}
