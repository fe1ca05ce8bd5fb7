package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// PodTopologySpread spreads pods over the domains of a topology: hosts, zones, or the values of any other node label
// (KEP-895, 3022, 3094, 3243). Constraints with DoNotSchedule filter nodes, constraints with ScheduleAnyway rank them.
//
// A pod without constraints gets default ones, which count the pods that its services and its controller select. With the
// zero value these are the system's: hosts with a skew of 3 and zones with a skew of 5, which rank only.
type PodTopologySpread struct {
	List     bool                              // the default constraints are Defaults, instead of those of the system
	Defaults []corev1.TopologySpreadConstraint // without selectors
}

// systemDefaults are the constraints of pods if neither the pod nor the configuration has any.
var systemDefaults = []corev1.TopologySpreadConstraint{
	{TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, MaxSkew: 3},
	{TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.ScheduleAnyway, MaxSkew: 5},
}

const (
	spreadMismatch  = "node(s) didn't match pod topology spread constraints"
	spreadWithoutIt = spreadMismatch + " (missing required label)"
)

// Name implements [plugin.Plugin].
func (PodTopologySpread) Name() string { return "PodTopologySpread" }

// Configure implements [plugin.Configurable].
func (PodTopologySpread) Configure(args json.RawMessage) (plugin.Plugin, error) {
	var a struct {
		DefaultConstraints []corev1.TopologySpreadConstraint `json:"defaultConstraints"`
		DefaultingType     string                            `json:"defaultingType"`
	}
	if err := plugin.DecodeArgs(args, &a); err != nil {
		return nil, err
	}
	var errs field.ErrorList
	at := field.NewPath("defaultConstraints")
	switch a.DefaultingType {
	case "", "System":
		if len(a.DefaultConstraints) > 0 {
			errs = append(errs, field.Forbidden(at, "want none unless defaultingType is List"))
		}
	case "List":
	default:
		errs = append(errs, field.NotSupported(field.NewPath("defaultingType"), a.DefaultingType, []string{"List", "System"}))
	}
	type which struct {
		key    string
		action corev1.UnsatisfiableConstraintAction
	}
	seen := map[which]bool{}
	for i := range a.DefaultConstraints {
		c, at := &a.DefaultConstraints[i], at.Index(i)
		if c.MaxSkew < 1 {
			errs = append(errs, field.Invalid(at.Child("maxSkew"), c.MaxSkew, "want at least 1"))
		}
		if c.TopologyKey == "" {
			errs = append(errs, field.Required(at.Child("topologyKey"), "want the key of a label of nodes"))
		}
		if c.WhenUnsatisfiable != corev1.DoNotSchedule && c.WhenUnsatisfiable != corev1.ScheduleAnyway {
			errs = append(errs, field.NotSupported(at.Child("whenUnsatisfiable"), c.WhenUnsatisfiable,
				[]corev1.UnsatisfiableConstraintAction{corev1.DoNotSchedule, corev1.ScheduleAnyway}))
		}
		if c.LabelSelector != nil {
			errs = append(errs, field.Forbidden(at.Child("labelSelector"), "want none: services and controllers say which pods count"))
		}
		if c.MinDomains != nil && (*c.MinDomains < 1 || c.WhenUnsatisfiable != corev1.DoNotSchedule) {
			errs = append(errs, field.Invalid(at.Child("minDomains"), *c.MinDomains, "want at least 1, and with DoNotSchedule only"))
		}
		key := which{c.TopologyKey, c.WhenUnsatisfiable}
		if seen[key] {
			errs = append(errs, field.Duplicate(at, fmt.Sprintf("{%s, %s}", c.TopologyKey, c.WhenUnsatisfiable)))
		}
		seen[key] = true
	}
	if len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return PodTopologySpread{List: a.DefaultingType == "List", Defaults: a.DefaultConstraints}, nil
}

// Needs implements [plugin.Needer].
func (p PodTopologySpread) Needs() []schema.GroupVersionResource {
	if len(p.defaults()) == 0 {
		return nil
	}
	return []schema.GroupVersionResource{
		client.Services.GroupVersionResource, client.ReplicationControllers.GroupVersionResource,
		client.ReplicaSets.GroupVersionResource, client.StatefulSets.GroupVersionResource,
	}
}

func (p PodTopologySpread) defaults() []corev1.TopologySpreadConstraint {
	if p.List {
		return p.Defaults
	}
	return systemDefaults
}

