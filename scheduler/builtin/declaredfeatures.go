package builtin

import (
	"context"
	"slices"
	"strings"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/nodefeature"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// NodeDeclaredFeatures keeps pods off nodes that do not declare a feature that they need (KEP-5328).
type NodeDeclaredFeatures struct{}

// Name implements [plugin.Plugin].
func (NodeDeclaredFeatures) Name() string { return "NodeDeclaredFeatures" }

// PreFilter implements [plugin.PreFilter]. Most pods need no feature, and their nodes are not looked at.
func (NodeDeclaredFeatures) PreFilter(_ context.Context, pod *plugin.Pod, _ *plugin.Snapshot) (plugin.Check, plugin.Verdict) {
	required := nodefeature.Required(&pod.Spec)
	if len(required) == 0 {
		return nil, plugin.Skip
	}
	return featureCheck{required}, plugin.Verdict{}
}

// featureCheck has the features that a pod needs.
type featureCheck struct{ required []string }

// Filter implements [plugin.Check].
func (c featureCheck) Filter(node *plugin.Node) plugin.Verdict {
	if len(nodefeature.Missing(c.required, node.Status.DeclaredFeatures)) == 0 {
		return plugin.Verdict{}
	}
	return plugin.Never("node(s) didn't match Pod's required features")
}

// Explain implements [plugin.CheckExplainer].
func (c featureCheck) Explain(node *plugin.Node) []plugin.Lack {
	var lacks []plugin.Lack
	for _, name := range nodefeature.Missing(c.required, node.Status.DeclaredFeatures) {
		lacks = append(lacks, plugin.Lack{What: "feature " + name, Asked: 1})
	}
	return lacks
}

// Sign implements [plugin.Signer].
func (NodeDeclaredFeatures) Sign(pod *plugin.Pod) string {
	return strings.Join(nodefeature.Required(&pod.Spec), ",")
}

// Hints implements [plugin.Hinter].
func (NodeDeclaredFeatures) Hints() []plugin.Hint {
	return []plugin.Hint{{
		Resource: client.Nodes.GroupVersionResource, Action: plugin.Added | plugin.NodeOther,
		Helps: func(pod *plugin.Pod, c plugin.Change) bool {
			if c.OldNode != nil && slices.Equal(c.OldNode.Status.DeclaredFeatures, c.Node.Status.DeclaredFeatures) {
				return false
			}
			return len(nodefeature.Missing(nodefeature.Required(&pod.Spec), c.Node.Status.DeclaredFeatures)) == 0
		},
	}}
}
