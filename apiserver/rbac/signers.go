package rbac

import (
	"context"
	"strings"

	"github.com/sampan-io/sampan/apiserver/auth"
)

// MayUseSigner reports whether a user may use a signer of certificates, by the rights that Kubernetes defines for that:
// the verb (approve, sign or attest) on the resource signers of certificates.k8s.io, which nothing serves, with the name
// of the signer, or with "DOMAIN/*" for all signers of its domain.
func (z *Authorizer) MayUseSigner(ctx context.Context, user *auth.User, verb, signer string) bool {
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, domain + "/*"} {
		a := Attributes{User: user, Verb: verb, Group: "certificates.k8s.io", Version: "*", Resource: "signers", Name: name}
		if z.Authorize(ctx, a).Allowed {
			return true
		}
	}
	return false
}
