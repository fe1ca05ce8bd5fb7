package roles

import (
	"slices"
	"strconv"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Aggregate returns the rules that a cluster role with an aggregation rule has: those of each other
// role that one of its selectors selects, in the order of the selectors and then of names, each rule
// once. It returns the role's own rules if it has no aggregation rule, and an error if a selector is
// invalid.
func Aggregate(r *rbacv1.ClusterRole, all []*rbacv1.ClusterRole) ([]rbacv1.PolicyRule, error) {
	if r.AggregationRule == nil {
		return r.Rules, nil
	}
	sorted := slices.SortedFunc(slices.Values(all), func(a, b *rbacv1.ClusterRole) int { return strings.Compare(a.Name, b.Name) })
	rules := []rbacv1.PolicyRule{}
	known := map[string]bool{}
	for i := range r.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&r.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, err
		}
		for _, other := range sorted {
			if other.Name == r.Name || !selector.Matches(labels.Set(other.Labels)) {
				continue
			}
			for _, rule := range other.Rules {
				if key := keyOf(&rule); !known[key] {
					known[key] = true
					rules = append(rules, rule)
				}
			}
		}
	}
	return rules, nil
}

func sameRules(a, b []rbacv1.PolicyRule) bool {
	return slices.EqualFunc(a, b, func(a, b rbacv1.PolicyRule) bool { return sameRule(&a, &b) })
}

// keyOf returns a text that is the same for rules with the same lists.
func keyOf(r *rbacv1.PolicyRule) string {
	var key strings.Builder
	for _, list := range [][]string{r.Verbs, r.APIGroups, r.Resources, r.ResourceNames, r.NonResourceURLs} {
		key.WriteString(strconv.Itoa(len(list)))
		for _, value := range list {
			key.WriteByte(':')
			key.WriteString(strconv.Itoa(len(value)))
			key.WriteByte(':')
			key.WriteString(value)
		}
		key.WriteByte('|')
	}
	return key.String()
}

// sameRule reports whether two rules have the same lists.
func sameRule(a, b *rbacv1.PolicyRule) bool {
	return slices.Equal(a.Verbs, b.Verbs) && slices.Equal(a.APIGroups, b.APIGroups) && slices.Equal(a.Resources, b.Resources) &&
		slices.Equal(a.ResourceNames, b.ResourceNames) && slices.Equal(a.NonResourceURLs, b.NonResourceURLs)
}
