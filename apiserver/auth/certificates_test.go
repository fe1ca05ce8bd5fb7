package auth_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sampan-io/sampan/apiserver/auth"
)

// An authority signs certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{key: newKey(t), pool: x509.NewCertPool()}
	a.cert = a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}, nil)
	a.pool.AddCert(a.cert)
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) sign(t testing.TB, c *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	parent := a.cert
	if parent == nil {
		parent, key = c, a.key
	}
	if key == nil {
		key = newKey(t)
	}
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func client(name string, groups ...string) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: name, Organization: groups},
		NotBefore:   time.Now().Add(-time.Hour),
		NotAfter:    time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

func request(cert *x509.Certificate, authorization string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/api", nil)
	if cert != nil {
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
	}
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	return r
}

func TestClientCertificates(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	a := auth.New(auth.Options{ClientCAs: func() *x509.CertPool { return ours.pool }})
	with := func(change func(*x509.Certificate)) *x509.Certificate {
		c := client("jane", "sailors")
		change(c)
		return ours.sign(t, c, nil)
	}
	tests := []struct {
		name   string
		cert   *x509.Certificate
		user   string
		groups []string
		refuse string
	}{
		{
			name: "a good one", cert: ours.sign(t, client("jane", "cooks", "sailors"), nil),
			user: "jane", groups: []string{"cooks", "sailors", "system:authenticated"},
		},
		{
			name: "groups that claim to be authenticated are not doubled", cert: ours.sign(t, client("jane", "system:authenticated"), nil),
			user: "jane", groups: []string{"system:authenticated"},
		},
		{name: "expired", cert: with(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), refuse: `the client certificate of "jane" expired at `},
		{name: "not valid yet", cert: with(func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }), refuse: `is not valid before`},
		{name: "of a server", cert: with(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), refuse: "not valid for client authentication"},
		{name: "without a name", cert: with(func(c *x509.Certificate) { c.Subject.CommonName = "" }), refuse: "no common name"},
		{name: "of another cluster", cert: theirs.sign(t, client("jane", "system:masters"), nil), refuse: "is it of another cluster, or was the authority replaced?"},
		{name: "none", cert: nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for range 2 { // the second time from memory
				u, err := a.Authenticate(request(tt.cert, ""))
				if tt.refuse != "" {
					if !apierrors.IsUnauthorized(err) || !strings.Contains(err.Error(), tt.refuse) {
						t.Fatalf("err = %v, want Unauthorized with %q", err, tt.refuse)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if tt.user == "" {
					if u != nil {
						t.Fatalf("user = %v, want nobody", u)
					}
					continue
				}
				if u.Name != tt.user || !slices.Equal(u.Groups, tt.groups) {
					t.Errorf("user = %q in %q, want %q in %q", u.Name, u.Groups, tt.user, tt.groups)
				}
			}
		})
	}
}

// TestARenewedAuthorityCounts checks that what was verified with one set of
// authorities is verified again with the next.
func TestARenewedAuthorityCounts(t *testing.T) {
	old, renewed := newAuthority(t), newAuthority(t)
	pool := old.pool
	a := auth.New(auth.Options{ClientCAs: func() *x509.CertPool { return pool }})
	r := request(old.sign(t, client("jane"), nil), "")
	if _, err := a.Authenticate(r); err != nil {
		t.Fatal(err)
	}
	pool = renewed.pool
	if _, err := a.Authenticate(r); !apierrors.IsUnauthorized(err) {
		t.Errorf("err = %v, want Unauthorized once the authority has changed", err)
	}
}

// TestNoClientCARefusesAll checks that a missing pool does not mean the
// authorities of the operating system.
func TestNoClientCARefusesAll(t *testing.T) {
	a := auth.New(auth.Options{ClientCAs: func() *x509.CertPool { return nil }})
	if _, err := a.Authenticate(request(newAuthority(t).sign(t, client("jane"), nil), "")); !apierrors.IsUnauthorized(err) || !strings.Contains(err.Error(), "no client CA") {
		t.Errorf("err = %v, want that there is no client CA", err)
	}
}

