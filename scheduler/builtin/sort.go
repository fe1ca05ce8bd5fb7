package builtin

import "github.com/sampan-io/sampan/scheduler/plugin"

// PrioritySort orders pods by priority, highest first, and pods of equal priority by their time in the queue.
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
