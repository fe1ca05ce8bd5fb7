package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Options configures an [Authenticator]. A kind of credential whose option is nil is always
// refused.
type Options struct {
	// ClientCAs returns the authorities whose client certificates are believed.
	// It is asked for every request, so that they can be renewed, and
	// must return the same pool for as long as nothing changed: what was
	// verified is remembered by pool. Nil means no client certificates.
	ClientCAs func() *x509.CertPool

	// Tokens verifies the tokens of service accounts. Nil means none.
	Tokens *Tokens

	// AdminToken is a fixed bearer token for the user "admin" in the group
	// system:masters. Empty means none.
	AdminToken string
}

// An Authenticator finds the user of a request. It is safe for concurrent use.
type Authenticator struct {
	opts         Options
	certificates certificates
	adminSum     [sha256.Size]byte
	admin        *User
	anonymous    *User
}

// New returns an authenticator.
func New(opts Options) *Authenticator {
	return &Authenticator{
		opts:      opts,
		adminSum:  sha256.Sum256([]byte(opts.AdminToken)),
		admin:     &User{Name: "admin", Groups: []string{GroupMasters, GroupAuthenticated}},
		anonymous: &User{Name: Anonymous, Groups: []string{GroupUnauthenticated}},
	}
}

// Anonymous returns the user of requests without credentials.
func (a *Authenticator) Anonymous() *User { return a.anonymous }

// Authenticate returns the user of r. It returns (nil, nil) if r carries no credential at all; a
// credential that is not good is an Unauthorized status error that says what is wrong with it. If
// there are both a certificate and a bearer token the certificate counts; the token is used if the
// certificate is not good.
//
// The server must request client certificates without verifying them itself
// ([tls.RequestClientCert]): otherwise a bad one ends the handshake, and the client does not learn
// the reason.
func (a *Authenticator) Authenticate(r *http.Request) (*User, error) {
	var certErr error
	if a.opts.ClientCAs != nil && r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		var u *User
		if u, certErr = a.certificates.user(r.TLS.PeerCertificates, a.opts.ClientCAs()); certErr == nil {
			return u, nil
		}
	}
	header := r.Header.Get("Authorization")
	if header == "" {
		return nil, certErr
	}
	scheme, token, _ := strings.Cut(strings.TrimSpace(header), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil, apierrors.NewUnauthorized("the Authorization header must have the scheme Bearer")
	}
	return a.bearer(r.Context(), strings.TrimSpace(token))
}

func (a *Authenticator) bearer(ctx context.Context, token string) (*User, error) {
	if token == "" {
		return nil, apierrors.NewUnauthorized("the bearer token is empty")
	}
	if a.opts.AdminToken != "" {
		// Sums are compared, so that not even the length of the token shows in the time taken.
		sum := sha256.Sum256([]byte(token))
		if subtle.ConstantTimeCompare(sum[:], a.adminSum[:]) == 1 {
			return a.admin, nil
		}
	}
	if a.opts.Tokens == nil {
		return nil, apierrors.NewUnauthorized("the bearer token is unknown to this cluster")
	}
	return a.opts.Tokens.Verify(ctx, token)
}
