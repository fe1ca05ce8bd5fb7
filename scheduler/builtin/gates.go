package builtin

import (
	"strings"

	"github.com/sampan-io/sampan/scheduler/plugin"
)

// SchedulingGates keeps pods out of the queue that have gates.
type SchedulingGates struct{}

// Name implements [plugin.Plugin].
func (SchedulingGates) Name() string { return "SchedulingGates" }

// PreEnqueue implements [plugin.PreEnqueue].
func (SchedulingGates) PreEnqueue(pod *plugin.Pod) plugin.Verdict {
	if len(pod.Spec.SchedulingGates) == 0 {
		return plugin.Verdict{}
	}
	names := make([]string, len(pod.Spec.SchedulingGates))
	for i, g := range pod.Spec.SchedulingGates {
		names[i] = g.Name
	}
	return plugin.Never("waiting for scheduling gates: [" + strings.Join(names, " ") + "]")
}

// Hints implements [plugin.Hinter]: only the pod itself can lose its gates.
func (SchedulingGates) Hints() []plugin.Hint { return nil }
