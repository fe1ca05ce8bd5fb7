package policy

import (
	"context"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	upstream "k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/rbac"
)

// stored lets upstream read objects. Its authorizer names a resource that does not exist in the
// singular, and its registry in the plural.
type stored struct {
	rbac.Objects
	plural string
}

func (s stored) GetRole(_ context.Context, namespace, name string) (*rbacv1.Role, error) {
	for i, r := range s.Roles {
		if r.Namespace == namespace && r.Name == name {
			return &s.Roles[i], nil
		}
	}
	return nil, apierrors.NewNotFound(rbacv1.Resource("role"+s.plural), name)
}

func (s stored) GetClusterRole(_ context.Context, name string) (*rbacv1.ClusterRole, error) {
	for i, r := range s.ClusterRoles {
		if r.Name == name {
			return &s.ClusterRoles[i], nil
		}
	}
	return nil, apierrors.NewNotFound(rbacv1.Resource("clusterrole"+s.plural), name)
}

func (s stored) ListRoleBindings(_ context.Context, namespace string) (list []*rbacv1.RoleBinding, _ error) {
	for i := range s.RoleBindings {
		if s.RoleBindings[i].Namespace == namespace {
			list = append(list, &s.RoleBindings[i])
		}
	}
	return list, nil
}

func (s stored) ListClusterRoleBindings(context.Context) (list []*rbacv1.ClusterRoleBinding, _ error) {
	for i := range s.ClusterRoleBindings {
		list = append(list, &s.ClusterRoleBindings[i])
	}
	return list, nil
}

func (s stored) authorizer() *upstream.RBACAuthorizer { return upstream.New(s, s, s, s) }

// single has a binding for each subject of each binding.
func (s stored) single() (each []stored) {
	for _, b := range s.ClusterRoleBindings {
		for _, subject := range b.Subjects {
			one := s
			one.ClusterRoleBindings, one.RoleBindings = []rbacv1.ClusterRoleBinding{b}, nil
			one.ClusterRoleBindings[0].Subjects = []rbacv1.Subject{subject}
			each = append(each, one)
		}
	}
	for _, b := range s.RoleBindings {
		for _, subject := range b.Subjects {
			one := s
			one.ClusterRoleBindings, one.RoleBindings = nil, []rbacv1.RoleBinding{b}
			one.RoleBindings[0].Subjects = []rbacv1.Subject{subject}
			each = append(each, one)
		}
	}
	return each
}

func info(u *auth.User) user.Info { return &user.DefaultInfo{Name: u.Name, Groups: u.Groups} }

func record(a rbac.Attributes) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{
		User: info(a.User), Verb: a.Verb, Namespace: a.Namespace, APIGroup: a.Group, APIVersion: a.Version, Resource: a.Resource,
		Subresource: a.Subresource, Name: a.Name, ResourceRequest: a.Resource != "", Path: a.Path,
	}
}

// TestDecisions compares decisions, their reasons and the rules of users. If several bindings allow a
// request, the reason may be any of upstream's, which depend on an order that upstream does not define.
func TestDecisions(t *testing.T) {
	allowed, refused := 0, 0
	for seed := range uint64(400) {
		c := newChance(seed)
		o := stored{Objects: c.objects()}
		theirs, ours := o.authorizer(), rbac.NewPolicy(o.Objects)
		for range 50 {
			a := c.request()
			d := ours.Authorize(&a)
			want, reason, err := theirs.Authorize(t.Context(), record(a))
			if err != nil {
				t.Fatal(err)
			}
			same := d.Allowed == (want == authorizer.DecisionAllow)
			if d.Allowed {
				allowed++
				same = same && slices.ContainsFunc(o.single(), func(one stored) bool {
					want, reason, _ := one.authorizer().Authorize(t.Context(), record(a))
					return want == authorizer.DecisionAllow && reason == d.Reason
				})
			} else {
				refused++
				same = same && slices.Equal(parts(d.Reason), parts(reason))
			}
			if !same {
				t.Fatalf("seed %d: %+v: %+v, want %v %q", seed, a, d, want, reason)
			}

			rules, err := ours.RulesFor(a.User, a.Namespace)
			resources, paths, _, theirErr := theirs.RulesFor(t.Context(), info(a.User), a.Namespace)
			if !slices.Equal(parts(errorText(err)), parts(errorText(theirErr))) {
				t.Fatalf("seed %d: RulesFor(%v, %s): %v, want %v", seed, a.User, a.Namespace, err, theirErr)
			}
			var got, wanted []string
			for _, r := range rules {
				if len(r.Resources) > 0 {
					got = append(got, (&rbacv1.PolicyRule{Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames}).String())
				}
				if len(r.NonResourceURLs) > 0 {
					got = append(got, (&rbacv1.PolicyRule{Verbs: r.Verbs, NonResourceURLs: r.NonResourceURLs}).String())
				}
			}
			for _, r := range resources {
				wanted = append(wanted, (&rbacv1.PolicyRule{Verbs: r.GetVerbs(), APIGroups: r.GetAPIGroups(), Resources: r.GetResources(), ResourceNames: r.GetResourceNames()}).String())
			}
			for _, r := range paths {
				wanted = append(wanted, (&rbacv1.PolicyRule{Verbs: r.GetVerbs(), NonResourceURLs: r.GetNonResourceURLs()}).String())
			}
			// A role counts once here, however many bindings have it: the answer would be several times as large as the stored roles.
			slices.Sort(got)
			slices.Sort(wanted)
			got, wanted = slices.Compact(got), slices.Compact(wanted)
			if !slices.Equal(got, wanted) {
				t.Fatalf("seed %d: RulesFor(%v, %s) = %v, want %v", seed, a.User, a.Namespace, got, wanted)
			}
		}
	}
	if allowed < 1000 || refused < 1000 {
		t.Errorf("%d requests were allowed and %d refused, which tests little", allowed, refused)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// parts returns the sorted errors of "RBAC: [a, b]".
func parts(text string) []string {
	list := strings.Split(strings.Trim(strings.TrimPrefix(text, "RBAC: "), "[]"), ", ")
	slices.Sort(list)
	return list
}
