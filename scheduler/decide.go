package scheduler

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/scheduler/plugin"
)

// enough is the number of nodes that fit after which no more are looked for. The
// best of a hundred is good enough, and a decision costs the same in a cluster of
// a hundred nodes and of five thousand.
const enough = 100

// A Decision says where a pod goes, or why nowhere.
type Decision struct {
	Node  string // empty: nowhere
	Score int64  // of that node, from 0 to plugin.MaxScore
	Nodes int    // in the cluster
	Next  int    // where the next decision should begin to look, to be fair to all nodes

	refusals []tally
	final    int  // nodes that would refuse even if they had no other pods
	never    bool // the pod must not preempt others
}

// A tally counts nodes that refused for the same reason.
type tally struct {
	reason string
	nodes  int
}

// Decide chooses the node with the best score among those that no filter refuses,
// the first of several equals. It looks at the nodes from the given index on,
// around, until it has enough that fit. It changes nothing and its result depends
// on the arguments alone.
func Decide(set plugin.Set, pod *plugin.Pod, nodes []*plugin.Node, from int) Decision {
	d := Decision{Nodes: len(nodes)}
	d.never = pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == corev1.PreemptNever
	var candidates []*plugin.Node
	for i := range nodes {
		at := (from + i) % len(nodes)
		d.Next = (at + 1) % len(nodes)
		if v := filter(set, pod, nodes[at]); !v.Fits() {
			d.refuse(v)
			continue
		}
		if candidates == nil {
			candidates = make([]*plugin.Node, 0, min(enough, len(nodes)-i))
		}
		if candidates = append(candidates, nodes[at]); len(candidates) == enough {
			break
		}
	}
	if len(candidates) > 0 {
		best, score := rank(set, pod, candidates)
		d.Node, d.Score = best.Name, score
	}
	return d
}

// filter returns the first refusal.
func filter(set plugin.Set, pod *plugin.Pod, n *plugin.Node) plugin.Verdict {
	for _, f := range set.Filters {
		if v := f.Filter(pod, n); !v.Fits() {
			return v
		}
	}
	return plugin.Verdict{}
}

// rank returns the best of the candidates.
func rank(set plugin.Set, pod *plugin.Pod, candidates []*plugin.Node) (*plugin.Node, int64) {
	if len(set.Scorers) == 0 {
		return candidates[0], plugin.MaxScore
	}
	n := len(candidates)
	buf := make([]int64, 2*n)
	sums, scores := buf[:n], buf[n:]
	var weights int64
	for _, w := range set.Scorers {
		w.Score(pod, candidates, scores)
		weights += w.Weight
		for i, s := range scores {
			sums[i] += w.Weight * s
		}
	}
	best := 0
	for i, s := range sums {
		if s > sums[best] {
			best = i
		}
	}
	return candidates[best], sums[best] / weights
}

func (d *Decision) refuse(v plugin.Verdict) {
	d.count(v.Refusal)
	for _, r := range v.Also {
		d.count(r)
	}
	if v.Final {
		d.final++
	}
}

func (d *Decision) count(reason string) {
	for i := range d.refusals {
		if d.refusals[i].reason == reason {
			d.refusals[i].nodes++
			return
		}
	}
	d.refusals = append(d.refusals, tally{reason, 1})
}

// Hopeless reports whether the end of other pods would change nothing.
func (d *Decision) Hopeless() bool { return d.final == d.Nodes }

// String tells the decision in the words of Kubernetes' events.
func (d *Decision) String() string {
	switch {
	case d.Node != "":
		return fmt.Sprintf("assigned to %s (score %d)", d.Node, d.Score)
	case d.Nodes == 0:
		return "no nodes available to schedule pods"
	}
	s := unavailable(d.Nodes, d.refusals) + " preemption: "
	if d.never {
		return s + "not eligible due to preemptionPolicy=Never."
	}
	var preemption []tally
	if d.final > 0 {
		preemption = append(preemption, tally{"Preemption is not helpful for scheduling", d.final})
	}
	if n := d.Nodes - d.final; n > 0 {
		preemption = append(preemption, tally{"No preemption victims found for incoming pod", n})
	}
	return s + unavailable(d.Nodes, preemption)
}

func unavailable(nodes int, why []tally) string {
	reasons := make([]string, 0, len(why))
	for _, t := range why {
		reasons = append(reasons, fmt.Sprintf("%d %s", t.nodes, t.reason))
	}
	slices.Sort(reasons) // as text, as upstream does
	return fmt.Sprintf("0/%d nodes are available: %s.", nodes, strings.Join(reasons, ", "))
}