// TestAKnownCertificateCostsNothing pins that signatures are checked once per
// connection and not once per request.
func TestAKnownCertificateCostsNothing(t *testing.T) {
	ca := newAuthority(t)
	a := auth.New(auth.Options{ClientCAs: func() *x509.CertPool { return ca.pool }})
	r := request(ca.sign(t, client("jane"), nil), "")
	got := testing.AllocsPerRun(100, func() {
		if _, err := a.Authenticate(r); err != nil {
			t.Fatal(err)
		}
	})
	if got > 2 { // the key of the lookup, boxed
		t.Errorf("Authenticate allocates %v times for a known certificate, want at most 2", got)
	}
}

func TestTokenIsSubprotocolOfWebSocket(t *testing.T) {
	a := auth.New(auth.Options{AdminToken: "sesame"})
	const sesame, wrong = "base64url.bearer.authorization.k8s.io.c2VzYW1l", "base64url.bearer.authorization.k8s.io.d3Jvbmc"
	for _, tt := range []struct{ name, protocols, left, refuse string }{
		{"beside another one", "v1.example.com, " + sesame, "v1.example.com", ""},
		{"before others", sesame + ",a,b", "a, b", ""},
		{"alone", sesame, "", "missing additional subprotocol"},
		{"twice", sesame + ", a, " + sesame, "", "multiple base64.bearer.authorization tokens specified"},
		{"not encoded", "a, base64url.bearer.authorization.k8s.io.?", "", "invalid base64.bearer.authorization token encoding"},
		{"a wrong one", "a, " + wrong, "", "unknown to this cluster"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := request(nil, "")
			r.Header.Del("Authorization")
			r.Header.Set("Sec-WebSocket-Protocol", tt.protocols)
			if u, err := a.Authenticate(r); u != nil || err != nil {
				t.Errorf("without a WebSocket: %v, %v", u, err)
			}
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "websocket")
			u, err := a.Authenticate(r)
			if tt.refuse != "" {
				if !apierrors.IsUnauthorized(err) || !strings.Contains(err.Error(), tt.refuse) {
					t.Errorf("err = %v, want Unauthorized with %q", err, tt.refuse)
				}
				return
			}
			if left := r.Header.Get("Sec-WebSocket-Protocol"); err != nil || u.Name != "admin" || left != tt.left {
				t.Errorf("user %v, %v; left is %q, want %q", u, err, left, tt.left)
			}
		})
	}
}

func TestAuthorizationHeader(t *testing.T) {
	ca := newAuthority(t)
	good := ca.sign(t, client("jane"), nil)
	bad := newAuthority(t).sign(t, client("mallory"), nil)
	a := auth.New(auth.Options{ClientCAs: func() *x509.CertPool { return ca.pool }, AdminToken: "sesame"})
	tests := []struct {
		name   string
		cert   *x509.Certificate
		header string
		user   string
		refuse string
	}{
		{name: "the admin token", header: "Bearer sesame", user: "admin"},
		{name: "the scheme in any case", header: "bearer  sesame", user: "admin"},
		{name: "a wrong token", header: "Bearer sesame2", refuse: "unknown to this cluster"},
		{name: "an empty token", header: "Bearer ", refuse: "empty"},
		{name: "a password", header: "Basic amFuZTpwdw==", refuse: "must have the scheme Bearer"},
		{name: "a good certificate counts more than a bad token", cert: good, header: "Bearer x", user: "jane"},
		{name: "a good token makes up for a bad certificate", cert: bad, header: "Bearer sesame", user: "admin"},
		{name: "a bad certificate alone", cert: bad, refuse: "not signed by this cluster's authority"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			u, err := a.Authenticate(request(tt.cert, tt.header))
			switch {
			case tt.refuse != "":
				if !apierrors.IsUnauthorized(err) || !strings.Contains(err.Error(), tt.refuse) {
					t.Errorf("err = %v, want Unauthorized with %q", err, tt.refuse)
				}
			case err != nil || u.Name != tt.user:
				t.Errorf("user = %v, %v, want %q", u, err, tt.user)
			}
		})
	}
}
