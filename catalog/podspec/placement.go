package podspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkPlacement checks what decides on which node a pod runs.
func (c *checker) checkPlacement(at where) {
	s := c.spec
	c.add(metav1validation.ValidateLabels(s.NodeSelector, at.child("nodeSelector").path)...)
	c.checkTolerations(at.child("tolerations"))
	c.checkSpread(at.child("topologySpreadConstraints"))
	a, at := s.Affinity, at.child("affinity")
	if a == nil {
		return
	}
	if a.NodeAffinity != nil {
		c.checkNodeAffinity(a.NodeAffinity, at.child("nodeAffinity"))
	}
	if a.PodAffinity != nil {
		c.checkPodAffinity(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution, at.child("podAffinity"))
	}
	if a.PodAntiAffinity != nil {
		c.checkPodAffinity(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, at.child("podAntiAffinity"))
	}
}

const (
	required  = "requiredDuringSchedulingIgnoredDuringExecution"
	preferred = "preferredDuringSchedulingIgnoredDuringExecution"
)

func (c *checker) checkNodeAffinity(a *corev1.NodeAffinity, at where) {
	if sel := a.RequiredDuringSchedulingIgnoredDuringExecution; sel != nil {
		c.checkNodeSelector(sel, at.child(required))
	}
	for i := range a.PreferredDuringSchedulingIgnoredDuringExecution {
		t, at := &a.PreferredDuringSchedulingIgnoredDuringExecution[i], at.child(preferred).index(i)
		c.checkWeight(t.Weight, at.child("weight"))
		c.checkNodeTerm(&t.Preference, false, at.child("preference"))
	}
}

// ValidateNodeSelector returns the faults of a choice of nodes, of a volume or a device.
func ValidateNodeSelector(sel *corev1.NodeSelector, at *field.Path) field.ErrorList {
	return faults(at, func(at where) field.ErrorList {
		c := checker{}
		c.checkNodeSelector(sel, at)
		return c.errs
	})
}

func (c *checker) checkNodeSelector(sel *corev1.NodeSelector, at where) {
	terms := at.child("nodeSelectorTerms")
	if len(sel.NodeSelectorTerms) == 0 {
		c.add(field.Required(terms.path, "must have at least one node selector term"))
	}
	for i := range sel.NodeSelectorTerms {
		c.checkNodeTerm(&sel.NodeSelectorTerms[i], true, terms.index(i))
	}
}

func (c *checker) checkWeight(w int32, at where) {
	if w <= 0 || w > 100 {
		c.invalid(at, w, "must be in the range 1-100")
	}
}

