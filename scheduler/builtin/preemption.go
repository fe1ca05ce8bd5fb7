package builtin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// DefaultPreemption makes room for a pod that fits nowhere by ending pods of lower priority: as few and as unimportant ones as
// possible, on one node, without violating disruption budgets if that can be avoided.
type DefaultPreemption struct {
	// Of the nodes that come into question, this percentage is tried out, but at least
	// MinCandidateNodesAbsolute of them. Nil means 10 and 100.
	MinCandidateNodesPercentage *int32
	MinCandidateNodesAbsolute   *int32
}

// Name implements [plugin.Plugin].
func (DefaultPreemption) Name() string { return "DefaultPreemption" }

// Configure implements [plugin.Configurable].
func (DefaultPreemption) Configure(args json.RawMessage) (plugin.Plugin, error) {
	var a struct {
		MinCandidateNodesPercentage *int32 `json:"minCandidateNodesPercentage"`
		MinCandidateNodesAbsolute   *int32 `json:"minCandidateNodesAbsolute"`
	}
	if err := plugin.DecodeArgs(args, &a); err != nil {
		return nil, err
	}
	var errs field.ErrorList
	p, n := a.MinCandidateNodesPercentage, a.MinCandidateNodesAbsolute
	if p != nil && (*p < 0 || *p > 100) {
		errs = append(errs, field.Invalid(field.NewPath("minCandidateNodesPercentage"), *p, "want a percentage from 0 to 100"))
	}
	if n != nil && *n < 0 {
		errs = append(errs, field.Invalid(field.NewPath("minCandidateNodesAbsolute"), *n, "want 0 or more"))
	}
	if p != nil && n != nil && *p == 0 && *n == 0 {
		errs = append(errs, field.Invalid(field.NewPath("minCandidateNodesPercentage"), *p, "want more than 0 if minCandidateNodesAbsolute is 0"))
	}
	if len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return DefaultPreemption(a), nil
}

// Needs implements [plugin.Needer].
func (DefaultPreemption) Needs() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{client.PodDisruptionBudgets.GroupVersionResource}
}

// enough returns how many of n nodes are tried out.
func (p DefaultPreemption) enough(n int) int {
	percentage, absolute := int32(10), int32(100)
	if p.MinCandidateNodesPercentage != nil {
		percentage = *p.MinCandidateNodesPercentage
	}
	if p.MinCandidateNodesAbsolute != nil {
		absolute = *p.MinCandidateNodesAbsolute
	}
	return min(max(n*int(percentage)/100, int(absolute)), n)
}

const noVictims = "No preemption victims found for incoming pod"

// PostFilter implements [plugin.PostFilter].
func (p DefaultPreemption) PostFilter(_ context.Context, f plugin.Failure) (plugin.Nomination, plugin.Verdict) {
	if why := ineligible(f); why != "" {
		return plugin.Nomination{}, plugin.Refuse("preemption: not eligible due to " + why)
	}
	s := f.Snapshot()
	hopeful, nodes := f.Hopeful(), len(s.Nodes())
	reasons := map[string]int{}
	if n := nodes - len(hopeful); n > 0 {
		reasons["Preemption is not helpful for scheduling"] = n
	}
	budgets := newBudgets(s)
	enough := p.enough(len(hopeful))
	var best *sacrifice
	found, harmless := 0, false
	for _, n := range hopeful {
		one := trial(f, n, budgets)
		if one.victims == nil {
			one.why.Each(func(reason string) { reasons[reason]++ })
			continue
		}
		found, harmless = found+1, harmless || one.violations == 0
		if best == nil || one.less(best) < 0 {
			best = one
		}
		if harmless && found >= enough {
			break
		}
	}
	if best != nil {
		return plugin.Nomination{Node: best.node, Victims: best.victims}, plugin.Verdict{}
	}
	v := plugin.Refuse("preemption: " + unavailable(nodes, reasons))
	if s.Nomination(f.Pod().UID) != "" {
		// It was promised room where it can't get any now: others may have it.
		v.Code = plugin.Success
	}
	return plugin.Nomination{}, v
}

// unavailable returns the message that says for how many of n nodes there is which reason.
func unavailable(n int, reasons map[string]int) string {
	said := make([]string, 0, len(reasons))
	for reason, nodes := range reasons {
		said = append(said, fmt.Sprintf("%d %s", nodes, reason))
	}
	slices.Sort(said) // as text, as upstream does
	return fmt.Sprintf("0/%d nodes are available: %s.", n, strings.Join(said, ", "))
}

// ineligible says why a pod may not have others ended, or "".
func ineligible(f plugin.Failure) string {
	pod, s := f.Pod(), f.Snapshot()
	if policy := pod.Spec.PreemptionPolicy; policy != nil && *policy == corev1.PreemptNever {
		return "preemptionPolicy=Never."
	}
	// It has had pods ended already: it waits for them, unless the node has become impossible since.
	n := s.Node(s.Nomination(pod.UID))
	if n == nil {
		return ""
	}
	if v, _ := f.Verdict(n); v.Code == plugin.Unresolvable {
		return ""
	}
	if slices.ContainsFunc(n.Pods, func(p *plugin.Pod) bool {
		return p.DeletionTimestamp != nil && p.Priority() < pod.Priority()
	}) {
		return "a terminating pod on the nominated node."
	}
	return ""
}

