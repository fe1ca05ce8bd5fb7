package rbac_test

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/rbac"
)

// on reads "verbs groups resources [names]", each a list with commas, where "core" is the empty group.
func on(text string) rbacv1.PolicyRule {
	parts := strings.Fields(text)
	list := func(i int) []string { return strings.Split(strings.ReplaceAll(parts[i], "core", ""), ",") }
	if strings.HasPrefix(parts[1], "/") {
		return rbacv1.PolicyRule{Verbs: list(0), NonResourceURLs: list(1)}
	}
	r := rbacv1.PolicyRule{Verbs: list(0), APIGroups: list(1), Resources: list(2)}
	if len(parts) > 3 {
		r.ResourceNames = list(3)
	}
	return r
}

func rules(lines ...string) (rules []rbacv1.PolicyRule) {
	for _, l := range lines {
		rules = append(rules, on(l))
	}
	return rules
}

func TestMissing(t *testing.T) {
	for name, tt := range map[string]struct {
		held, wanted, missing []rbacv1.PolicyRule
	}{
		"the same":                            {rules("get,list core pods"), rules("list,get core pods"), nil},
		"by two rules":                        {rules("get core pods", "list core pods"), rules("get,list core pods"), nil},
		"one verb":                            {rules("get core pods"), rules("get,list core pods"), rules("list core pods")},
		"one of two groups":                   {rules("get apps *"), rules("get apps,batch x"), rules("get batch x")},
		"stars cover":                         {rules("* * *"), rules("escalate a,b x/y n", "* * *"), nil},
		"all that exists is no star":          {rules("get core,apps *"), rules("get * pods"), rules("get * pods")},
		"a star of resources is no verb":      {rules("get core *"), rules("* core pods"), rules("* core pods")},
		"a subresource of all":                {rules("get core */log"), rules("get core pods/log,*/log,pods"), rules("get core pods")},
		"a resource has no subresources":      {rules("get core pods"), rules("get core pods/log"), rules("get core pods/log")},
		"a name":                              {rules("get core pods x"), rules("get core pods x,y"), rules("get core pods y")},
		"a name does not cover all":           {rules("get core pods x"), rules("get core pods"), rules("get core pods")},
		"all names cover one":                 {rules("get core pods"), rules("get core pods x"), nil},
		"a path":                              {rules("get /apis/*"), rules("get /apis/batch,/apis/*,/apis"), rules("get /apis")},
		"resources do not cover a path":       {rules("* * *"), rules("get /version"), rules("get /version")},
		"a path does not cover resources":     {rules("* /*"), rules("get core pods"), rules("get core pods")},
		"a rule without resources is nothing": {nil, []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := rbac.Missing(tt.held, tt.wanted); !sameRules(got, tt.missing) {
				t.Errorf("Missing = %v, want %v", got, tt.missing)
			}
		})
	}
}

// grantors returns a policy in which jane may read pods everywhere and write them in a, joe may
// escalate and bind, and everyone else has nothing.
func grantors() *rbac.Policy {
	meta := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	ref := func(kind, name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
	}
	to := func(name string) []rbacv1.Subject {
		return []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}}
	}
	return rbac.NewPolicy(rbac.Objects{
		ClusterRoles: []rbacv1.ClusterRole{
			{ObjectMeta: meta("", "reader"), Rules: rules("get,list core pods")},
			{ObjectMeta: meta("", "admin"), Rules: rules("* * *", "* /*")},
			{ObjectMeta: meta("", "granting"), Rules: rules("escalate rbac.authorization.k8s.io clusterroles,roles", "bind rbac.authorization.k8s.io clusterroles admin")},
		},
		Roles: []rbacv1.Role{{ObjectMeta: meta("a", "writer"), Rules: rules("create,delete core pods")}},
		ClusterRoleBindings: []rbacv1.ClusterRoleBinding{
			{ObjectMeta: meta("", "reader"), RoleRef: ref("ClusterRole", "reader"), Subjects: to("jane")},
			{ObjectMeta: meta("", "granting"), RoleRef: ref("ClusterRole", "granting"), Subjects: to("joe")},
			{ObjectMeta: meta("", "admin"), RoleRef: ref("ClusterRole", "admin"), Subjects: to("root")},
			{ObjectMeta: meta("", "dangling"), RoleRef: ref("ClusterRole", "nothing"), Subjects: to("bob")},
		},
		RoleBindings: []rbacv1.RoleBinding{{ObjectMeta: meta("a", "writer"), RoleRef: ref("Role", "writer"), Subjects: to("jane")}},
	})
}

