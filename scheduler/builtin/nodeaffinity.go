package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// NodeAffinity keeps pods on the nodes that they select, by nodeSelector and by the required terms of node
// affinity, and ranks these by the preferred terms. A scheduler can add terms for all of its pods.
type NodeAffinity struct {
	Added *corev1.NodeAffinity
}

// Name implements [plugin.Plugin].
func (NodeAffinity) Name() string { return "NodeAffinity" }

// Configure implements [plugin.Configurable].
func (a NodeAffinity) Configure(args json.RawMessage) (plugin.Plugin, error) {
	var from struct {
		AddedAffinity *corev1.NodeAffinity `json:"addedAffinity"`
	}
	if err := plugin.DecodeArgs(args, &from); err != nil {
		return nil, err
	}
	if errs := validateAdded(from.AddedAffinity, field.NewPath("addedAffinity")); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	a.Added = from.AddedAffinity
	return a, nil
}

func validateAdded(a *corev1.NodeAffinity, at *field.Path) field.ErrorList {
	if a == nil {
		return nil
	}
	var errs field.ErrorList
	if required := a.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		at := at.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
		if len(required.NodeSelectorTerms) == 0 {
			errs = append(errs, field.Required(at, "want at least one term"))
		}
		for i, t := range required.NodeSelectorTerms {
			errs = append(errs, validateTerm(t, at.Index(i))...)
		}
	}
	at = at.Child("preferredDuringSchedulingIgnoredDuringExecution")
	for i, p := range a.PreferredDuringSchedulingIgnoredDuringExecution {
		if p.Weight < 1 || p.Weight > 100 {
			errs = append(errs, field.Invalid(at.Index(i).Child("weight"), p.Weight, "want a number from 1 to 100"))
		}
		errs = append(errs, validateTerm(p.Preference, at.Index(i).Child("preference"))...)
	}
	return errs
}

func validateTerm(t corev1.NodeSelectorTerm, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range t.MatchExpressions {
		errs = append(errs, validateRequirement(&t.MatchExpressions[i], at.Child("matchExpressions").Index(i))...)
	}
	for i := range t.MatchFields {
		r, at := &t.MatchFields[i], at.Child("matchFields").Index(i)
		if r.Key != metav1.ObjectNameField {
			errs = append(errs, field.NotSupported(at.Child("key"), r.Key, []string{metav1.ObjectNameField}))
		}
		if (r.Operator == corev1.NodeSelectorOpIn || r.Operator == corev1.NodeSelectorOpNotIn) && len(r.Values) != 1 {
			errs = append(errs, field.Required(at.Child("values"), "want exactly one name"))
		}
		errs = append(errs, validateRequirement(r, at)...)
	}
	return errs
}

func validateRequirement(r *corev1.NodeSelectorRequirement, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.Key == "" {
		errs = append(errs, field.Required(at.Child("key"), "want the key of a label"))
	}
	values := at.Child("values")
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(values, fmt.Sprintf("want at least one for operator %s", r.Operator)))
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			errs = append(errs, field.Forbidden(values, fmt.Sprintf("want none for operator %s", r.Operator)))
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if len(r.Values) != 1 {
			errs = append(errs, field.Required(values, fmt.Sprintf("want exactly one for operator %s", r.Operator)))
		} else if _, err := strconv.ParseInt(r.Values[0], 10, 64); err != nil {
			errs = append(errs, field.Invalid(values.Index(0), r.Values[0], "want a whole number"))
		}
	default:
		errs = append(errs, field.NotSupported(at.Child("operator"), r.Operator, []corev1.NodeSelectorOperator{
			corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt,
		}))
	}
	return errs
}

// PreFilter implements [plugin.PreFilter]. A pod that names its nodes, as those of DaemonSets do, is not held against all
// of them.
func (a NodeAffinity) PreFilter(_ context.Context, pod *plugin.Pod, _ *plugin.Snapshot) (plugin.Check, plugin.Verdict) {
	terms := requiredTerms(pod.Spec.Affinity)
	if len(terms) == 0 {
		if len(pod.Spec.NodeSelector) == 0 && a.Added == nil && terms == nil {
			return nil, plugin.Skip
		}
		return nil, plugin.Verdict{}
	}
	var names []string
	for i := range terms {
		some, named := named(&terms[i])
		if !named {
			return nil, plugin.Verdict{}
		}
		names = append(names, some...)
	}
	if len(names) == 0 {
		return nil, plugin.Never("pod affinity terms conflict")
	}
	return &namedNodes{a, pod, names}, plugin.Verdict{}
}

// named returns the names of nodes that a term comes down to, if it names any.
func named(t *corev1.NodeSelectorTerm) (names []string, named bool) {
	for i := range t.MatchFields {
		r := &t.MatchFields[i]
		if r.Key != metav1.ObjectNameField || r.Operator != corev1.NodeSelectorOpIn {
			continue
		}
		if !named {
			names, named = slices.Clone(r.Values), true
			continue
		}
		names = slices.DeleteFunc(names, func(n string) bool { return !slices.Contains(r.Values, n) })
	}
	return names, named
}

// namedNodes is the check of a pod that names its nodes.
type namedNodes struct {
	affinity NodeAffinity
	pod      *plugin.Pod
	names    []string
}

// Narrow implements [plugin.Narrower].
func (c *namedNodes) Narrow() ([]string, bool) { return c.names, true }

