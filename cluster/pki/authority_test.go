package pki_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sampan-io/sampan/cluster/pki"
)

func open(t *testing.T, dir string) *pki.Authority {
	t.Helper()
	a, err := pki.Open(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func tokenKeys(t *testing.T, dir string) *pki.TokenKeys {
	t.Helper()
	k, err := pki.OpenTokenKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestTheAuthorityStaysTheSame(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir), open(t, dir)
	if string(a.CertificatePEM()) != string(b.CertificatePEM()) || !tokenKeys(t, dir).Equal(tokenKeys(t, dir)) {
		t.Error("the second start has another authority than the first")
	}
	proxy, err := pki.OpenFrontProxy(dir, time.Now())
	if err != nil || string(proxy.CertificatePEM()) == string(a.CertificatePEM()) {
		t.Errorf("the authority of front proxies is the cluster's: %v", err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 5 {
		t.Errorf("%d files, %v, want ca.crt, ca.key, front-proxy-ca.crt, front-proxy-ca.key and sa.key", len(files), err)
	}
	for _, f := range files {
		if i, err := f.Info(); err != nil || i.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, want 0600", f.Name(), i.Mode())
		}
	}
}

func TestCertificatesAreForTheirUse(t *testing.T) {
	a := open(t, t.TempDir())
	server, err := a.Issue(pki.Subject{CommonName: "kube-apiserver", DNSNames: []string{"kubernetes"}, IPs: []net.IP{net.IPv4(10, 0, 0, 1)}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	client, err := a.Issue(pki.Subject{CommonName: "kubernetes-admin", Organizations: []string{"system:masters"}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kubernetes", "10.0.0.1"} {
		if _, err := server.Leaf.Verify(x509.VerifyOptions{Roots: a.Pool(), DNSName: name}); err != nil {
			t.Errorf("as server %s: %v", name, err)
		}
	}
	if _, err := client.Leaf.Verify(x509.VerifyOptions{Roots: a.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err == nil {
		t.Error("a client's certificate is good for a server")
	}
	if _, err := client.Leaf.Verify(x509.VerifyOptions{Roots: open(t, t.TempDir()).Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err == nil {
		t.Error("another cluster takes our certificate")
	}
}

func TestACertificateIsGoodUntilItIsRenewed(t *testing.T) {
	a, now := open(t, t.TempDir()), time.Now()
	admin := pki.Subject{CommonName: "admin", Organizations: []string{"system:masters"}}
	issue := func(a *pki.Authority, s pki.Subject) (cert, key []byte) {
		c, err := a.Issue(s, now)
		if err == nil {
			cert, key, err = pki.PEM(c)
		}
		if err != nil {
			t.Fatal(err)
		}
		return cert, key
	}
	cert, key := issue(a, admin)
	_, otherKey := issue(a, admin)
	foreign, foreignKey := issue(open(t, t.TempDir()), admin)
	mate, mateKey := issue(a, pki.Subject{CommonName: "admin"})
	for name, tt := range map[string]struct {
		cert, key []byte
		at        time.Time
		want      bool
	}{
		"fresh":             {cert, key, now, true},
		"half its life":     {cert, key, now.AddDate(0, 6, 0), true},
		"near its end":      {cert, key, now.AddDate(0, 11, 0), false},
		"expired":           {cert, key, now.AddDate(2, 0, 0), false},
		"another key":       {cert, otherKey, now, false},
		"another authority": {foreign, foreignKey, now, false},
		"other groups":      {mate, mateKey, now, false},
		"nothing":           {nil, nil, now, false},
		"half a file":       {cert[:100], key, now, false},
	} {
		if got := a.Good(admin, tt.cert, tt.key, tt.at); got != tt.want {
			t.Errorf("%s: Good is %v, want %v", name, got, tt.want)
		}
	}
}

func TestDamagedFilesAreNamed(t *testing.T) {
	for _, name := range []string{"ca.crt", "ca.key", "sa.key"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			open(t, dir)
			tokenKeys(t, dir)
			path := filepath.Join(dir, name)
			if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := pki.Open(dir, time.Now())
			if err == nil {
				_, err = pki.OpenTokenKeys(dir)
			}
			if err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("Open = %v, want an error that names %s", err, path)
			}
		})
	}
	t.Run("a key of another cluster", func(t *testing.T) {
		dir, other := t.TempDir(), t.TempDir()
		open(t, dir)
		open(t, other)
		if err := os.Rename(filepath.Join(other, "ca.key"), filepath.Join(dir, "ca.key")); err != nil {
			t.Fatal(err)
		}
		if _, err := pki.Open(dir, time.Now()); err == nil || !strings.Contains(err.Error(), "does not match the ca.key") {
			t.Errorf("Open = %v, want an error about the pair", err)
		}
	})
	t.Run("a key that is gone", func(t *testing.T) {
		dir := t.TempDir()
		open(t, dir)
		key := filepath.Join(dir, "ca.key")
		if err := os.Remove(key); err != nil {
			t.Fatal(err)
		}
		if _, err := pki.Open(dir, time.Now()); err == nil || !strings.Contains(err.Error(), key+" is missing") {
			t.Errorf("Open = %v, want an error that names %s", err, key)
		}
		if _, err := os.Stat(key); err == nil {
			t.Error("a new key was made for the old certificate")
		}
	})
	t.Run("expired", func(t *testing.T) {
		dir := t.TempDir()
		open(t, dir)
		if _, err := pki.Open(dir, time.Now().AddDate(11, 0, 0)); err == nil || !strings.Contains(err.Error(), "expired on") {
			t.Errorf("Open = %v, want an error about the expiry", err)
		}
	})
}

func TestSign(t *testing.T) {
	a := open(t, t.TempDir())
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good := x509.Certificate{
		Subject: pkix.Name{CommonName: "jane"}, NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true,
	}
	der, err := a.Sign(&good, key.Public())
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Verify(x509.VerifyOptions{Roots: a.Pool(), KeyUsages: good.ExtKeyUsage}); err != nil || c.Subject.CommonName != "jane" || c.SerialNumber.Sign() == 0 {
		t.Errorf("signed %v for %s, %v", c.SerialNumber, c.Subject, err)
	}
	authority, long := good, good
	authority.IsCA, long.NotAfter = true, a.NotAfter().Add(time.Second)
	for name, template := range map[string]x509.Certificate{"an authority": authority, "longer than the authority": long} {
		if _, err := a.Sign(&template, key.Public()); err == nil {
			t.Errorf("%s: signed", name)
		}
	}
}
