package apiserver_test

import (
	"context"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/follow"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/apiserver/rbac/bootstrappolicy"
	"github.com/sampan-io/sampan/catalog"
)

const (
	roles        = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"
	roleBindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
	clusterRoles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	mayShe       = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
	mayShehere   = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews"
)

// serveRoles serves with the policy of the stored roles. The boss is an administrator.
func serveRoles(t *testing.T) *fixture {
	t.Helper()
	var keepPolicy func(context.Context)
	f := serve(t, func(o *apiserver.Options) {
		policy := rbac.NewPolicy(bootstrappolicy.All())
		policy.SetClusterRoleBinding(&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "boss"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "boss"}},
		})
		authorizer := rbac.New(rbac.Options{Policy: policy, Objects: operation.NewReader(o.Catalog, o.Store)})
		o.Authorizer = authorizer
		o.Issue[catalog.Access], o.Issue[catalog.LocalAccess] = operation.Answer(authorizer.May), operation.Answer(authorizer.MayLocally)
		o.Admission = []admission.Plugin{admission.NewRoleEscalation(policy, authorizer)}
		keepPolicy = func(ctx context.Context) { follow.Policy(ctx, o.Catalog, o.Store, policy) }
	})
	ctx, stop := context.WithCancel(t.Context())
	wait := f.Go(func() { keepPolicy(ctx) })
	t.Cleanup(func() { stop(); wait() })
	return f
}

// eventually repeats a request until it is answered as wanted: the policy follows the store.
func (f *fixture) eventually(code int, method, path string, body any, headers ...string) {
	f.Helper()
	for {
		a := f.do(method, path, body, headers...)
		if a.code == code {
			return
		}
		if f.Context().Err() != nil {
			f.Fatalf("%s %s: %d, want %d: %s", method, path, a.code, code, a.body)
		}
	}
}

func role(name string, rules ...rbacv1.PolicyRule) *rbacv1.Role {
	return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
}

func bindingOf(name, role, user string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: role},
		Subjects: []rbacv1.Subject{{Kind: "User", Name: user}},
	}
}

var readPods = rbacv1.PolicyRule{Verbs: []string{"get", "list"}, APIGroups: []string{""}, Resources: []string{"pods"}}

func TestRolesGrantAndTakeAway(t *testing.T) {
	f := serveRoles(t)
	pods := "/api/v1/namespaces/default/pods"
	f.refused(f.do("GET", pods, nil, "X-User: mate"), 403, metav1.StatusReasonForbidden, `User "mate" cannot list resource "pods"`)
	f.create(roles, role("reader", readPods))
	f.create(roleBindings, bindingOf("mates", "reader", "mate"))
	f.eventually(200, "GET", pods, nil, "X-User: mate")
	f.refused(f.do("GET", "/api/v1/pods", nil, "X-User: mate"), 403, metav1.StatusReasonForbidden, "at the cluster scope")

	answer := into[authorizationv1.SubjectAccessReview](f, f.do("POST", mayShe, authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "mate", ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods", Namespace: "default"},
	}}), 201)
	if want := `RBAC: allowed by RoleBinding "mates/default" of Role "reader" to User "mate"`; !answer.Status.Allowed || answer.Status.Reason != want {
		t.Errorf("%+v, want %s", answer.Status, want)
	}
	f.do("DELETE", roleBindings+"/mates", nil)
	f.eventually(403, "GET", pods, nil, "X-User: mate")
}

func TestRolesCannotEscalate(t *testing.T) {
	f := serveRoles(t)
	writeRoles := rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles", "rolebindings"}}
	f.create(roles, role("writer", readPods, rbacv1.PolicyRule{Verbs: []string{"create", "update", "patch", "get"}, APIGroups: writeRoles.APIGroups, Resources: writeRoles.Resources}))
	f.create(roleBindings, bindingOf("writers", "writer", "mate"))
	f.eventually(201, "POST", roles, role("mine", readPods), "X-User: mate")
	secrets := rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"secrets"}}
	const text = `user "mate" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:`
	denied := f.do("POST", roles, role("more", secrets), "X-User: mate")
	f.refused(denied, 403, metav1.StatusReasonForbidden, `{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}`)
	if !strings.Contains(string(denied.body), "is attempting to grant RBAC permissions not currently held") {
		t.Errorf("%s, want %s", denied.body, text)
	}
	f.refused(f.do("PATCH", roles+"/mine", []byte(`{"rules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}]}`), "X-User: mate", "Content-Type: application/merge-patch+json"),
		403, metav1.StatusReasonForbidden, "not currently held")
	admin := bindingOf("up", "cluster-admin", "mate")
	admin.RoleRef.Kind = "ClusterRole"
	f.refused(f.do("POST", roleBindings, admin, "X-User: mate"), 403, metav1.StatusReasonForbidden, "not currently held")
	f.create(clusterRoles, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "wide"}, Rules: []rbacv1.PolicyRule{secrets}})
}

func TestReviewsOfOthers(t *testing.T) {
	f := serveRoles(t)
	local := authorizationv1.LocalSubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "jane", Groups: []string{"system:masters"}, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods", Namespace: "default"},
	}}
	if got := into[authorizationv1.LocalSubjectAccessReview](f, f.do("POST", mayShehere, local), 201); !got.Status.Allowed {
		t.Errorf("%+v", got.Status)
	}
	local.Spec.ResourceAttributes.Namespace = "other"
	f.refused(f.do("POST", mayShehere, local), 422, metav1.StatusReasonInvalid, "must match metadata.namespace")
	f.refused(f.do("POST", mayShe, `{"spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}`), 422, metav1.StatusReasonInvalid, "at least one of user or group must be specified")
	f.refused(f.do("POST", mayShe, "{}", "X-User: mate"), 403, metav1.StatusReasonForbidden, "cannot create resource")

	const whose = "/apis/authentication.k8s.io/v1/tokenreviews"
	if got := into[authenticationv1.TokenReview](f, f.do("POST", whose, `{"spec":{"token":"abc"}}`), 201); got.Status.Authenticated || got.Status.Error == "" {
		t.Errorf("%+v", got.Status)
	}
	f.refused(f.do("POST", whose, "{}"), 400, metav1.StatusReasonBadRequest, "token is required")
}

// Posting to bindings takes the right to create bindings; that to create pods/binding is for the other path.
func TestBindingsHaveTheirOwnRight(t *testing.T) {
	f := serveRoles(t)
	f.create(pods, pod("a"))
	for _, resource := range []string{"bindings", "pods/binding"} {
		name := strings.ReplaceAll(resource, "/", "-")
		f.create(clusterRoles, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"create"}, APIGroups: []string{""}, Resources: []string{resource}}}})
		f.create(roleBindings, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}},
		})
	}
	body := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}
	f.eventually(201, "POST", "/api/v1/namespaces/default/bindings?dryRun=All", body, "X-User: bindings")
	f.eventually(201, "POST", pods+"/a/binding?dryRun=All", body, "X-User: pods-binding")
	f.refused(f.do("POST", "/api/v1/namespaces/default/bindings", body, "X-User: pods-binding"), 403, metav1.StatusReasonForbidden, `cannot create resource "bindings"`)
	f.refused(f.do("POST", pods+"/a/binding", body, "X-User: bindings"), 403, metav1.StatusReasonForbidden, `cannot create resource "pods/binding"`)
}
