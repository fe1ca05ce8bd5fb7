package auth

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
	"weak"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// nodeNameKey is the key in User.Extra of the node of the pod that a token is bound to.
const nodeNameKey = "authentication.kubernetes.io/node-name"

// credentialID is the key in User.Extra that names the credential itself.
const credentialID = "authentication.kubernetes.io/credential-id"

// certificates verifies client certificates, each at most once while a connection
// lives that uses it: checking a signature costs more than answering a GET. An entry goes when
// the certificate does, so the table is as large as the set of open connections.
type certificates struct {
	known sync.Map // weak.Pointer[x509.Certificate] → verified
}

type verified struct {
	user   *User
	pool   *x509.CertPool
	before time.Time // the chain is valid from
	after  time.Time // up to
}

// user returns whose certificate the first of the presented ones is.
func (c *certificates) user(presented []*x509.Certificate, pool *x509.CertPool) (*User, error) {
	if pool == nil {
		// To package x509 this means the authorities of the operating system.
		return nil, apierrors.NewUnauthorized("client certificates are not accepted: the server has no client CA")
	}
	leaf, now := presented[0], time.Now()
	key := weak.Make(leaf)
	if k, ok := c.known.Load(key); ok {
		if v := k.(verified); v.pool == pool && !now.Before(v.before) && now.Before(v.after) {
			return v.user, nil
		}
	}
	v, err := verify(presented, pool, now)
	if err != nil {
		return nil, err
	}
	if _, had := c.known.Swap(key, v); !had {
		runtime.AddCleanup(leaf, func(key weak.Pointer[x509.Certificate]) { c.known.Delete(key) }, key)
	}
	return v.user, nil
}

func verify(presented []*x509.Certificate, pool *x509.CertPool, now time.Time) (verified, error) {
	leaf := presented[0]
	subject := leaf.Subject.CommonName
	intermediates := x509.NewCertPool()
	for _, c := range presented[1:] {
		intermediates.AddCert(c)
	}
	chains, err := leaf.Verify(x509.VerifyOptions{
		Roots:         pool,
		Intermediates: intermediates,
		CurrentTime:   now,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return verified{}, apierrors.NewUnauthorized(refusal(leaf, now, err))
	}
	if subject == "" {
		return verified{}, apierrors.NewUnauthorized("the client certificate names no user: its subject has no common name")
	}
	v := verified{pool: pool, before: leaf.NotBefore, after: leaf.NotAfter}
	for _, c := range chains[0] {
		if c.NotBefore.After(v.before) {
			v.before = c.NotBefore
		}
		if c.NotAfter.Before(v.after) {
			v.after = c.NotAfter
		}
	}
	sum := sha256.Sum256(leaf.Raw)
	v.user = &User{
		Name:   subject,
		Groups: withAuthenticated(leaf.Subject.Organization),
		Extra:  map[string][]string{credentialID: {"X509SHA256=" + hex.EncodeToString(sum[:])}},
	}
	return v, nil
}

// refusal returns the fault of a certificate in words for the user.
func refusal(leaf *x509.Certificate, now time.Time, err error) string {
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	name := leaf.Subject.CommonName
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && now.After(leaf.NotAfter):
		return fmt.Sprintf("the client certificate of %q expired at %s; get a new one", name, leaf.NotAfter.UTC().Format(time.RFC3339))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && now.Before(leaf.NotBefore):
		return fmt.Sprintf("the client certificate of %q is not valid before %s", name, leaf.NotBefore.UTC().Format(time.RFC3339))
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		return fmt.Sprintf("the certificate of %q is not valid for client authentication", name)
	case errors.As(err, &unknown):
		return fmt.Sprintf("the client certificate of %q is not signed by this cluster's authority; is it of another cluster, or was the authority replaced?", name)
	}
	return fmt.Sprintf("the client certificate of %q is not valid: %v", name, err)
}

func withAuthenticated(groups []string) []string {
	if slices.Contains(groups, GroupAuthenticated) {
		return groups
	}
	return append(slices.Clip(groups), GroupAuthenticated)
}
