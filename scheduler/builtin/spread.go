package builtin

import "github.com/sampan-io/sampan/scheduler/plugin"

// Spread prefers nodes that run fewer pods of the same controller, so that a
// node takes few of them with it when it fails.
type Spread struct{}

// Name implements [plugin.Scorer].
func (Spread) Name() string { return "Spread" }

// Score implements [plugin.Scorer].
func (Spread) Score(pod *plugin.Pod, nodes []*plugin.Node, scores []int64) {
	most := 0
	if pod.Owner != "" {
		for _, n := range nodes {
			most = max(most, n.Owned[pod.Owner])
		}
	}
	for i, n := range nodes {
		scores[i] = plugin.MaxScore
		if most > 0 {
			scores[i] = int64(most-n.Owned[pod.Owner]) * plugin.MaxScore / int64(most)
		}
	}
}