// checkNodeTerm checks a term; values that no label can have are a fault only if the term is required, as upstream.
func (c *checker) checkNodeTerm(t *corev1.NodeSelectorTerm, isRequired bool, at where) {
	for i, r := range t.MatchExpressions {
		at := at.child("matchExpressions").index(i)
		switch r.Operator {
		case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
			if len(r.Values) == 0 {
				c.add(field.Required(at.child("values").path, "must be specified when `operator` is 'In' or 'NotIn'"))
			}
		case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
			if len(r.Values) > 0 {
				c.forbidden(at.child("values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
			}
		case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			if len(r.Values) != 1 {
				c.add(field.Required(at.child("values").path, "must be specified single value when `operator` is 'Lt' or 'Gt'"))
			}
		default:
			c.invalid(at.child("operator"), r.Operator, "not a valid selector operator")
		}
		c.add(metav1validation.ValidateLabelName(r.Key, at.child("key").path)...)
		if isRequired {
			for j, v := range r.Values {
				c.each(at.child("values").index(j), v, validation.IsValidLabelValue(v))
			}
		}
	}
	for i, r := range t.MatchFields {
		at := at.child("matchFields").index(i)
		switch r.Operator {
		case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
			if len(r.Values) != 1 {
				c.add(field.Required(at.child("values").path, "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"))
			}
		default:
			c.invalid(at.child("operator"), r.Operator, "not a valid selector operator")
		}
		if r.Key != metav1.ObjectNameField {
			c.invalid(at.child("key"), r.Key, "not a valid field selector key")
			continue
		}
		for j, v := range r.Values {
			c.each(at.child("values").index(j), v, validation.IsDNS1123Subdomain(v))
		}
	}
}

func (c *checker) checkPodAffinity(need []corev1.PodAffinityTerm, want []corev1.WeightedPodAffinityTerm, at where) {
	for i := range need {
		c.checkPodTerm(&need[i], at.child(required).index(i))
	}
	for i := range want {
		at := at.child(preferred).index(i)
		c.checkWeight(want[i].Weight, at.child("weight"))
		c.checkPodTerm(&want[i].PodAffinityTerm, at.child("podAffinityTerm"))
	}
}

func (c *checker) checkPodTerm(t *corev1.PodAffinityTerm, at where) {
	opts := metav1validation.LabelSelectorValidationOptions{}
	c.add(metav1validation.ValidateLabelSelector(t.LabelSelector, opts, at.child("labelSelector").path)...)
	c.add(metav1validation.ValidateLabelSelector(t.NamespaceSelector, opts, at.child("namespaceSelector").path)...)
	for i, ns := range t.Namespaces {
		c.each(at.child("namespaces").index(i), ns, validation.IsDNS1123Label(ns))
	}
	c.checkTopologyKey(t.TopologyKey, at.child("topologyKey"))
	c.checkLabelKeys(t.MatchLabelKeys, t.LabelSelector, at.child("matchLabelKeys"))
	c.checkLabelKeys(t.MismatchLabelKeys, t.LabelSelector, at.child("mismatchLabelKeys"))
	mismatch := sets.New(t.MismatchLabelKeys...)
	for i, key := range t.MatchLabelKeys {
		if mismatch.Has(key) {
			c.invalid(at.child("matchLabelKeys").index(i), key, "exists in both matchLabelKeys and mismatchLabelKeys")
		}
	}
}

func (c *checker) checkTopologyKey(key string, at where) {
	if key == "" {
		c.add(field.Required(at.path, "can not be empty"))
		return
	}
	c.add(metav1validation.ValidateLabelName(key, at.path)...)
}

func (c *checker) checkLabelKeys(keys []string, sel *metav1.LabelSelector, at where) {
	if len(keys) > 0 && sel == nil {
		c.forbidden(at, "must not be specified when labelSelector is not set")
		return
	}
	for i, key := range keys {
		c.add(metav1validation.ValidateLabelName(key, at.index(i).path)...)
	}
}

func (c *checker) checkTolerations(at where) {
	for i, t := range c.spec.Tolerations {
		at := at.index(i)
		if t.Key != "" {
			c.add(metav1validation.ValidateLabelName(t.Key, at.child("key").path)...)
		}
		if t.Key == "" && t.Operator != corev1.TolerationOpExists {
			c.invalid(at.child("operator"), t.Operator, "operator must be Exists when `key` is empty, which means \"match all values and all keys\"")
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			c.invalid(at.child("effect"), t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
		}
		switch t.Operator {
		case corev1.TolerationOpEqual, "":
			c.each(at.child("operator"), t.Value, validation.IsValidLabelValue(t.Value))
		case corev1.TolerationOpExists:
			if t.Value != "" {
				c.invalid(at.child("operator"), t.Value, "value must be empty when `operator` is 'Exists'")
			}
		case corev1.TolerationOpLt, corev1.TolerationOpGt:
			// Their gate, TaintTolerationComparisonOperators, is closed by default in v1.37.
			c.add(field.NotSupported(at.child("operator").path, t.Operator, []corev1.TolerationOperator{
				corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpLt, corev1.TolerationOpGt,
			}))
		default:
			c.add(field.NotSupported(at.child("operator").path, t.Operator, []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
		}
		c.add(ValidateTaintEffect(t.Effect, true, at.child("effect").path)...)
	}
}

// ValidateTaintEffect checks a taint's effect; a toleration may leave it out,
// which means all effects.
func ValidateTaintEffect(effect corev1.TaintEffect, mayBeEmpty bool, at *field.Path) field.ErrorList {
	var r report
	if effect == "" && mayBeEmpty {
		return nil
	}
	requiredOf(&r, where{at}, effect, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)
	return r.errs
}

func (c *checker) checkSpread(at where) {
	type key struct {
		topology string
		action   corev1.UnsatisfiableConstraintAction
	}
	seen := map[key]bool{}
	for i, t := range c.spec.TopologySpreadConstraints {
		at := at.index(i)
		if t.MaxSkew <= 0 {
			c.invalid(at.child("maxSkew"), t.MaxSkew, "must be greater than zero")
		}
		if t.TopologyKey == "" { // upstream checks no more of it here
			c.add(field.Required(at.child("topologyKey").path, "can not be empty"))
		}
		if t.WhenUnsatisfiable != corev1.DoNotSchedule && t.WhenUnsatisfiable != corev1.ScheduleAnyway {
			c.add(field.NotSupported(at.child("whenUnsatisfiable").path, t.WhenUnsatisfiable, []corev1.UnsatisfiableConstraintAction{corev1.DoNotSchedule, corev1.ScheduleAnyway}))
		}
		k := key{t.TopologyKey, t.WhenUnsatisfiable}
		if seen[k] {
			c.add(field.Duplicate(at.child("{topologyKey, whenUnsatisfiable}").path, fmt.Sprintf("{%v, %v}", t.TopologyKey, t.WhenUnsatisfiable)))
		}
		seen[k] = true
		if t.MinDomains != nil {
			if *t.MinDomains <= 0 {
				c.invalid(at.child("minDomains"), *t.MinDomains, "must be greater than zero")
			}
			if t.WhenUnsatisfiable != corev1.DoNotSchedule {
				c.invalid(at.child("minDomains"), *t.MinDomains, fmt.Sprintf("can only use minDomains if whenUnsatisfiable=%s, not %s", corev1.DoNotSchedule, t.WhenUnsatisfiable))
			}
		}
		if p := t.NodeAffinityPolicy; p != nil {
			requiredOf(&c.report, at.child("nodeAffinityPolicy"), *p, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)
		}
		if p := t.NodeTaintsPolicy; p != nil {
			requiredOf(&c.report, at.child("nodeTaintsPolicy"), *p, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)
		}
		c.add(metav1validation.ValidateLabelSelector(t.LabelSelector, metav1validation.LabelSelectorValidationOptions{}, at.child("labelSelector").path)...)
		c.checkLabelKeys(t.MatchLabelKeys, t.LabelSelector, at.child("matchLabelKeys"))
	}
}

// MatchLabelKeys makes the keys that a new pod wants other pods compared by into
// selectors with the values of its own labels. Spread constraints are left as
// they are: there, comparing is the scheduler's part.
func MatchLabelKeys(spec *corev1.PodSpec, labels map[string]string) {
	if spec.Affinity == nil {
		return
	}
	var terms []*corev1.PodAffinityTerm
	gather := func(need []corev1.PodAffinityTerm, want []corev1.WeightedPodAffinityTerm) {
		for i := range need {
			terms = append(terms, &need[i])
		}
		for i := range want {
			terms = append(terms, &want[i].PodAffinityTerm)
		}
	}
	if a := spec.Affinity.PodAffinity; a != nil {
		gather(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if a := spec.Affinity.PodAntiAffinity; a != nil {
		gather(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	for _, t := range terms {
		if t.LabelSelector == nil {
			continue
		}
		more := func(keys []string, op metav1.LabelSelectorOperator) {
			for _, key := range keys {
				if value, ok := labels[key]; ok {
					t.LabelSelector.MatchExpressions = append(t.LabelSelector.MatchExpressions,
						metav1.LabelSelectorRequirement{Key: key, Operator: op, Values: []string{value}})
				}
			}
		}
		more(t.MatchLabelKeys, metav1.LabelSelectorOpIn)
		more(t.MismatchLabelKeys, metav1.LabelSelectorOpNotIn)
	}
}
