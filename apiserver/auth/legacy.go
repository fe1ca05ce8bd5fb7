package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// legacyIssuer is the issuer of tokens in Secrets.
const legacyIssuer = "kubernetes/serviceaccount"

// Labels of Secrets with tokens, as Kubernetes has them.
const (
	LegacyLastUsedLabel     = "kubernetes.io/legacy-token-last-used"
	LegacyInvalidSinceLabel = "kubernetes.io/legacy-token-invalid-since"
)

// legacyClaims are what the token of a Secret says. It does not expire and names no audience: it is good for as long as
// its Secret has it.
type legacyClaims struct {
	jwt.RegisteredClaims
	Account    string    `json:"kubernetes.io/serviceaccount/service-account.name"`
	AccountUID types.UID `json:"kubernetes.io/serviceaccount/service-account.uid"`
	Secret     string    `json:"kubernetes.io/serviceaccount/secret.name"`
	Namespace  string    `json:"kubernetes.io/serviceaccount/namespace"`
}

// SignLegacy returns the token of a service account that is kept in a Secret of its namespace.
func (t *Tokens) SignLegacy(namespace, account string, uid types.UID, secret string) (string, error) {
	return t.signed(legacyClaims{
		RegisteredClaims: jwt.RegisteredClaims{Issuer: legacyIssuer, Subject: ServiceAccountUser(namespace, account)},
		Account:          account, AccountUID: uid, Secret: secret, Namespace: namespace,
	})
}

func (t *Tokens) parseLegacy(token string) (*identity, error) {
	var c legacyClaims
	keyID, err := t.parseWith(t.legacy, token, &c)
	if err != nil {
		return nil, apierrors.NewUnauthorized("the bearer token is not valid: " + err.Error())
	}
	name := ServiceAccountUser(c.Namespace, c.Account)
	if c.Namespace == "" || c.Account == "" || c.AccountUID == "" || c.Secret == "" || c.Subject != name {
		return nil, apierrors.NewUnauthorized("the bearer token is not one of a service account")
	}
	return &identity{
		user: &User{
			Name: name, UID: string(c.AccountUID), Groups: append(accountGroups(c.Namespace), GroupAuthenticated),
			Extra: map[string][]string{},
		},
		audiences: t.opts.Audiences,
		binding:   binding{Namespace: c.Namespace, ServiceAccount: reference{c.Account, c.AccountUID}, Secret: &reference{Name: c.Secret}},
		keyID:     keyID, legacy: true,
	}, nil
}

// checkLegacy checks that the Secret of a token still has it, and that its service account still exists.
func (t *Tokens) checkLegacy(ctx context.Context, token string, b binding) error {
	o, err := t.opts.Objects.Get(ctx, corev1.SchemeGroupVersion.WithResource("secrets"), b.Namespace, b.Secret.Name)
	switch {
	case apierrors.IsNotFound(err):
		return apierrors.NewUnauthorized("Token has been invalidated")
	case err != nil:
		return fmt.Errorf("looking up the secret of a token: %w", err)
	}
	secret, ok := o.(*corev1.Secret)
	if !ok || secret.DeletionTimestamp != nil {
		return apierrors.NewUnauthorized("Token has been invalidated")
	}
	want, got := sha256.Sum256(secret.Data[corev1.ServiceAccountTokenKey]), sha256.Sum256([]byte(token))
	if subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
		return apierrors.NewUnauthorized("Token does not match server's copy")
	}
	o, err = t.opts.Objects.Get(ctx, corev1.SchemeGroupVersion.WithResource("serviceaccounts"), b.Namespace, b.ServiceAccount.Name)
	switch {
	case apierrors.IsNotFound(err), err == nil && o.GetDeletionTimestamp() != nil:
		return apierrors.NewUnauthorized(fmt.Sprintf("ServiceAccount %s/%s has been deleted", b.Namespace, b.ServiceAccount.Name))
	case err != nil:
		return fmt.Errorf("looking up the service account of a token: %w", err)
	case o.GetUID() != b.ServiceAccount.UID:
		return apierrors.NewUnauthorized(fmt.Sprintf("ServiceAccount UID (%s) does not match claim (%s)", o.GetUID(), b.ServiceAccount.UID))
	}
	if _, needed := MarkUsed(secret, time.Now()); needed && t.opts.Used != nil {
		t.opts.Used(secret)
	}
	if secret.Labels[LegacyInvalidSinceLabel] != "" {
		return apierrors.NewUnauthorized(fmt.Sprintf("the token in secret %s/%s for service account %s/%s has been marked invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the '%s' label from the secret to temporarily allow use of this token",
			b.Namespace, secret.Name, b.Namespace, b.ServiceAccount.Name, LegacyInvalidSinceLabel))
	}
	return nil
}

// MarkUsed returns the value of the label [LegacyLastUsedLabel] at a time, and whether the Secret does not have it yet. The
// label of the next day, which a server with another clock may have set, is as good.
func MarkUsed(secret *corev1.Secret, now time.Time) (today string, needed bool) {
	today = now.UTC().Format(time.DateOnly)
	have := secret.Labels[LegacyLastUsedLabel]
	return today, have != today && have != now.UTC().AddDate(0, 0, 1).Format(time.DateOnly)
}
