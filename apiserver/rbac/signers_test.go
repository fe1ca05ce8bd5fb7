package rbac_test

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/apiserver/rbac/bootstrappolicy"
)

func TestMayUseSigner(t *testing.T) {
	var o rbac.Objects
	for name, signers := range map[string][]string{"one": {"example.com/a"}, "domain": {"example.com/*"}} {
		o.ClusterRoles = append(o.ClusterRoles, rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Rules:      []rbacv1.PolicyRule{{Verbs: []string{"approve"}, APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"signers"}, ResourceNames: signers}},
		})
		o.ClusterRoleBindings = append(o.ClusterRoleBindings, rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
		})
	}
	z := rbac.New(rbac.Options{Policy: rbac.NewPolicy(o)})
	for _, tt := range []struct {
		user, verb, signer string
		want               bool
	}{
		{"one", "approve", "example.com/a", true},
		{"one", "approve", "example.com/b", false},
		{"one", "sign", "example.com/a", false},
		{"domain", "approve", "example.com/b", true},
		{"domain", "approve", "other.com/b", false},
		{"nobody", "approve", "example.com/a", false},
	} {
		if got := z.MayUseSigner(t.Context(), &auth.User{Name: tt.user}, tt.verb, tt.signer); got != tt.want {
			t.Errorf("%s may %s %s: %t", tt.user, tt.verb, tt.signer, got)
		}
	}
}

func TestControllersMayUseTheirSigners(t *testing.T) {
	z := rbac.New(rbac.Options{Policy: rbac.NewPolicy(bootstrappolicy.All())})
	manager := user("system:serviceaccount:kube-system:certificate-controller")
	for _, signer := range []string{"kube-apiserver-client", "kube-apiserver-client-kubelet", "kubelet-serving", "legacy-unknown"} {
		if !z.MayUseSigner(t.Context(), manager, "sign", "kubernetes.io/"+signer) {
			t.Errorf("may not sign for %s", signer)
		}
		if got := z.MayUseSigner(t.Context(), manager, "approve", "kubernetes.io/"+signer); got != (signer == "kube-apiserver-client-kubelet" || signer == "kubelet-serving") {
			t.Errorf("may approve for %s: %t", signer, got)
		}
	}
}
