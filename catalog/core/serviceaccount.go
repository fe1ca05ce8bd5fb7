package core

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/catalog"
)

// serviceAccounts has no rules of its own: references to secrets are free text in
// the API.
func serviceAccounts() *catalog.Kind {
	return &catalog.Kind{
		GroupVersionKind: gvk("ServiceAccount"),
		Resource:         "serviceaccounts",
		Lifecycle:        catalog.Lifecycle{AnswersDeleted: true},
		Warn:             catalog.WarnChange(warnOfAccount),
		Singular:         "serviceaccount",
		ShortNames:       []string{"sa"},
		Namespaced:       true,
		New:              func() catalog.Object { return &corev1.ServiceAccount{} },
		NewList:          func() runtime.Object { return &corev1.ServiceAccountList{} },
		Prepare: catalog.Prepare(func(a, _ *corev1.ServiceAccount) {
			for i, secret := range a.Secrets {
				a.Secrets[i] = corev1.ObjectReference{Name: secret.Name} // they are in its namespace
			}
		}),
		Columns: []catalog.Column{
			catalog.Age(),
		},
		Subresources: []catalog.Subresource{{
			Name:  "token",
			Verbs: create,
			Shape: catalog.Issue{
				Body: &catalog.Body{
					Kind: authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"),
					New:  func() runtime.Object { return &authenticationv1.TokenRequest{} },
				},
				Handler: catalog.ServiceAccountToken,
			},
		}},
	}
}
