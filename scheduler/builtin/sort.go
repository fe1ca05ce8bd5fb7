package builtin

import "github.com/sampan-io/sampan/scheduler/plugin"

// PrioritySort lets more important pods go first, and of equally important ones those that have waited for longer.
type PrioritySort struct{}

// Name implements [plugin.Plugin].
func (PrioritySort) Name() string { return "PrioritySort" }

// Less implements [plugin.QueueSort].
func (PrioritySort) Less(a, b *plugin.Queued) bool {
	if x, y := a.Priority(), b.Priority(); x != y {
		return x > y
	}
	return a.Since.Before(b.Since)
}
