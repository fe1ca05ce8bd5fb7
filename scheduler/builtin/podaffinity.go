package builtin

import (
	"context"
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// InterPodAffinity implements affinity and anti-affinity between pods, in both directions: the terms of the pod, and the
// terms of the pods that are already placed. Required terms filter nodes, preferred terms rank them.
type InterPodAffinity struct {
	// HardPodAffinityWeight is what a required affinity of a placed pod counts as preference for pods that it selects; nil
	// means 1.
	HardPodAffinityWeight *int32

	// IgnorePreferredTermsOfExistingPods leaves pods alone that prefer nothing themselves.
	IgnorePreferredTermsOfExistingPods bool
}

// Name implements [plugin.Plugin].
func (InterPodAffinity) Name() string { return "InterPodAffinity" }

// Configure implements [plugin.Configurable].
func (InterPodAffinity) Configure(args json.RawMessage) (plugin.Plugin, error) {
	var a struct {
		HardPodAffinityWeight              *int32 `json:"hardPodAffinityWeight"`
		IgnorePreferredTermsOfExistingPods bool   `json:"ignorePreferredTermsOfExistingPods"`
	}
	if err := plugin.DecodeArgs(args, &a); err != nil {
		return nil, err
	}
	if w := a.HardPodAffinityWeight; w != nil && (*w < 0 || *w > 100) {
		return nil, field.Invalid(field.NewPath("hardPodAffinityWeight"), *w, "want a number from 0 to 100")
	}
	return InterPodAffinity(a), nil
}

// PreFilter implements [plugin.PreFilter].
func (InterPodAffinity) PreFilter(_ context.Context, pod *plugin.Pod, s *plugin.Snapshot) (plugin.Check, plugin.Verdict) {
	carried := s.Carried(plugin.RequiredAntiAffinity, pod)
	if len(carried) == 0 && !s.Promises(plugin.RequiredAntiAffinity) && (pod.Affinity == nil || len(pod.Affinity[plugin.RequiredAffinity])+len(pod.Affinity[plugin.RequiredAntiAffinity]) == 0) {
		return nil, plugin.Skip
	}
	c := &affinityCheck{pod: pod, snapshot: s, carried: carried, generation: s.CarriedGeneration()}
	if pod.Affinity == nil {
		return c, plugin.Verdict{}
	}
	if terms := pod.Affinity[plugin.RequiredAffinity]; len(terms) > 0 {
		queries := make([]*plugin.PodQuery, len(terms))
		c.first = true
		for i := range terms {
			queries[i] = terms[i].Pods
			c.first = c.first && s.Selects(terms[i].Pods, pod)
		}
		c.near = countTerms(s, terms, plugin.AllOf(queries...))
	}
	c.away = countTerms(s, pod.Affinity[plugin.RequiredAntiAffinity], nil)
	return c, plugin.Verdict{}
}

// near is a term of a pod with its selected pods, or with pods that all terms select.
type near struct {
	key    string
	counts *plugin.Counts
	weight int64
}

// countTerms counts the pods that each term selects. If all is not nil, it counts only pods that all selects.
func countTerms(s *plugin.Snapshot, terms []plugin.Term, all *plugin.PodQuery) []near {
	out := make([]near, len(terms))
	for i := range terms {
		pods := all
		if pods == nil {
			pods = terms[i].Pods
		}
		out[i] = near{terms[i].Key, s.Count(pods, terms[i].Key, plugin.NodeQuery{}), terms[i].Weight}
	}
	return out
}

// affinityCheck is what required terms of a pod and of others say.
type affinityCheck struct {
	pod      *plugin.Pod
	snapshot *plugin.Snapshot

	near  []near // each has to have pods in the domain of the node that all terms select
	first bool   // the pod is one of those itself, so that it may be the first
	away  []near // none may have pods in the domain of the node

	carried    []*plugin.Carried // no carrier may be in the domain of the node
	generation uint64            // of carried
}

// Filter implements [plugin.Check].
func (c *affinityCheck) Filter(node *plugin.Node) plugin.Verdict {
	if i := c.missing(node); i >= 0 {
		return plugin.Never("node(s) didn't match pod affinity rules")
	}
	if i := c.disturbed(node); i >= 0 {
		return plugin.Refuse("node(s) didn't match pod anti-affinity rules")
	}
	if c.disturbs(node) != nil {
		return plugin.Refuse("node(s) didn't satisfy existing pods anti-affinity rules")
	}
	return plugin.Verdict{}
}

// missing returns the index of a required affinity term without a matching pod in the node's domain, or -1. If no pod in
// the cluster matches any term, a pod that its own terms select may go to any node that is in a domain of each.
func (c *affinityCheck) missing(node *plugin.Node) int {
	none := -1
	for i := range c.near {
		if !c.near[i].counts.Has(node) {
			return i
		}
		if none < 0 && c.near[i].counts.At(node) == 0 {
			none = i
		}
	}
	if none >= 0 && c.first && !slices.ContainsFunc(c.near, func(n near) bool { return n.counts.Total() > 0 }) {
		return -1
	}
	return none
}

// disturbed returns the index of a required anti-affinity term with a matching pod in the node's domain, or -1.
func (c *affinityCheck) disturbed(node *plugin.Node) int {
	return slices.IndexFunc(c.away, func(n near) bool { return n.counts.At(node) > 0 })
}

// disturbs returns a term of others that keeps the pod away, or nil.
func (c *affinityCheck) disturbs(node *plugin.Node) *plugin.Carried {
	if now := c.snapshot.CarriedGeneration(); now != c.generation {
		c.carried, c.generation = c.snapshot.Carried(plugin.RequiredAntiAffinity, c.pod), now
	}
	for _, t := range c.carried {
		if t.At(node) > 0 {
			return t
		}
	}
	return nil
}

// Explain implements [plugin.CheckExplainer].
func (c *affinityCheck) Explain(node *plugin.Node) []plugin.Lack {
	if i := c.missing(node); i >= 0 {
		return []plugin.Lack{{What: "pods to be near to in " + c.near[i].key, Asked: 1, Total: int64(c.near[i].counts.Total())}}
	}
	if i := c.disturbed(node); i >= 0 {
		return []plugin.Lack{{What: c.away[i].key + " without pods to keep away from", Asked: 1, Total: 1}}
	}
	if t := c.disturbs(node); t != nil {
		return []plugin.Lack{{What: t.Key + " without pods that keep away from it", Asked: 1, Total: 1}}
	}
	return nil
}

// PreScore implements [plugin.PreScore].
func (a InterPodAffinity) PreScore(_ context.Context, pod *plugin.Pod, s *plugin.Snapshot, _ []*plugin.Node) (plugin.Scorer, plugin.Verdict) {
	var scorer *affinityScorer
	add := func(key string, counts *plugin.Counts, weight int64) {
		if counts.Total() == 0 || weight == 0 {
			return
		}
		if scorer == nil {
			scorer = &affinityScorer{}
		}
		scorer.terms = append(scorer.terms, near{key, counts, weight})
	}
	prefers := pod.Affinity != nil && len(pod.Affinity[plugin.PreferredAffinity])+len(pod.Affinity[plugin.PreferredAntiAffinity]) > 0
	if prefers {
		for _, t := range pod.Affinity[plugin.PreferredAffinity] {
			add(t.Key, s.Count(t.Pods, t.Key, plugin.NodeQuery{}), t.Weight)
		}
		for _, t := range pod.Affinity[plugin.PreferredAntiAffinity] {
			add(t.Key, s.Count(t.Pods, t.Key, plugin.NodeQuery{}), -t.Weight)
		}
	}
	if prefers || !a.IgnorePreferredTermsOfExistingPods {
		hard := int64(1)
		if a.HardPodAffinityWeight != nil {
			hard = int64(*a.HardPodAffinityWeight)
		}
		for _, t := range s.Carried(plugin.RequiredAffinity, pod) {
			add(t.Key, t.Counts, hard)
		}
		for _, t := range s.Carried(plugin.PreferredAffinity, pod) {
			add(t.Key, t.Counts, t.Weight)
		}
		for _, t := range s.Carried(plugin.PreferredAntiAffinity, pod) {
			add(t.Key, t.Counts, -t.Weight)
		}
	}
	if scorer == nil {
		return nil, plugin.Skip
	}
	return scorer, plugin.Verdict{}
}

// affinityScorer is what preferences of a pod and of others say.
type affinityScorer struct{ terms []near }

// Score implements [plugin.Scorer]: the weights of all pods in the domains of the node, until it is normalised. It
// is negative where the pod is better kept away.
func (s *affinityScorer) Score(node *plugin.Node) int64 {
	var sum int64
	for i := range s.terms {
		sum += s.terms[i].weight * int64(s.terms[i].counts.At(node))
	}
	return sum
}

// Normalize implements [plugin.Normalizer]: the worst node gets 0 and the best MaxScore.
func (s *affinityScorer) Normalize(_ []*plugin.Node, scores []int64) {
	if len(scores) == 0 {
		return
	}
	least, most := slices.Min(scores), slices.Max(scores)
	for i, n := range scores {
		if scores[i] = 0; most > least {
			scores[i] = int64(plugin.MaxScore * (float64(n-least) / float64(most-least)))
		}
	}
}

// Hints implements [plugin.Hinter].
func (InterPodAffinity) Hints() []plugin.Hint {
	wants := func(pod *plugin.Pod, kind plugin.TermKind) bool {
		return pod.Affinity != nil && len(pod.Affinity[kind]) > 0
	}
	return []plugin.Hint{
		{Resource: client.Pods.GroupVersionResource, Action: plugin.Added, Helps: func(pod *plugin.Pod, _ plugin.Change) bool {
			return wants(pod, plugin.RequiredAffinity)
		}},
		{Resource: client.Pods.GroupVersionResource, Action: plugin.PodLabels},
		{Resource: client.Pods.GroupVersionResource, Action: plugin.Deleted, Helps: func(pod *plugin.Pod, c plugin.Change) bool {
			// The last pod to be near to is gone, so that it can be the first; or one that kept away, or that it kept away from.
			return pod.Affinity != nil || wants(c.OldPod, plugin.RequiredAntiAffinity)
		}},
		{Resource: client.Nodes.GroupVersionResource, Action: plugin.Added | plugin.Deleted | plugin.NodeLabels},
		{Resource: client.Namespaces.GroupVersionResource, Action: plugin.Added | plugin.Updated | plugin.Deleted},
	}
}
