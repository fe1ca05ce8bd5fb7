// Package nodes has the commands for nodes: cordon, uncordon and drain, and cut and restore
// of simulate.
//
// A drain looks for pods that may not be evicted before it changes anything. It watches
// pods and disruption budgets instead of retrying on a timer.
package nodes
