package node

import (
	"testing"

	"github.com/sampan-io/sampan/node/cpumanager"
	"github.com/sampan-io/sampan/node/metrics/metricstest"
)

// SetProcessors gives an agent that does not run yet a policy for the processors of containers.
func (n *Node) SetProcessors(s *cpumanager.Static) { n.capacity.Pin(s) }

// Metric returns the sum of the samples of a metric of the agent with the given labels; see [metricstest.Sum].
func (n *Node) Metric(t *testing.T, name string, labels map[string]string) float64 {
	t.Helper()
	return metricstest.Sum(t, n.metrics.Registry, name, labels)
}
