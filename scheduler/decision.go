package scheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// A Decision says where a pod goes, or why nowhere.
type Decision struct {
	Node  string // empty: nowhere
	Score int64  // of that node, from 0 to plugin.MaxScore
	Nodes int    // in the cluster
	Next  int    // where the next decision should begin to look, to be fair to all nodes
	Err   error  // there is no decision, for an error of a plug-in

	// Room and After are the result of a PostFilter: how the pod can get room, or why it cannot.
	Room  plugin.Nomination
	After string

	before   string         // why a PreFilter refused
	refusals []tally        // why nodes were refused otherwise
	byReason map[string]int // indexes in refusals; nil as long as they are few
	final    int            // nodes that would refuse even if they had no other pods
	refusers uint64         // see Decider.Refusers
	checks   map[string]plugin.Check
	ask      []*corev1.Node // extenders have to be asked about these, and then the pod decided about again
	extended bool           // an extender refused a node
	excess   bool           // the pod says more than is looked at; no plug-in was asked
	roomGone bool           // the earlier promise to the pod no longer counts
	writes   []write        // of PostFilters
}

// write is [plugin.Nomination].Write.
type write = func(context.Context, client.Interface) error

// A tally counts nodes that refused for the same reason.
type tally struct {
	reason string
	nodes  int
}

// fewReasons is how many reasons are compared one by one. A pod can ask for any number of resources.
const fewReasons = 16

func (d *Decision) count(reason string, nodes int) {
	if i := d.indexOf(reason); i >= 0 {
		d.refusals[i].nodes += nodes
		return
	}
	d.refusals = append(d.refusals, tally{reason, nodes})
	switch {
	case d.byReason != nil:
		d.byReason[reason] = len(d.refusals) - 1
	case len(d.refusals) > fewReasons:
		d.byReason = map[string]int{}
		for i, t := range d.refusals {
			d.byReason[t.reason] = i
		}
	}
}

// indexOf returns the index of a reason in refusals, or -1.
func (d *Decision) indexOf(reason string) int {
	if d.byReason == nil {
		return slices.IndexFunc(d.refusals, func(t tally) bool { return t.reason == reason })
	}
	if i, known := d.byReason[reason]; known {
		return i
	}
	return -1
}

// Hopeless reports whether the end of other pods would change nothing.
func (d *Decision) Hopeless() bool { return d.final == d.Nodes }

// String returns the decision as the message of a FailedScheduling event.
func (d *Decision) String() string {
	var s string
	switch {
	case d.Err != nil:
		return d.Err.Error()
	case d.Node != "":
		return fmt.Sprintf("assigned to %s (score %d)", d.Node, d.Score)
	case d.Nodes == 0:
		return "no nodes available to schedule pods"
	case d.before != "":
		s = fmt.Sprintf("0/%d nodes are available: %s.", d.Nodes, d.before)
	default:
		s = unavailable(d.Nodes, d.refusals)
	}
	if d.After != "" {
		s += " " + d.After
	}
	return s
}

func unavailable(nodes int, why []tally) string {
	reasons := make([]string, 0, len(why))
	for _, t := range why {
		reasons = append(reasons, fmt.Sprintf("%d %s", t.nodes, t.reason))
	}
	slices.Sort(reasons) // as text, as upstream does
	return fmt.Sprintf("0/%d nodes are available: %s.", nodes, strings.Join(reasons, ", "))
}
