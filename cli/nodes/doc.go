// Package nodes has the verbs about nodes: cordon, uncordon and drain.
//
// A drain finds what may not be evicted before it changes anything, and waits for pods and
// disruption budgets to change instead of asking again and again.
package nodes
