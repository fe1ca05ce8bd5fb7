package builtin

import "github.com/sampan-io/sampan/scheduler/plugin"

// PrioritySort takes the pods of the highest priority first, and those of one priority in the order in
// which they came.
type PrioritySort struct{}

// Name implements [plugin.Plugin].
func (PrioritySort) Name() string { return "PrioritySort" }

// Less implements [plugin.QueueSort].
func (PrioritySort) Less(a, b *plugin.Queued) bool { return a.Priority() > b.Priority() }
