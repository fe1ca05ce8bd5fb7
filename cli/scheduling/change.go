package scheduling

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sampan-io/sampan/internal/sorting"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// An effort says how much would have to change for a node to fit.
type effort struct {
	steps int
	size  float64 // the parts of the node that are missing, summed up; more than 1 for what no other pod's end gives
}

func (e effort) compare(o effort) int {
	return cmp.Or(cmp.Compare(e.steps, o.steps), cmp.Compare(e.size, o.size))
}

// changes returns what would have to change, the least first: nodes that need the same are one. It notes the effort in
// the nodes.
func changes(pod *corev1.Pod, c *plugin.Cluster, nodes []nodeResult) []change {
	out := []change{}
	seen := map[string]int{}
	for i := range nodes {
		n := &nodes[i]
		var steps []string
		for _, r := range n.Refusals {
			steps = append(steps, r.steps(pod, c.Snapshot.Node(n.Name), &n.effort)...)
		}
		n.effort.steps = len(steps)
		key := strings.Join(steps, "\x00")
		at, ok := seen[key]
		if !ok {
			at = len(out)
			seen[key] = at
			out = append(out, change{Steps: steps, effort: n.effort})
		}
		out[at].Nodes = append(out[at].Nodes, n.Name)
		if n.effort.compare(out[at].effort) < 0 {
			out[at].effort = n.effort
		}
	}
	for _, c := range out {
		slices.Sort(c.Nodes)
	}
	sorting.Stable(out, func(a, b change) int {
		return cmp.Or(a.effort.compare(b.effort), cmp.Compare(a.Nodes[0], b.Nodes[0]))
	})
	return out
}

// steps returns what would have to change for a plug-in to take the node, in words that say nothing of which node it is.
func (r *refusal) steps(pod *corev1.Pod, n *plugin.Node, e *effort) []string {
	var steps []string
	for _, l := range r.Lacks {
		steps = append(steps, l.step(e))
	}
	if len(steps) > 0 {
		return steps
	}
	e.size++
	switch r.Plugin {
	case "NodeUnschedulable":
		return []string{"uncordon it"}
	case "NodeAffinity":
		if n == nil || n.Node == nil {
			break
		}
		for key, value := range pod.Spec.NodeSelector {
			if has, ok := n.Labels[key]; !ok || has != value {
				steps = append(steps, fmt.Sprintf("the label %s=%s", key, value))
			}
		}
		slices.Sort(steps)
		if len(steps) == 0 {
			return []string{"labels that match the pod's required node affinity"}
		}
		return steps
	}
	for _, reason := range r.Reasons {
		steps = append(steps, fmt.Sprintf("a state in which %s does not report %q", r.Plugin, reason))
	}
	return steps
}

// step says what would have to change for there to be no lack.
func (l *lack) step(e *effort) string {
	asked, free, total := l.Asked.AsApproximateFloat64(), l.Free.AsApproximateFloat64(), l.Total.AsApproximateFloat64()
	missing := l.Asked.DeepCopy()
	missing.Sub(l.Free)
	e.size += (asked - free) / max(asked, total, 1e-9)
	first, rest, _ := strings.Cut(l.What, " ")
	switch {
	case strings.HasPrefix(l.What, "toleration of "):
		return "tolerate the taint " + strings.TrimPrefix(l.What, "toleration of ")
	case first == "port":
		return l.What + " free"
	case first == "label", first == "feature":
		return "the " + l.What
	case strings.HasPrefix(l.What, "skew of "):
		return fmt.Sprintf("maxSkew %s for %s instead of %s, or fewer such pods there", &l.Asked, strings.TrimPrefix(rest, "of "), &l.Total)
	case first != l.What:
		return l.What
	case l.What == string(corev1.ResourcePods):
		return "room for 1 more pod"
	case asked > total:
		e.size++
		return fmt.Sprintf("%s more %s free, more than evicting other pods frees (%s requested, %s in total)", &missing, l.What, &l.Asked, &l.Total)
	}
	return fmt.Sprintf("%s more %s free", &missing, l.What)
}

// lackOf gives a lack its unit.
func lackOf(l plugin.Lack) lack {
	amount := func(n int64) resource.Quantity {
		var q *resource.Quantity
		switch {
		case l.What == string(corev1.ResourceCPU):
			q = resource.NewMilliQuantity(n, resource.DecimalSI)
		case l.What == string(corev1.ResourceMemory), l.What == string(corev1.ResourceEphemeralStorage), strings.HasPrefix(l.What, corev1.ResourceHugePagesPrefix):
			q = resource.NewQuantity(n, resource.BinarySI)
		default:
			q = resource.NewQuantity(n, resource.DecimalSI)
		}
		return *q
	}
	return lack{What: l.What, Asked: amount(l.Asked), Free: amount(l.Free), Total: amount(l.Total)}
}

// String says a lack, in numbers if it is one of an amount.
func (l *lack) String() string {
	if strings.Contains(l.What, " ") && !strings.HasPrefix(l.What, "skew of ") {
		return l.What
	}
	return fmt.Sprintf("%s: requested %s, free %s of %s", l.What, &l.Asked, &l.Free, &l.Total)
}
