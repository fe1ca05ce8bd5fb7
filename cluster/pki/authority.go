package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour

	// skew makes certificates valid for clients whose clock is a little behind.
	skew = 5 * time.Minute
)

// An Authority issues the certificates of a cluster. It is safe for concurrent
// use.
type Authority struct {
	cert     *x509.Certificate
	certPEM  []byte
	key      *ecdsa.PrivateKey
	tokenKey *ecdsa.PrivateKey
	pool     *x509.CertPool
}

// Open returns the authority whose files are in dir, which is made with new keys
// if there is none. now is the time from which a new one is valid.
func Open(dir string, now time.Time) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of the cluster's keys: %w", err)
	}
	// A new key would not match an old certificate.
	if noKey, noCert := absent(dir, "ca.key"), absent(dir, "ca.crt"); noKey && !noCert {
		return nil, fmt.Errorf("%s is missing, but its ca.crt exists; restore it from a copy, or start over with `sampan down --purge`", filepath.Join(dir, "ca.key"))
	}
	a := &Authority{}
	var err error
	if a.key, err = keyAt(filepath.Join(dir, "ca.key")); err != nil {
		return nil, err
	}
	if a.tokenKey, err = keyAt(filepath.Join(dir, "sa.key")); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "ca.crt")
	a.certPEM, err = os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		a.certPEM, err = selfSigned(a.key, now)
		if err == nil {
			err = writeWhole(path, a.certPEM)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("certificate of the cluster's authority: %w", err)
	}
	if err := a.parse(path, now); err != nil {
		return nil, err
	}
	return a, nil
}

func absent(dir, name string) bool {
	_, err := os.Lstat(filepath.Join(dir, name))
	return errors.Is(err, fs.ErrNotExist)
}

// parse fills in what follows from the certificate, and checks that it is ours.
func (a *Authority) parse(path string, now time.Time) error {
	block, _ := pem.Decode(a.certPEM)
	if block == nil {
		return fmt.Errorf("%s contains no PEM certificate; restore it from a copy, or start over with `sampan down --purge`", path)
	}
	var err error
	if a.cert, err = x509.ParseCertificate(block.Bytes); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	if pub, ok := a.cert.PublicKey.(*ecdsa.PublicKey); !ok || !pub.Equal(a.key.Public()) {
		return fmt.Errorf("%s does not match the ca.key beside it; restore both from the same copy", path)
	}
	if now.After(a.cert.NotAfter) {
		return fmt.Errorf("%s expired on %s; remove it and the next start issues a new one with the same key", path, a.cert.NotAfter.Format(time.DateOnly))
	}
	a.pool = x509.NewCertPool()
	a.pool.AddCert(a.cert)
	return nil
}

// CertificatePEM returns the certificate of the authority.
func (a *Authority) CertificatePEM() []byte { return bytes.Clone(a.certPEM) }

// Pool returns the pool with the authority alone. It must not be changed.
func (a *Authority) Pool() *x509.CertPool { return a.pool }

// TokenKey returns the key with which service-account tokens are signed.
func (a *Authority) TokenKey() *ecdsa.PrivateKey { return a.tokenKey }

// A Subject is whom a certificate is for. One with DNS names or addresses may be
// used by servers, each by clients.
type Subject struct {
	CommonName    string
	Organizations []string
	DNSNames      []string
	IPs           []net.IP
}

// Issue returns a certificate with a new key, valid for a year from now, but not
// longer than the authority.
func (a *Authority) Issue(s Subject, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: s.CommonName, Organization: s.Organizations},
		DNSNames:     s.DNSNames,
		IPAddresses:  s.IPs,
		NotBefore:    now.Add(-skew),
		NotAfter:     earlier(now.Add(leafLife), a.cert.NotAfter),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if len(s.DNSNames)+len(s.IPs) > 0 {
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("issuing a certificate for %s: %w", s.CommonName, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// PEM returns a certificate and its key as files hold them.
func PEM(c *tls.Certificate) (cert, key []byte, err error) {
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		return nil, nil, err
	}
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// A Renewed is a certificate that is issued again whenever a fifth of its lifetime is
// left. Its methods fit tls.Config's GetCertificate and GetClientCertificate.
type Renewed struct {
	authority *Authority
	subject   Subject

	mu   sync.Mutex
	cert *tls.Certificate // guarded by mu
}

// Renewed returns a certificate of the subject that never runs out.
func (a *Authority) Renewed(s Subject) *Renewed { return &Renewed{authority: a, subject: s} }

// Server returns the certificate for a handshake as a server.
func (r *Renewed) Server(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return r.current(time.Now())
}

// Client returns the certificate for a handshake as a client.
func (r *Renewed) Client(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return r.current(time.Now())
}

func (r *Renewed) current(now time.Time) (*tls.Certificate, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cert != nil {
		if !renewable(r.cert.Leaf, now) {
			return r.cert, nil
		}
	}
	c, err := r.authority.Issue(r.subject, now)
	if err != nil {
		return nil, err
	}
	r.cert = c
	return c, nil
}

// Good reports whether a certificate of a client and its key, in PEM, are for that subject, come
// from this authority, and need not be renewed yet.
func (a *Authority) Good(s Subject, certPEM, keyPEM []byte, now time.Time) bool {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return false
	}
	l := pair.Leaf
	_, err = l.Verify(x509.VerifyOptions{Roots: a.pool, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err == nil && !renewable(l, now) && l.Subject.CommonName == s.CommonName && slices.Equal(l.Subject.Organization, s.Organizations)
}

// renewable reports whether only a fifth of a certificate's time is left, or less.
func renewable(l *x509.Certificate, now time.Time) bool {
	return !now.Before(l.NotAfter.Add(-l.NotAfter.Sub(l.NotBefore) / 5))
}

func selfSigned(key *ecdsa.PrivateKey, now time.Time) ([]byte, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "sampan-ca"},
		NotBefore:             now.Add(-skew),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// newSerial returns a random number of 120 bits; RFC 5280 section 4.1.2.2 allows
// up to 20 octets.
func newSerial() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// keyAt reads the key in a file, which is made if there is none.
func keyAt(path string) (*ecdsa.PrivateKey, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newKeyAt(path)
	}
	if err != nil {
		return nil, fmt.Errorf("reading a key of the cluster: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s contains no PEM key; restore it from a copy, or start over with `sampan down --purge`", path)
	}
	k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	key, ok := k.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s must contain an ECDSA key, got a %T", path, k)
	}
	return key, nil
}

func newKeyAt(path string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	if err := writeWhole(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})); err != nil {
		return nil, fmt.Errorf("saving a key of the cluster: %w", err)
	}
	return key, nil
}

// writeWhole makes a file that is there with all of its contents, durably, or
// not at all.
func writeWhole(path string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if _, err = f.Write(data); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
