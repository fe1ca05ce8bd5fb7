package pki

import (
	"bytes"
	"crypto"
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
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sampan-io/sampan/internal/wholefile"
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
	dir        string
	commonName string
	names      names

	now atomic.Pointer[state]

	mu      sync.Mutex
	changed []func() // guarded by mu
}

// names are the names of an authority's files.
type names struct{ cert, key, next string }

// A state is the contents of an authority's files at one time. It is not changed.
type state struct {
	cert    *x509.Certificate // that signs
	key     *ecdsa.PrivateKey
	next    *x509.Certificate // that is to sign later; nil if there is none
	trusted []*x509.Certificate
	bundle  []byte // trusted, in PEM
	pool    *x509.CertPool
}

// Open returns the authority whose files are in dir, which is made with new keys
// if there is none. now is the time from which a new one is valid.
func Open(dir string, now time.Time) (*Authority, error) {
	return open(dir, "sampan-ca", names{"ca.crt", "ca.key", "ca-next.key"}, now)
}

// OpenFrontProxy returns the authority in dir that signs the client certificate with which the API server calls servers of
// aggregated APIs. It signs nothing else. It is made if there is none.
func OpenFrontProxy(dir string, now time.Time) (*Authority, error) {
	return open(dir, "sampan-front-proxy-ca", names{"front-proxy-ca.crt", "front-proxy-ca.key", "front-proxy-ca-next.key"}, now)
}

func open(dir, commonName string, files names, now time.Time) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of the cluster's keys: %w", err)
	}
	a := &Authority{dir: dir, commonName: commonName, names: files}
	s, err := a.read(now)
	if err != nil {
		return nil, err
	}
	a.now.Store(s)
	return a, nil
}

func (a *Authority) path(name string) string { return filepath.Join(a.dir, name) }

