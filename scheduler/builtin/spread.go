package builtin

import "github.com/sampan-io/sampan/scheduler/plugin"

// Spread prefers nodes that run fewer pods of the same controller, so that a
// node takes few of them with it when it fails.
type Spread struct{}

// Name implements [plugin.Plugin].
func (Spread) Name() string { return "Spread" }

// Score implements [plugin.Score]: the number of such pods, until it is normalised.
func (Spread) Score(pod *plugin.Pod, node *plugin.Node) int64 {
	if pod.Owner == "" {
		return 0
	}
	return int64(node.Owned[pod.Owner])
}

// Normalize implements [plugin.Normalizer].
func (Spread) Normalize(_ []*plugin.Node, scores []int64) { plugin.Normalize(scores, true) }