// spreads returns the constraints of a pod, its own or the default ones, and whether a node has to be in a domain of
// each to count.
func (p PodTopologySpread) spreads(pod *plugin.Pod, s *plugin.Snapshot, action corev1.UnsatisfiableConstraintAction) (of []plugin.Spread, all bool) {
	if len(pod.Spec.TopologySpreadConstraints) > 0 {
		return chosen(pod.Spreads, action), true
	}
	defaults := p.defaults()
	if !slices.ContainsFunc(defaults, func(c corev1.TopologySpreadConstraint) bool { return c.WhenUnsatisfiable == action }) {
		return nil, false
	}
	selector := selectorOfOwners(pod, s)
	if selector == nil {
		return nil, false
	}
	with := make([]corev1.TopologySpreadConstraint, 0, len(defaults))
	for _, c := range defaults {
		if c.WhenUnsatisfiable == action {
			c.LabelSelector = selector
			with = append(with, c)
		}
	}
	return plugin.NewSpreads(pod.Pod, with), p.List
}

func chosen(all []plugin.Spread, action corev1.UnsatisfiableConstraintAction) []plugin.Spread {
	is := func(s plugin.Spread) bool { return s.WhenUnsatisfiable == action }
	switch i := slices.IndexFunc(all, is); {
	case i < 0:
		return nil
	case !slices.ContainsFunc(all, func(s plugin.Spread) bool { return !is(s) }):
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(s plugin.Spread) bool { return !is(s) })
}

// selectorOfOwners selects the pods that are selected by the same services and the same controller as a
// pod; nil if there is neither.
func selectorOfOwners(pod *plugin.Pod, s *plugin.Snapshot) *metav1.LabelSelector {
	var out *metav1.LabelSelector
	with := func(pairs map[string]string, expressions []metav1.LabelSelectorRequirement) {
		switch {
		case len(pairs)+len(expressions) == 0:
			return
		case out == nil:
			out = &metav1.LabelSelector{MatchLabels: map[string]string{}}
		}
		maps.Copy(out.MatchLabels, pairs)
		out.MatchExpressions = append(out.MatchExpressions, expressions...)
	}
	if len(pod.Labels) > 0 {
		for _, service := range plugin.All(s, client.Services, pod.Namespace) {
			if selected(service.Spec.Selector, pod.Labels) {
				with(service.Spec.Selector, nil)
			}
		}
	}
	owner := metav1.GetControllerOfNoCopy(pod.Pod)
	if owner == nil {
		return out
	}
	var selector *metav1.LabelSelector
	switch owner.Kind {
	case client.ReplicationControllers.Kind:
		if rc, ok := plugin.Find(s, client.ReplicationControllers, pod.Namespace, owner.Name); ok {
			with(rc.Spec.Selector, nil)
		}
	case client.ReplicaSets.Kind:
		if rs, ok := plugin.Find(s, client.ReplicaSets, pod.Namespace, owner.Name); ok {
			selector = rs.Spec.Selector
		}
	case client.StatefulSets.Kind:
		if set, ok := plugin.Find(s, client.StatefulSets, pod.Namespace, owner.Name); ok {
			selector = set.Spec.Selector
		}
	}
	if selector != nil {
		with(selector.MatchLabels, selector.MatchExpressions)
	}
	return out
}

