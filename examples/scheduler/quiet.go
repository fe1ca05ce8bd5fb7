package main

import "github.com/sampan-io/sampan/scheduler/plugin"

// Quiet prefers nodes on which fewer pods run, and keeps pods with the label quiet=yes off nodes that run more than ten.
type Quiet struct{}

// Name implements [plugin.Plugin].
func (Quiet) Name() string { return "Quiet" }

// Filter implements [plugin.Filter].
func (Quiet) Filter(pod *plugin.Pod, node *plugin.Node) plugin.Verdict {
	if pod.Labels["quiet"] == "yes" && len(node.Pods) > 10 {
		return plugin.Refuse("node(s) were too noisy")
	}
	return plugin.Verdict{}
}

// Score implements [plugin.Score].
func (Quiet) Score(_ *plugin.Pod, node *plugin.Node) int64 {
	return max(0, plugin.MaxScore-int64(len(node.Pods)))
}