// read returns the files' contents. It makes a key and a certificate where there are none.
func (a *Authority) read(now time.Time) (*state, error) {
	// A new key would not match an old certificate.
	if noKey, noCert := absent(a.path(a.names.key)), absent(a.path(a.names.cert)); noKey && !noCert {
		return nil, fmt.Errorf("%s is missing, but its %s exists; restore it from a copy, or start over with `sampan down --purge`", a.path(a.names.key), a.names.cert)
	}
	key, err := keyAt(a.path(a.names.key))
	if err != nil {
		return nil, err
	}
	path := a.path(a.names.cert)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(data) == 0 { // empty after a power cut; the key is what counts
		data, err = selfSigned(a.commonName, key, now)
		if err == nil {
			err = wholefile.Write(path, data, 0o600, wholefile.Durable)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("certificate of the cluster's authority: %w", err)
	}
	s, err := parse(path, data, key, now)
	if err != nil {
		return nil, err
	}
	if !absent(a.path(a.names.next)) {
		next, err := keyAt(a.path(a.names.next))
		if err != nil {
			return nil, err
		}
		s.next = s.of(next.Public())
	}
	return s, nil
}

func absent(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// parse reads a bundle and checks that key belongs to one of its certificates. It leaves out expired certificates.
func parse(path string, data []byte, key *ecdsa.PrivateKey, now time.Time) (*state, error) {
	s := &state{key: key, pool: x509.NewCertPool()}
	var expired *x509.Certificate
	for rest := data; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		if now.After(c.NotAfter) {
			expired = c
			continue
		}
		s.trusted = append(s.trusted, c)
		s.bundle = append(s.bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
		s.pool.AddCert(c)
	}
	s.cert = s.of(key.Public())
	switch {
	case s.cert != nil:
		return s, nil
	case expired != nil && same(expired, key.Public()):
		return nil, fmt.Errorf("%s expired on %s; remove it and the next start issues a new one with the same key", path, expired.NotAfter.Format(time.DateOnly))
	case expired == nil && len(s.trusted) == 0:
		return nil, fmt.Errorf("%s contains no PEM certificate; restore it from a copy, or start over with `sampan down --purge`", path)
	}
	return nil, fmt.Errorf("%s does not match the %s beside it; restore both from the same copy", path, strings.TrimSuffix(filepath.Base(path), ".crt")+".key")
}

// of returns the trusted certificate of a key, or nil.
func (s *state) of(public crypto.PublicKey) *x509.Certificate {
	for _, c := range s.trusted {
		if same(c, public) {
			return c
		}
	}
	return nil
}

func same(c *x509.Certificate, public crypto.PublicKey) bool {
	key, ok := c.PublicKey.(*ecdsa.PublicKey)
	return ok && key.Equal(public)
}

// CertificatePEM returns the certificates of the authority: all that are trusted, the one that signs first unless it is
// about to be replaced.
func (a *Authority) CertificatePEM() []byte { return bytes.Clone(a.now.Load().bundle) }

// Pool returns the pool with the authority's certificates alone. It is the same until they change, and must not be
// changed.
func (a *Authority) Pool() *x509.CertPool { return a.now.Load().pool }

// A Certificate is one of an authority.
type Certificate struct {
	Use      string // "signs", "prepared" or "trusted"
	NotAfter time.Time
}

// Certificates returns the certificates of the authority, in the order of the bundle.
func (a *Authority) Certificates() []Certificate {
	s := a.now.Load()
	var all []Certificate
	for _, c := range s.trusted {
		use := "trusted"
		switch {
		case c.Equal(s.cert):
			use = "signs"
		case s.next != nil && c.Equal(s.next):
			use = "prepared"
		}
		all = append(all, Certificate{use, c.NotAfter})
	}
	return all
}

// OnChange has f called after each change of the authority's certificates. It must not block.
func (a *Authority) OnChange(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changed = append(a.changed, f)
}

// Reload reads the files again, which another process may have changed, and reports whether the certificates are others
// now. After an error all is as before.
func (a *Authority) Reload(now time.Time) (bool, error) {
	s, err := a.read(now)
	if err != nil {
		return false, err
	}
	before := a.now.Load()
	if bytes.Equal(before.bundle, s.bundle) && before.key.Equal(s.key) {
		return false, nil
	}
	a.now.Store(s)
	a.mu.Lock()
	call := slices.Clone(a.changed)
	a.mu.Unlock()
	for _, f := range call {
		f()
	}
	return true, nil
}

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
	by := a.now.Load()
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
		NotAfter:     earlier(now.Add(leafLife), by.cert.NotAfter),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if len(s.DNSNames)+len(s.IPs) > 0 {
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	der, err := x509.CreateCertificate(rand.Reader, t, by.cert, key.Public(), by.key)
	if err != nil {
		return nil, fmt.Errorf("issuing a certificate for %s: %w", s.CommonName, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// NotAfter returns when the authority's own certificate ends. Nothing that it signs is valid longer.
func (a *Authority) NotAfter() time.Time { return a.now.Load().cert.NotAfter }

// Sign returns a certificate, in DER, as the template describes it, with a new serial number, for the holder of the
// private key that belongs to public. The caller has checked that holder's right to the certificate. A template of another
// authority, or of a certificate that ends after this authority, is an error.
func (a *Authority) Sign(template *x509.Certificate, public crypto.PublicKey) ([]byte, error) {
	by := a.now.Load()
	if template.IsCA || template.NotAfter.After(by.cert.NotAfter) {
		return nil, fmt.Errorf("signing a certificate for %s: it must not be an authority, and must not end after %s", template.Subject, by.cert.NotAfter.Format(time.RFC3339))
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	t := *template
	t.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, &t, by.cert, public, by.key)
	if err != nil {
		return nil, fmt.Errorf("signing a certificate for %s: %w", t.Subject, err)
	}
	return der, nil
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
// left, and when another certificate of the authority signs. Its methods fit tls.Config's GetCertificate and GetClientCertificate.
type Renewed struct {
	authority *Authority
	subject   Subject

	mu   sync.Mutex
	cert *tls.Certificate  // guarded by mu
	by   *x509.Certificate // guarded by mu; the authority that has signed it
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
	by := r.authority.now.Load().cert
	if r.cert != nil && r.by.Equal(by) && !renewable(r.cert.Leaf, now) {
		return r.cert, nil
	}
	c, err := r.authority.Issue(r.subject, now)
	if err != nil {
		return nil, err
	}
	r.cert, r.by = c, by
	return c, nil
}

// Good reports whether a certificate of a client and its key, in PEM, are for that subject, were signed by the certificate
// of this authority that signs now, and need not be renewed yet. One that a former certificate has signed is accepted until
// that is dropped, so it is not good any more.
func (a *Authority) Good(s Subject, certPEM, keyPEM []byte, now time.Time) bool {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return false
	}
	l := pair.Leaf
	signing := x509.NewCertPool()
	signing.AddCert(a.now.Load().cert)
	_, err = l.Verify(x509.VerifyOptions{Roots: signing, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err == nil && !renewable(l, now) && l.Subject.CommonName == s.CommonName && slices.Equal(l.Subject.Organization, s.Organizations)
}

// Signed reports whether the certificate of this authority that signs now has signed a certificate in PEM.
func (a *Authority) Signed(certPEM []byte) bool {
	c, err := ParseCertificate(certPEM)
	return err == nil && c.CheckSignatureFrom(a.now.Load().cert) == nil
}

// ParseCertificate returns the first certificate in PEM.
func ParseCertificate(certPEM []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(certPEM)
	if block == nil {
		return nil, errors.New("no PEM certificate")
	}
	return x509.ParseCertificate(block.Bytes)
}

// Renewable returns from when on a client certificate in PEM is due for renewal, or the zero time if it is none.
func Renewable(certPEM []byte) time.Time {
	l, err := ParseCertificate(certPEM)
	if err != nil {
		return time.Time{}
	}
	return l.NotAfter.Add(-l.NotAfter.Sub(l.NotBefore) / 5)
}

// renewable reports whether only a fifth of a certificate's time is left, or less.
func renewable(l *x509.Certificate, now time.Time) bool {
	return !now.Before(l.NotAfter.Add(-l.NotAfter.Sub(l.NotBefore) / 5))
}

func selfSigned(commonName string, key *ecdsa.PrivateKey, now time.Time) ([]byte, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: commonName},
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
	return key, saveKey(path, key)
}

func saveKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err == nil {
		err = wholefile.Write(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600, wholefile.Durable)
	}
	if err != nil {
		return fmt.Errorf("saving a key of the cluster: %w", err)
	}
	return nil
}