// selected reports whether a service selects a pod; one without a selector selects none.
func selected(selector, labels map[string]string) bool {
	for k, v := range selector {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	return len(selector) > 0
}

// PreFilter implements [plugin.PreFilter].
func (p PodTopologySpread) PreFilter(_ context.Context, pod *plugin.Pod, s *plugin.Snapshot) (plugin.Check, plugin.Verdict) {
	spreads, all := p.spreads(pod, s, corev1.DoNotSchedule)
	if len(spreads) == 0 {
		return nil, plugin.Skip
	}
	c := &spreadCheck{spreads: spreads, counts: counts(pod, s, spreads, all), self: make([]int, len(spreads))}
	for i := range spreads {
		if s.Selects(spreads[i].Pods, pod) {
			c.self[i] = 1
		}
	}
	return c, plugin.Verdict{}
}

// counts returns the counts for each constraint. With all, nodes that lack one of the labels do not count.
func counts(pod *plugin.Pod, s *plugin.Snapshot, spreads []plugin.Spread, all bool) []*plugin.Counts {
	var keys []string
	if all && len(spreads) > 1 { // one alone: nodes without the label are in no domain anyway
		keys = keysOf(spreads)
	}
	nodes := countedNodes{pod: pod, keys: keys}
	out := make([]*plugin.Counts, len(spreads))
	for i := range spreads {
		out[i] = s.Count(spreads[i].Pods, spreads[i].TopologyKey, nodes.query(spreads[i].TopologySpreadConstraint))
	}
	nodes.done()
	return out
}

// keysOf returns the topology keys of constraints, each once and sorted.
func keysOf(spreads []plugin.Spread) []string {
	keys := make([]string, len(spreads))
	for i := range spreads {
		keys[i] = spreads[i].TopologyKey
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// countedNodes makes the queries for the nodes that count for the constraints of a pod. Constraints with the same policies
// share one.
type countedNodes struct {
	pod     *plugin.Pod
	keys    []string
	queries map[[2]bool]plugin.NodeQuery
	met     map[[2]bool]map[*corev1.Node]bool // answers; nil after done
}

// done ends the time in which answers are kept. The queries may be in use for longer.
func (c *countedNodes) done() { c.met = nil }

// query selects the nodes that count for a constraint: nodes that have all keys and that, as far as the policies of
// the constraint require it, the pod could go to.
func (c *countedNodes) query(of *corev1.TopologySpreadConstraint) plugin.NodeQuery {
	affinity := of.NodeAffinityPolicy == nil || *of.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor
	affinity = affinity && (len(c.pod.Spec.NodeSelector) > 0 || requiredTerms(c.pod.Spec.Affinity) != nil)
	taints := of.NodeTaintsPolicy != nil && *of.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor
	if len(c.keys) == 0 && !affinity && !taints {
		return plugin.NodeQuery{}
	}
	by := [2]bool{affinity, taints}
	if q, ok := c.queries[by]; ok {
		return q
	}
	if c.queries == nil {
		c.queries, c.met = map[[2]bool]plugin.NodeQuery{}, map[[2]bool]map[*corev1.Node]bool{}
	}
	q := plugin.NodeQuery{Key: plugin.NodeKey(c.text(affinity, taints)), Match: func(n *corev1.Node) bool {
		if met, known := c.met[by][n]; known {
			return met
		}
		met := hasAll(n.Labels, c.keys) && (!affinity || selects(&c.pod.Spec, n)) && (!taints || bears(c.pod, n))
		if answers := c.met[by]; answers != nil {
			answers[n] = met
		}
		return met
	}}
	c.queries[by], c.met[by] = q, map[*corev1.Node]bool{}
	return q
}

// text is all that a query depends on.
func (c *countedNodes) text(affinity, taints bool) string {
	var key strings.Builder
	_, _ = fmt.Fprintf(&key, "spread %q", c.keys)
	if affinity {
		_, _ = fmt.Fprintf(&key, " selector %q", labels.Set(c.pod.Spec.NodeSelector).String())
		for _, t := range requiredTerms(c.pod.Spec.Affinity) {
			_, _ = fmt.Fprintf(&key, " term %q %q", t.MatchExpressions, t.MatchFields)
		}
	}
	if taints {
		_, _ = key.WriteString(" tolerations")
		for _, t := range c.pod.Spec.Tolerations {
			_, _ = fmt.Fprintf(&key, " %q %q %q %q", t.Key, t.Operator, t.Value, t.Effect)
		}
	}
	return key.String()
}

func hasAll(labels map[string]string, keys []string) bool {
	for _, k := range keys {
		if _, ok := labels[k]; !ok {
			return false
		}
	}
	return true
}

// spreadCheck checks the constraints of a pod that must be kept.
type spreadCheck struct {
	spreads []plugin.Spread
	counts  []*plugin.Counts // by constraint
	self    []int            // 1 where the constraint selects the pod itself
}

// skew returns by how much the domain of the node would be ahead of the one that has the fewest pods.
func (c *spreadCheck) skew(i int, node *plugin.Node) int {
	least := c.counts[i].Min()
	if d := c.spreads[i].MinDomains; d != nil && c.counts[i].Domains() < int(*d) {
		least = 0 // domains that do not exist yet have none
	}
	return c.counts[i].At(node) + c.self[i] - least
}

// Filter implements [plugin.Check].
func (c *spreadCheck) Filter(node *plugin.Node) plugin.Verdict {
	for i := range c.spreads {
		if !c.counts[i].In(node) {
			return plugin.Never(spreadWithoutIt)
		}
		if c.skew(i, node) > int(c.spreads[i].MaxSkew) {
			return plugin.Refuse(spreadMismatch)
		}
	}
	return plugin.Verdict{}
}

// Explain implements [plugin.CheckExplainer].
func (c *spreadCheck) Explain(node *plugin.Node) []plugin.Lack {
	var lacks []plugin.Lack
	for i := range c.spreads {
		key, most := c.spreads[i].TopologyKey, int64(c.spreads[i].MaxSkew)
		if _, ok := node.Labels[key]; !ok {
			lacks = append(lacks, plugin.Lack{What: "label " + key, Asked: 1})
		} else if skew := int64(c.skew(i, node)); skew > most {
			lacks = append(lacks, plugin.Lack{What: "skew of " + key, Asked: skew, Free: most, Total: most})
		}
	}
	return lacks
}

// PreScore implements [plugin.PreScore].
func (p PodTopologySpread) PreScore(_ context.Context, pod *plugin.Pod, s *plugin.Snapshot, nodes []*plugin.Node) (plugin.Scorer, plugin.Verdict) {
	spreads, all := p.spreads(pod, s, corev1.ScheduleAnyway)
	if len(spreads) == 0 {
		return nil, plugin.Skip
	}
	scorer := &spreadScorer{spreads: spreads, counts: counts(pod, s, spreads, all), weights: make([]float64, len(spreads))}
	if all {
		scorer.wanted = keysOf(spreads)
	}
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *plugin.Node) bool { return !hasAll(n.Labels, scorer.wanted) })
	domains := map[string]bool{}
	for i := range spreads {
		n := 0
		clear(domains)
		for _, node := range nodes {
			switch key := spreads[i].TopologyKey; {
			case key == corev1.LabelHostname:
				n++
			default:
				if value := node.Labels[key]; !domains[value] {
					domains[value] = true
					n++
				}
			}
		}
		// Differences between the domains of a small topology count as much as those of a large one.
		scorer.weights[i] = math.Log(float64(n + 2))
	}
	return scorer, plugin.Verdict{}
}

// spreadScorer scores by the constraints of a pod that should be kept.
type spreadScorer struct {
	spreads []plugin.Spread
	counts  []*plugin.Counts // by constraint
	weights []float64        // by constraint
	wanted  []string         // labels without which a node is the worst
}

// Score implements [plugin.Scorer]: the pods that are there already, until it is normalised. Without a
// domain it is -1.
func (s *spreadScorer) Score(node *plugin.Node) int64 {
	if !hasAll(node.Labels, s.wanted) {
		return -1
	}
	var sum float64
	for i := range s.spreads {
		if _, ok := node.Labels[s.spreads[i].TopologyKey]; !ok {
			continue
		}
		n := s.counts[i].At(node)
		if s.spreads[i].TopologyKey == corev1.LabelHostname {
			n = s.counts[i].Here(node)
		}
		sum += float64(n)*s.weights[i] + float64(s.spreads[i].MaxSkew-1)
	}
	return int64(math.Round(sum))
}

// Normalize implements [plugin.Normalizer]: the fewer pods, the better.
func (s *spreadScorer) Normalize(_ []*plugin.Node, scores []int64) {
	least, most := int64(math.MaxInt64), int64(0)
	for _, n := range scores {
		if n >= 0 {
			least, most = min(least, n), max(most, n)
		}
	}
	for i, n := range scores {
		switch {
		case n < 0:
			scores[i] = 0
		case most == 0:
			scores[i] = plugin.MaxScore
		default:
			scores[i] = plugin.MaxScore * (most + least - n) / most
		}
	}
}

// Hints implements [plugin.Hinter]. Default constraints that must be kept depend on services and controllers, too.
func (p PodTopologySpread) Hints() []plugin.Hint {
	node := func(pod *plugin.Pod, c plugin.Change) bool {
		var keys []string
		for i := range pod.Spec.TopologySpreadConstraints {
			if s := &pod.Spec.TopologySpreadConstraints[i]; s.WhenUnsatisfiable == corev1.DoNotSchedule {
				keys = append(keys, s.TopologyKey)
			}
		}
		return c.OldNode != nil && hasAll(c.OldNode.Labels, keys) || c.Node != nil && hasAll(c.Node.Labels, keys)
	}
	hints := []plugin.Hint{
		{
			Resource: client.Pods.GroupVersionResource, Action: plugin.Added | plugin.Deleted | plugin.PodLabels | plugin.PodDying,
			Helps: func(pod *plugin.Pod, c plugin.Change) bool {
				return c.OldPod != nil && c.OldPod.Namespace == pod.Namespace || c.Pod != nil && c.Pod.Namespace == pod.Namespace
			},
		},
		{Resource: client.Nodes.GroupVersionResource, Action: plugin.Added | plugin.Deleted | plugin.NodeLabels | plugin.NodeTaints, Helps: node},
	}
	for _, r := range p.Needs() {
		hints = append(hints, plugin.Hint{
			Resource: r, Action: plugin.Added | plugin.Updated | plugin.Deleted,
			Helps: func(pod *plugin.Pod, _ plugin.Change) bool {
				return p.List && len(pod.Spec.TopologySpreadConstraints) == 0
			},
		})
	}
	return hints
}
