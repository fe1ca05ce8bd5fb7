package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

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

	// Bootstrap verifies bootstrap tokens. Nil means none.
	Bootstrap *BootstrapTokens

	// Issuers verifies the tokens of other issuers. Nil means none.
	Issuers Issuers

	// FrontProxy reads the user from headers that a trusted proxy has set. Nil means none.
	FrontProxy *FrontProxy

	// Anonymous decides about requests without credentials. The zero value is to serve them as the user
	// system:anonymous.
	Anonymous AnonymousAccess

	// AdminToken is a fixed bearer token for the user "admin" in the group
	// system:masters. Empty means none.
	AdminToken string
}

// Issuers verifies JSON Web Tokens that other issuers than this cluster have signed.
type Issuers interface {
	// Verify returns the user of a token whose claim "iss" is issuer, or an Unauthorized status error. It returns nil and
	// no error if it does not know the issuer. The claim is not verified before the call.
	Verify(ctx context.Context, issuer, token string) (*User, error)
}

// AnonymousAccess decides which requests without credentials are served.
type AnonymousAccess struct {
	// Disabled refuses all of them.
	Disabled bool

	// Paths are the only ones that are served, if there are any.
	Paths []string
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

// Authenticate returns the user of r. It returns (nil, nil) if r carries no credential at all and anonymous requests are
// served; a credential that is not good is an Unauthorized status error with the reason. If there are
// several credentials the first that is good counts, in the order: headers of a front proxy, certificate, bearer token.
// The headers of the front proxy and the one of the token are removed.
//
// The server must request client certificates without verifying them itself
// ([tls.RequestClientCert]): otherwise a bad one ends the handshake, and the client does not learn
// the reason.
func (a *Authenticator) Authenticate(r *http.Request) (*User, error) {
	u, err := a.credential(r)
	if u == nil && err == nil && !a.opts.Anonymous.serves(r.URL.Path) {
		err = apierrors.NewUnauthorized("anonymous requests are not accepted here: send a certificate or a token of this cluster")
	}
	return u, err
}

func (p *AnonymousAccess) serves(path string) bool {
	return !p.Disabled && (len(p.Paths) == 0 || slices.Contains(p.Paths, path))
}

func (a *Authenticator) credential(r *http.Request) (*User, error) {
	var certErr error
	if presented := certificatesOf(r); presented != nil {
		if a.opts.FrontProxy != nil {
			if u := a.opts.FrontProxy.user(r, presented); u != nil {
				return u, nil
			}
		}
		if a.opts.ClientCAs != nil {
			var u *User
			if u, certErr = a.certificates.user(presented, a.opts.ClientCAs()); certErr == nil {
				return u, nil
			}
		}
	}
	header := r.Header.Get("Authorization")
	if header == "" {
		if u, err := a.protocol(r); u != nil || err != nil {
			return u, err
		}
		return nil, certErr
	}
	scheme, token, _ := strings.Cut(strings.TrimSpace(header), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil, apierrors.NewUnauthorized("the Authorization header must have the scheme Bearer")
	}
	u, err := a.bearer(r.Context(), strings.TrimSpace(token))
	if err == nil {
		r.Header.Del("Authorization")
	}
	return u, err
}

func certificatesOf(r *http.Request) []*x509.Certificate {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil
	}
	return r.TLS.PeerCertificates
}

func (a *Authenticator) bearer(ctx context.Context, token string) (*User, error) {
	if token == "" {
		return nil, apierrors.NewUnauthorized("the bearer token is empty")
	}
	u, _, err := a.identify(ctx, token, nil)
	return u, err
}

// longestAny is as long as the headers of a request may be. Tokens of other issuers may have hundreds of groups.
const longestAny = 64 << 10

// identify returns whose token it is, and for which of the wanted audiences it is good. No wanted audience means those of
// this API server.
func (a *Authenticator) identify(ctx context.Context, token string, wanted []string) (*User, []string, error) {
	if len(token) > longestAny {
		return nil, nil, apierrors.NewUnauthorized("the bearer token is too long")
	}
	if a.isAdmin(token) {
		return a.here(a.admin, nil, wanted)
	}
	if a.opts.Bootstrap != nil {
		if u, err := a.opts.Bootstrap.Verify(ctx, token, time.Now()); u != nil || err != nil {
			return a.here(u, err, wanted)
		}
	}
	if a.opts.Issuers != nil {
		if issuer, ok := claimedIssuer(token); ok && (a.opts.Tokens == nil || !a.opts.Tokens.issues(issuer)) {
			if u, err := a.opts.Issuers.Verify(ctx, issuer, token); u != nil || err != nil {
				return a.here(u, err, wanted)
			}
		}
	}
	if a.opts.Tokens == nil {
		return nil, nil, apierrors.NewUnauthorized("the bearer token is unknown to this cluster")
	}
	return a.opts.Tokens.VerifyFor(ctx, token, wanted)
}

// here returns the user of a token that names no audience of this cluster, which is good for this API server alone.
func (a *Authenticator) here(u *User, err error, wanted []string) (*User, []string, error) {
	if err != nil {
		return nil, nil, err
	}
	var own []string
	if a.opts.Tokens != nil {
		own = a.opts.Tokens.opts.Audiences
	}
	if len(wanted) == 0 {
		return u, own, nil
	}
	good := slices.DeleteFunc(slices.Clone(wanted), func(audience string) bool { return !slices.Contains(own, audience) })
	if len(good) == 0 {
		return nil, nil, apierrors.NewUnauthorized(fmt.Sprintf("the bearer token is for the audiences %q and not for %q", own, wanted))
	}
	return u, good, nil
}

// claimedIssuer returns the issuer that a JSON Web Token claims, without verifying anything.
func claimedIssuer(token string) (string, bool) {
	_, rest, _ := strings.Cut(token, ".")
	payload, _, ok := strings.Cut(rest, ".")
	if !ok {
		return "", false
	}
	data, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return "", false
	}
	var c struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(data, &c) != nil || c.Issuer == "" {
		return "", false
	}
	return c.Issuer, true
}

// isAdmin reports whether it is the fixed token of the administrator.
func (a *Authenticator) isAdmin(token string) bool {
	if a.opts.AdminToken == "" {
		return false
	}
	// Sums are compared, so that not even the length of the token shows in the time taken.
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], a.adminSum[:]) == 1
}