// Filter implements [plugin.Check].
func (c *namedNodes) Filter(node *plugin.Node) plugin.Verdict { return c.affinity.Filter(c.pod, node) }

// Filter implements [plugin.Filter].
func (a NodeAffinity) Filter(pod *plugin.Pod, node *plugin.Node) plugin.Verdict {
	switch {
	case !a.admits(node.Node):
		return plugin.Never("node(s) didn't match scheduler-enforced node affinity")
	case !selects(&pod.Spec, node.Node):
		return plugin.Never("node(s) didn't match Pod's node affinity/selector")
	}
	return plugin.Verdict{}
}

// admits reports whether a node meets the scheduler's own affinity for all pods.
func (a NodeAffinity) admits(node *corev1.Node) bool {
	return a.Added == nil || a.Added.RequiredDuringSchedulingIgnoredDuringExecution == nil ||
		anyHolds(a.Added.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, node)
}

// PreScore implements [plugin.PreScore].
func (a NodeAffinity) PreScore(_ context.Context, pod *plugin.Pod, _ *plugin.Snapshot, _ []*plugin.Node) (plugin.Scorer, plugin.Verdict) {
	if len(preferredTerms(pod.Spec.Affinity)) == 0 && (a.Added == nil || len(a.Added.PreferredDuringSchedulingIgnoredDuringExecution) == 0) {
		return nil, plugin.Skip
	}
	return nil, plugin.Verdict{}
}

// Score implements [plugin.Score]: the weights of the terms that hold, until it is normalised.
func (a NodeAffinity) Score(pod *plugin.Pod, node *plugin.Node) int64 {
	sum := weigh(preferredTerms(pod.Spec.Affinity), node.Node)
	if a.Added != nil {
		sum += weigh(a.Added.PreferredDuringSchedulingIgnoredDuringExecution, node.Node)
	}
	return sum
}

// Normalize implements [plugin.Normalizer].
func (NodeAffinity) Normalize(_ []*plugin.Node, scores []int64) { plugin.Normalize(scores, false) }

// Hints implements [plugin.Hinter].
func (a NodeAffinity) Hints() []plugin.Hint {
	return []plugin.Hint{{Resource: client.Nodes.GroupVersionResource, Action: plugin.Added | plugin.NodeLabels, Helps: func(pod *plugin.Pod, c plugin.Change) bool {
		fits := func(n *corev1.Node) bool { return a.admits(n) && selects(&pod.Spec, n) }
		return fits(c.Node) && (c.OldNode == nil || !fits(c.OldNode))
	}}}
}

// requiredTerms returns nil if nothing is required.
func requiredTerms(a *corev1.Affinity) []corev1.NodeSelectorTerm {
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	if terms := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms; terms != nil {
		return terms
	}
	return []corev1.NodeSelectorTerm{} // which nothing meets
}

func preferredTerms(a *corev1.Affinity) []corev1.PreferredSchedulingTerm {
	if a == nil || a.NodeAffinity == nil {
		return nil
	}
	return a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
}

func selects(spec *corev1.PodSpec, node *corev1.Node) bool {
	for k, v := range spec.NodeSelector {
		if have, ok := node.Labels[k]; !ok || have != v {
			return false
		}
	}
	terms := requiredTerms(spec.Affinity)
	return terms == nil || anyHolds(terms, node)
}

// anyHolds reports whether one term holds, with all that it says. A term that says nothing matches nothing.
func anyHolds(terms []corev1.NodeSelectorTerm, node *corev1.Node) bool {
	for i := range terms {
		if t := &terms[i]; len(t.MatchExpressions)+len(t.MatchFields) > 0 && holds(t, node) {
			return true
		}
	}
	return false
}

// weigh sums up the preferences that hold. One that says nothing counts nowhere.
func weigh(terms []corev1.PreferredSchedulingTerm, node *corev1.Node) int64 {
	var sum int64
	for i := range terms {
		if t := &terms[i].Preference; len(t.MatchExpressions)+len(t.MatchFields) > 0 && holds(t, node) {
			sum += int64(terms[i].Weight)
		}
	}
	return sum
}

func holds(t *corev1.NodeSelectorTerm, node *corev1.Node) bool {
	for i := range t.MatchExpressions {
		r := &t.MatchExpressions[i]
		value, ok := node.Labels[r.Key]
		if !meets(r, value, ok) {
			return false
		}
	}
	for i := range t.MatchFields { // the API allows metadata.name alone
		if r := &t.MatchFields[i]; r.Key != metav1.ObjectNameField || !meets(r, node.Name, true) {
			return false
		}
	}
	return true
}

func meets(r *corev1.NodeSelectorRequirement, value string, exists bool) bool {
	switch r.Operator {
	case corev1.NodeSelectorOpIn:
		return exists && slices.Contains(r.Values, value)
	case corev1.NodeSelectorOpNotIn:
		return !exists || !slices.Contains(r.Values, value)
	case corev1.NodeSelectorOpExists:
		return exists
	case corev1.NodeSelectorOpDoesNotExist:
		return !exists
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if !exists || len(r.Values) != 1 {
			return false
		}
		have, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return false
		}
		bound, err := strconv.ParseInt(r.Values[0], 10, 64)
		if err != nil {
			return false
		}
		if r.Operator == corev1.NodeSelectorOpGt {
			return have > bound
		}
		return have < bound
	}
	return false
}