// A sacrifice is a way to make room on a node.
type sacrifice struct {
	node       string
	victims    []*plugin.Pod  // the most important first; nil if there is no way
	why        plugin.Verdict // there is none
	violations int            // of disruption budgets
}

// trial is what try finds, or found before.
func trial(f plugin.Failure, n *plugin.Node, budgets budgets) *sacrifice {
	if len(budgets) > 0 {
		return try(f, n, budgets) // budgets change, too
	}
	if known, ok := f.Kept(n).(*sacrifice); ok {
		return known
	}
	out := try(f, n, nil)
	f.Keep(n, out)
	return out
}

// try finds the smallest sacrifice of a node, or why there is none: first all less important pods go, then
// as many come back as possible, those first that a budget protects, and the more important ones.
func try(f plugin.Failure, n *plugin.Node, budgets budgets) *sacrifice {
	priority := f.Pod().Priority()
	var lower []*plugin.Pod
	for _, p := range n.Pods {
		if p.Priority() < priority {
			lower = append(lower, p)
		}
	}
	if len(lower) == 0 {
		return &sacrifice{why: plugin.Refuse(noVictims)}
	}
	slices.SortFunc(lower, byImportance)
	for _, p := range lower {
		f.Remove(p)
	}
	if v := f.Fits(n); !v.OK() {
		for _, p := range slices.Backward(lower) {
			f.Restore(p)
		}
		return &sacrifice{why: v}
	}
	protected, others := budgets.divide(lower)
	out := &sacrifice{node: n.Name}
	for i, p := range slices.Concat(protected, others) {
		f.Restore(p)
		if f.Fits(n).OK() {
			continue
		}
		f.Remove(p)
		out.victims = append(out.victims, p)
		if i < len(protected) {
			out.violations++
		}
	}
	for _, p := range out.victims {
		f.Restore(p)
	}
	if len(out.victims) == 0 {
		// The pod fits without victims: other pods have left the node since it was refused.
		return &sacrifice{why: plugin.Refuse(noVictims)}
	}
	slices.SortFunc(out.victims, byImportance)
	return out
}

// byImportance orders pods of higher priority first, and pods of equal priority by how long they have run, longest first.
func byImportance(a, b *plugin.Pod) int {
	return cmp.Or(cmp.Compare(b.Priority(), a.Priority()), started(a).Compare(started(b)),
		strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// started returns when a pod began to run; one that has not yet is the youngest.
func started(p *plugin.Pod) time.Time {
	if p.Status.StartTime != nil {
		return p.Status.StartTime.Time
	}
	return time.Unix(math.MaxInt32, 0)
}

// less is negative if a does less harm than b: fewer violations, a less important first victim, a smaller sum of
// priorities, fewer victims, and the most important of them younger.
func (a *sacrifice) less(b *sacrifice) int {
	return cmp.Or(
		cmp.Compare(a.violations, b.violations),
		cmp.Compare(a.victims[0].Priority(), b.victims[0].Priority()),
		cmp.Compare(a.sum(), b.sum()),
		cmp.Compare(len(a.victims), len(b.victims)),
		started(b.victims[0]).Compare(started(a.victims[0])),
	)
}

// sum adds up priorities as if the lowest were 0, so that more victims never count for less.
func (a *sacrifice) sum() int64 {
	var sum int64
	for _, p := range a.victims {
		sum += int64(p.Priority()) - math.MinInt32
	}
	return sum
}

// budgets are the disruption budgets of each namespace.
type budgets map[string][]budget

type budget struct {
	*policyv1.PodDisruptionBudget
	selector labels.Selector
}

func newBudgets(s *plugin.Snapshot) budgets {
	var out budgets
	for _, b := range plugin.All(s, client.PodDisruptionBudgets, "") {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil || selector.Empty() {
			continue
		}
		if out == nil {
			out = budgets{}
		}
		out[b.Namespace] = append(out[b.Namespace], budget{b, selector})
	}
	return out
}

// divide splits pods into those whose end violates a budget, if they end in this order, and the others.
func (b budgets) divide(pods []*plugin.Pod) (protected, others []*plugin.Pod) {
	if len(b) == 0 {
		return nil, pods
	}
	left := map[*policyv1.PodDisruptionBudget]int32{}
	for _, p := range pods {
		violates := false
		for _, one := range b[p.Namespace] {
			if !one.selector.Matches(labels.Set(p.Labels)) {
				continue
			}
			if _, gone := one.Status.DisruptedPods[p.Name]; gone {
				continue // it has been counted
			}
			n, known := left[one.PodDisruptionBudget]
			if !known {
				n = one.Status.DisruptionsAllowed
			}
			left[one.PodDisruptionBudget] = n - 1
			violates = violates || n <= 0
		}
		if violates {
			protected = append(protected, p)
		} else {
			others = append(others, p)
		}
	}
	return protected, others
}
