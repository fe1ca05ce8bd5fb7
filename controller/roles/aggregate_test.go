package roles_test

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/controller/roles"
)

func TestAggregate(t *testing.T) {
	clusterRole := func(name, label string, lines ...string) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"to": label}}, Rules: rules(lines...)}
	}
	all := []*rbacv1.ClusterRole{
		clusterRole("z", "view", "get core pods", "get core secrets"),
		clusterRole("a", "view", "get core pods", "list core pods"),
		clusterRole("b", "edit", "create core pods"),
		clusterRole("self", "view", "* * *"),
	}
	self := func(labels ...string) *rbacv1.ClusterRole {
		r := clusterRole("self", "view", "* * *")
		r.AggregationRule = &rbacv1.AggregationRule{}
		for _, l := range labels {
			r.AggregationRule.ClusterRoleSelectors = append(r.AggregationRule.ClusterRoleSelectors, metav1.LabelSelector{MatchLabels: map[string]string{"to": l}})
		}
		return r
	}
	for name, tt := range map[string]struct {
		role *rbacv1.ClusterRole
		want []rbacv1.PolicyRule
	}{
		"no aggregation":        {all[0], all[0].Rules},
		"in the order of names": {self("view"), rules("get core pods", "list core pods", "get core secrets")},
		"selectors in order":    {self("edit", "view", "edit"), rules("create core pods", "get core pods", "list core pods", "get core secrets")},
		"nothing selected":      {self("x"), nil},
	} {
		got, err := roles.Aggregate(tt.role, all)
		if err != nil || len(got) != len(tt.want) {
			t.Fatalf("%s: %v, %v, want %v", name, got, err, tt.want)
		}
		for i := range got {
			if got[i].String() != tt.want[i].String() {
				t.Errorf("%s: rule %d is %v, want %v", name, i, got[i], tt.want[i])
			}
		}
	}
	invalid := self()
	invalid.AggregationRule.ClusterRoleSelectors = []metav1.LabelSelector{{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}}}
	if got, err := roles.Aggregate(invalid, all); err == nil {
		t.Errorf("an invalid selector gives %v", got)
	}
}

// rules returns the rules of lines "VERB GROUP RESOURCE".
func rules(lines ...string) (rules []rbacv1.PolicyRule) {
	for _, l := range lines {
		w := strings.Fields(l)
		rules = append(rules, rbacv1.PolicyRule{Verbs: w[:1], APIGroups: w[1:2], Resources: w[2:3]})
	}
	return rules
}