func TestGrantor(t *testing.T) {
	policy := grantors()
	clusterRole := func(aggregate string, lines ...string) *rbacv1.ClusterRole {
		r := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "new"}, Rules: rules(lines...)}
		if aggregate != "" {
			r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{aggregate: ""}}}}
		}
		return r
	}
	owned := func(r *rbacv1.ClusterRole) *rbacv1.ClusterRole {
		r.OwnerReferences = []metav1.OwnerReference{{Name: "owner"}}
		r.Finalizers, r.ManagedFields = []string{"foregroundDeletion"}, []metav1.ManagedFieldsEntry{{Manager: "m"}}
		return r
	}
	role := func(namespace string, lines ...string) *rbacv1.Role {
		return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "new"}, Rules: rules(lines...)}
	}
	meta := func(namespace string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: "new"}
	}
	ref := func(kind, name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
	}
	clusterRoleBinding := func(role string) *rbacv1.ClusterRoleBinding {
		return &rbacv1.ClusterRoleBinding{ObjectMeta: meta(""), RoleRef: ref("ClusterRole", role)}
	}
	roleBinding := func(namespace, kind, role string) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{ObjectMeta: meta(namespace), RoleRef: ref(kind, role)}
	}
	const lacking = ` is forbidden: user "jane" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:` + "\n"
	for name, tt := range map[string]struct {
		who  string
		obj  any
		old  any
		want string // the error, empty for none
	}{
		"a role that is held": {"jane", clusterRole("", "get core pods"), nil, ""},
		"a role that is not held": {
			"jane", clusterRole("", "get,watch,delete core pods", "get /version", "get core pods,secrets x"), nil,
			`clusterroles.rbac.authorization.k8s.io "new"` + lacking + `{APIGroups:[""], Resources:["pods"], Verbs:["watch" "delete"]}
{APIGroups:[""], Resources:["secrets"], ResourceNames:["x"], Verbs:["get"]}
{NonResourceURLs:["/version"], Verbs:["get"]}`,
		},
		"escalate":                          {"joe", clusterRole("x", "* * *"), nil, ""},
		"an update that changes nothing":    {"bob", clusterRole("", "get core pods"), clusterRole("", "get core pods"), ""},
		"an update of collected fields":     {"bob", owned(clusterRole("x", "* * *")), clusterRole("x", "* * *"), ""},
		"an update of a label needs rights": {"jane", &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "new", Labels: map[string]string{"a": "b"}}, Rules: rules("* core pods")}, role("b", "* core pods"), `roles.rbac.authorization.k8s.io "new"` + lacking + `{APIGroups:[""], Resources:["pods"], Verbs:["*"]}`},
		"missing roles are named": {
			"bob", clusterRole("", "get core pods"), nil,
			`clusterroles.rbac.authorization.k8s.io "new" is forbidden: user "bob" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:
{APIGroups:[""], Resources:["pods"], Verbs:["get"]}; resolution errors: [clusterroles.rbac.authorization.k8s.io "nothing" not found]`,
		},
		"an aggregation rule":         {"jane", clusterRole("x"), nil, `clusterroles.rbac.authorization.k8s.io "new" is forbidden: must have cluster-admin privileges to use the aggregationRule`},
		"removing an aggregation":     {"jane", clusterRole(""), clusterRole("x"), `clusterroles.rbac.authorization.k8s.io "new" is forbidden: must have cluster-admin privileges to use the aggregationRule`},
		"aggregation by all rights":   {"root", clusterRole("x"), nil, ""},
		"a role in the own namespace": {"jane", role("a", "create,get core pods"), nil, ""},
		"a role in another namespace": {"jane", role("b", "create,get core pods"), nil, `roles.rbac.authorization.k8s.io "new"` + lacking + `{APIGroups:[""], Resources:["pods"], Verbs:["create"]}`},
		"escalate a role":             {"joe", role("b", "* * *"), nil, ""},

		"a binding of a held role":         {"jane", clusterRoleBinding("reader"), nil, ""},
		"a binding of another role":        {"jane", clusterRoleBinding("admin"), nil, `clusterrolebindings.rbac.authorization.k8s.io "new"` + lacking + "{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}\n{NonResourceURLs:[\"/*\"], Verbs:[\"*\"]}"},
		"bind":                             {"joe", clusterRoleBinding("admin"), nil, ""},
		"bind in a namespace":              {"joe", roleBinding("b", "ClusterRole", "admin"), nil, ""},
		"bind of another role":             {"joe", clusterRoleBinding("nothing"), nil, `clusterroles.rbac.authorization.k8s.io "nothing" not found`},
		"escalate does not bind":           {"joe", roleBinding("a", "Role", "writer"), nil, `rolebindings.rbac.authorization.k8s.io "new" is forbidden: user "joe" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:` + "\n" + `{APIGroups:[""], Resources:["pods"], Verbs:["create" "delete"]}`},
		"a binding of a role":              {"jane", roleBinding("a", "Role", "writer"), nil, ""},
		"a role of another namespace":      {"jane", roleBinding("b", "Role", "writer"), nil, `roles.rbac.authorization.k8s.io "writer" not found`},
		"a binding with a new owner":       {"bob", &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "new", Finalizers: []string{"a/b"}}, RoleRef: ref("Role", "writer")}, roleBinding("a", "Role", "writer"), ""},
		"a kind that does not exist":       {"jane", roleBinding("a", "Rule", "writer"), nil, `unsupported role reference kind: "Rule"`},
		"a cluster binding of a role":      {"jane", &rbacv1.ClusterRoleBinding{ObjectMeta: meta(""), RoleRef: ref("Role", "writer")}, nil, `roles.rbac.authorization.k8s.io "writer" not found`},
		"masters may grant what is absent": {"boss", clusterRoleBinding("nothing"), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			u := user(tt.who)
			if tt.who == "boss" {
				u = user(tt.who, auth.GroupMasters)
			}
			g := rbac.Grantor{Policy: policy, User: u, Allowed: func(a rbac.Attributes) bool { return policy.Authorize(&a).Allowed }}
			var err error
			switch obj := tt.obj.(type) {
			case *rbacv1.ClusterRole:
				old, _ := tt.old.(*rbacv1.ClusterRole)
				err = g.ClusterRole(t.Context(), obj, old)
			case *rbacv1.Role:
				old, _ := tt.old.(*rbacv1.Role)
				err = g.Role(t.Context(), obj, old)
			case *rbacv1.ClusterRoleBinding:
				err = g.ClusterRoleBinding(t.Context(), obj, nil)
			case *rbacv1.RoleBinding:
				old, _ := tt.old.(*rbacv1.RoleBinding)
				err = g.RoleBinding(t.Context(), obj, old)
			}
			got := ""
			if err != nil {
				got = err.Error()
				if apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
					t.Errorf("%v is not an error of the API", err)
				}
			}
			if got != tt.want {
				t.Errorf("\n%s, want\n%s", got, tt.want)
			}
		})
	}
}

// TestEscalateIsAskedWithTheNameOfTheRequest checks which name the verbs escalate and bind are
// authorized for: a creation by POST has none in its URL.
func TestEscalateIsAskedWithTheNameOfTheRequest(t *testing.T) {
	var asked []rbac.Attributes
	g := rbac.Grantor{Policy: grantors(), User: user("joe"), Name: "named", Allowed: func(a rbac.Attributes) bool {
		asked = append(asked, a)
		return true
	}}
	for _, err := range []error{
		g.Role(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "r"}}, nil),
		g.ClusterRole(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r"}}, nil),
		g.RoleBinding(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "r"}}, nil),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, a := range asked {
		got = append(got, strings.Join([]string{a.Verb, a.Group, a.Resource, a.Namespace, a.Name}, " "))
	}
	want := `escalate rbac.authorization.k8s.io roles a named
escalate rbac.authorization.k8s.io clusterroles  named
bind rbac.authorization.k8s.io clusterroles a r`
	if strings.Join(got, "\n") != want {
		t.Errorf("asked for\n%s, want\n%s", strings.Join(got, "\n"), want)
	}
}
