package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/auth/rbac/reconciliation"

	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/apiserver/rbac/bootstrappolicy"
)

// oneRole has a role that exists. It records nothing, because the result of upstream's reconciliation
// has the object that it wrote.
type oneRole struct{ role *rbacv1.ClusterRole }

func (o oneRole) Get(string, string) (reconciliation.RuleOwner, error) {
	return reconciliation.ClusterRoleRuleOwner{ClusterRole: o.role.DeepCopy()}, nil
}

func (oneRole) Create(r reconciliation.RuleOwner) (reconciliation.RuleOwner, error) { return r, nil }

func (oneRole) Update(r reconciliation.RuleOwner) (reconciliation.RuleOwner, error) { return r, nil }

type oneBinding struct{ binding *rbacv1.ClusterRoleBinding }

func (o oneBinding) Get(string, string) (reconciliation.RoleBinding, error) {
	return reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: o.binding.DeepCopy()}, nil
}

func (oneBinding) Create(b reconciliation.RoleBinding) (reconciliation.RoleBinding, error) {
	return b, nil
}

func (oneBinding) Update(b reconciliation.RoleBinding) (reconciliation.RoleBinding, error) {
	return b, nil
}
func (oneBinding) Delete(string, string, types.UID) error { return nil }

func (c chance) meta() metav1.ObjectMeta {
	values := func() map[string]string {
		return pick(c, nil, map[string]string{"a": "1"}, map[string]string{"a": "2", "b": "1"})
	}
	m := metav1.ObjectMeta{Name: "x", Labels: values(), Annotations: values()}
	if c.IntN(6) == 0 {
		m.Annotations = map[string]string{rbacv1.AutoUpdateAnnotationKey: pick(c, "true", "false")}
	}
	return m
}

func (c chance) aggregation() *rbacv1.AggregationRule {
	if c.IntN(2) == 0 {
		return nil
	}
	r := &rbacv1.AggregationRule{}
	for _, i := range c.Perm(3)[:1+c.IntN(2)] {
		label := string(rune('a' + i))
		r.ClusterRoleSelectors = append(r.ClusterRoleSelectors, metav1.LabelSelector{MatchLabels: map[string]string{label: "true"}})
	}
	return r
}

// same compares our changes with an operation and the object that it writes.
func same(t *testing.T, seed uint64, got []bootstrappolicy.Change, protected bool, operation reconciliation.ReconcileOperation, obj bootstrappolicy.Object) {
	t.Helper()
	var want []bootstrappolicy.Change
	if !protected && operation != reconciliation.ReconcileNone {
		want = []bootstrappolicy.Change{{Operation: bootstrappolicy.Operation(operation), Object: obj}}
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("seed %d: -upstream +ours\n%s", seed, diff)
	}
}

func TestReconciliation(t *testing.T) {
	for seed := range uint64(2000) {
		c := newChance(seed)
		oldRole := rbacv1.ClusterRole{ObjectMeta: c.meta(), Rules: c.rules(), AggregationRule: c.aggregation()}
		role := rbacv1.ClusterRole{ObjectMeta: c.meta(), Rules: pick(c, oldRole.Rules, c.rules()), AggregationRule: c.aggregation()}
		theirs := reconciliation.ReconcileRoleOptions{
			Role: reconciliation.ClusterRoleRuleOwner{ClusterRole: role.DeepCopy()}, Confirm: true, Client: oneRole{&oldRole},
		}
		result, err := theirs.Run()
		if err != nil {
			t.Fatal(err)
		}
		same(t, seed, bootstrappolicy.Reconcile(rbac.Objects{ClusterRoles: []rbacv1.ClusterRole{oldRole}}, rbac.Objects{ClusterRoles: []rbacv1.ClusterRole{role}}),
			result.Protected, result.Operation, result.Role.(reconciliation.ClusterRoleRuleOwner).ClusterRole)

		old := rbacv1.ClusterRoleBinding{ObjectMeta: c.meta(), RoleRef: c.ref(), Subjects: c.subjects()}
		binding := rbacv1.ClusterRoleBinding{ObjectMeta: c.meta(), RoleRef: pick(c, old.RoleRef, old.RoleRef, c.ref()), Subjects: c.subjects()}
		bound := reconciliation.ReconcileRoleBindingOptions{
			RoleBinding: reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: binding.DeepCopy()}, Confirm: true, Client: oneBinding{&old},
		}
		changed, err := bound.Run()
		if err != nil {
			t.Fatal(err)
		}
		same(t, seed, bootstrappolicy.Reconcile(rbac.Objects{ClusterRoleBindings: []rbacv1.ClusterRoleBinding{old}}, rbac.Objects{ClusterRoleBindings: []rbacv1.ClusterRoleBinding{binding}}),
			changed.Protected, changed.Operation, changed.RoleBinding.(reconciliation.ClusterRoleBindingAdapter).ClusterRoleBinding)
	}
}
