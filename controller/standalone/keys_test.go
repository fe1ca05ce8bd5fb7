package standalone

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"k8s.io/client-go/rest"
)

// write writes a file in PEM and returns its path.
func write(t *testing.T, name, kind string, der []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func newKey(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	return must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(curve, rand.Reader))
}

func TestSignerReadsTheKeysOfUpstream(t *testing.T) {
	key := must[*rsa.PrivateKey](t)(rsa.GenerateKey(rand.Reader, 2048))
	p256, p384, p521 := newKey(t, elliptic.P256()), newKey(t, elliptic.P384()), newKey(t, elliptic.P521())
	for _, tt := range []struct {
		kind      string
		der       []byte
		algorithm string
		public    crypto.PublicKey
	}{
		{"RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key), "RS256", key.Public()},
		{"PRIVATE KEY", must[[]byte](t)(x509.MarshalPKCS8PrivateKey(key)), "RS256", key.Public()},
		{"EC PRIVATE KEY", must[[]byte](t)(x509.MarshalECPrivateKey(p256)), "ES256", p256.Public()},
		{"PRIVATE KEY", must[[]byte](t)(x509.MarshalPKCS8PrivateKey(p384)), "ES384", p384.Public()},
		{"EC PRIVATE KEY", must[[]byte](t)(x509.MarshalECPrivateKey(p521)), "ES512", p521.Public()},
	} {
		s := must[*tokenSigner](t)(readSigner(write(t, "key.pem", tt.kind, tt.der)))
		text := must[string](t)(s.SignLegacy("ship", "cook", "uid-1", "recipe"))
		var claims legacyClaims
		token, err := jwt.ParseWithClaims(text, &claims, func(*jwt.Token) (any, error) { return tt.public, nil })
		if err != nil || token.Method.Alg() != tt.algorithm || token.Header["kid"] == "" {
			t.Errorf("%s: the token is %v: %v", tt.algorithm, token, err)
		}
		if claims.Issuer != "kubernetes/serviceaccount" || claims.Subject != "system:serviceaccount:ship:cook" || claims.AccountUID != "uid-1" || claims.Secret != "recipe" {
			t.Errorf("%s: the claims are %+v", tt.algorithm, claims)
		}
	}
}

func TestSignerRefusesOtherFiles(t *testing.T) {
	p224 := newKey(t, elliptic.P224())
	for _, tt := range []struct{ file, want string }{
		{write(t, "key.pem", "CERTIFICATE", []byte("x")), "has no private key in PEM"},
		{write(t, "key.pem", "EC PRIVATE KEY", []byte("x")), "key.pem: "},
		{write(t, "key.pem", "EC PRIVATE KEY", must[[]byte](t)(x509.MarshalECPrivateKey(p224))), "must be an RSA key, or an ECDSA key on P-256, P-384 or P-521"},
		{filepath.Join(t.TempDir(), "none"), "no such file"},
	} {
		if _, err := readSigner(tt.file); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("readSigner = %v, want %q", err, tt.want)
		}
	}
}

// issue writes a self-signed certificate and its key.
func issue(t *testing.T, name string, isCA bool) (certFile, keyFile string) {
	t.Helper()
	key := newKey(t, elliptic.P256())
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour).Truncate(time.Second),
		BasicConstraintsValid: true, IsCA: isCA, KeyUsage: x509.KeyUsageCertSign,
	}
	der := must[[]byte](t)(x509.CreateCertificate(rand.Reader, c, c, key.Public(), key))
	return write(t, "ca.pem", "CERTIFICATE", der), write(t, "ca.key", "EC PRIVATE KEY", must[[]byte](t)(x509.MarshalECPrivateKey(key)))
}

func TestAuthoritySignsAndReadsItsFilesAgain(t *testing.T) {
	certFile, keyFile := issue(t, "first", true)
	a := must[*authority](t)(newAuthority(certFile, keyFile))
	issuer := func() string {
		t.Helper()
		der := must[[]byte](t)(a.Sign(&x509.Certificate{Subject: pkix.Name{CommonName: "jane"}}, newKey(t, elliptic.P256()).Public()))
		return must[*x509.Certificate](t)(x509.ParseCertificate(der)).Issuer.CommonName
	}
	if got := issuer(); got != "first" {
		t.Errorf("the issuer is %s", got)
	}
	nextCert, nextKey := issue(t, "next", true)
	if err := os.Rename(nextCert, certFile); err != nil {
		t.Fatal(err)
	}
	if err := a.read(); err == nil || issuer() != "first" {
		t.Errorf("a certificate and the key of another: %v", err)
	}
	if err := os.Rename(nextKey, keyFile); err != nil {
		t.Fatal(err)
	}
	if err := a.read(); err != nil || issuer() != "next" {
		t.Errorf("after both files changed: %v", err)
	}
}

func TestAuthorityMustBeOne(t *testing.T) {
	if _, err := newAuthority(issue(t, "leaf", false)); err == nil || !strings.Contains(err.Error(), "is not the certificate of an authority") {
		t.Errorf("newAuthority = %v", err)
	}
}

func TestRootsAreThoseOfTheKubeconfigByDefault(t *testing.T) {
	certFile, keyFile := issue(t, "root", true)
	want := string(must[[]byte](t)(os.ReadFile(certFile)))
	for _, cfg := range []*rest.Config{
		{TLSClientConfig: rest.TLSClientConfig{CAFile: certFile}},
		{TLSClientConfig: rest.TLSClientConfig{CAData: []byte(want)}},
	} {
		if got, err := readRoots("", cfg); err != nil || string(got) != want {
			t.Errorf("readRoots = %s, %v", got, err)
		}
	}
	if got, err := readRoots(certFile, &rest.Config{}); err != nil || string(got) != want {
		t.Errorf("readRoots = %s, %v", got, err)
	}
	if _, err := readRoots(keyFile, &rest.Config{}); err == nil || !strings.Contains(err.Error(), "has no certificate in PEM") {
		t.Errorf("readRoots of a key = %v", err)
	}
}
