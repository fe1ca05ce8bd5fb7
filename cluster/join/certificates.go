package join

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/cluster/pki"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/wholefile"
)

// Names of files in the directory of keys. A certificate and its key are in one file, as upstream's kubelet has them, so
// that one rename replaces both.
const (
	caFile     = "ca.crt"
	clientFile = "kubelet-client-current.pem"
	serverFile = "kubelet-server-current.pem"
)

// Certificates are those of a node: the authority of its cluster, and its own as a client and as a server. They are kept
// valid by Run. It is safe for concurrent use.
type Certificates struct {
	dir  string
	node string

	clientRenewals, servingRenewals renewals
	requests                        *requests

	ca      atomic.Pointer[authority]
	client  atomic.Pointer[tls.Certificate]
	serving atomic.Pointer[tls.Certificate] // nil before the first was issued

	mu      sync.Mutex
	changed chan struct{}          // guarded by mu; closed when the authority changes
	dialers []*connrotation.Dialer // guarded by mu; with connections that the client certificate was shown on
}

func newCertificates(dir, node string) *Certificates {
	c := &Certificates{dir: dir, node: node, changed: make(chan struct{}), requests: newRequests()}
	c.clientRenewals, c.servingRenewals = newRenewals()
	return c
}

// An authority is one in PEM and as a pool. The first certificate is the one that signs.
type authority struct {
	pem    []byte
	pool   *x509.CertPool
	signer *x509.Certificate
}

// Open reads the certificates of a node from a directory. If there are none, the error is [fs.ErrNotExist]. A certificate as a
// server that cannot be read is requested again when the node runs.
func Open(dir, node string) (*Certificates, error) {
	c := newCertificates(dir, node)
	ca, err := os.ReadFile(filepath.Join(dir, caFile))
	if err == nil {
		err = c.trust(ca)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the certificate authority of the cluster: %s: %w", filepath.Join(dir, caFile), err)
	}
	for file, to := range map[string]*atomic.Pointer[tls.Certificate]{clientFile: &c.client, serverFile: &c.serving} {
		path := filepath.Join(dir, file)
		pair, err := tls.LoadX509KeyPair(path, path)
		switch {
		case err == nil:
			to.Store(&pair)
		case file == serverFile:
		case errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("reading the certificate of the node: %w", err)
		default:
			return nil, fmt.Errorf("reading the certificate of the node: %s: %w", path, err)
		}
	}
	if name := c.client.Load().Leaf.Subject.CommonName; name != "system:node:"+node {
		return nil, fmt.Errorf("%s is the certificate of %s, not of node %s", filepath.Join(dir, clientFile), name, node)
	}
	return c, nil
}

// Request gets the first certificate of a node, as the user of a bootstrap token, and writes it with the authority to a
// directory.
func Request(ctx context.Context, api client.Interface, dir, node string, ca []byte) (*Certificates, error) {
	cert, err := request(ctx, api, node, asClient())
	if err != nil {
		return nil, err
	}
	c := newCertificates(dir, node)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := c.Trust(ca); err != nil {
		return nil, err
	}
	return c, c.keep(clientFile, cert, &c.client)
}

// Trust replaces the authority of the cluster by the one in PEM.
func (c *Certificates) Trust(ca []byte) error {
	if now := c.ca.Load(); now != nil && string(now.pem) == string(ca) {
		return nil
	}
	if err := c.trust(ca); err != nil {
		return err
	}
	if err := wholefile.Write(filepath.Join(c.dir, caFile), ca, 0o600, wholefile.Durable); err != nil {
		return fmt.Errorf("saving the certificate authority of the cluster: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.changed)
	c.changed = make(chan struct{})
	return nil
}

func (c *Certificates) trust(ca []byte) error {
	p, err := pool(ca)
	if err != nil {
		return err
	}
	signer, err := pki.ParseCertificate(ca)
	if err != nil {
		return err
	}
	c.ca.Store(&authority{ca, p, signer})
	return nil
}

// Pool returns the authority of the cluster.
func (c *Certificates) Pool() *x509.CertPool { return c.ca.Load().pool }

// Expires returns when the client certificate ends.
func (c *Certificates) Expires() time.Time { return c.client.Load().Leaf.NotAfter }

// Server returns the serving certificate, for [tls.Config].
func (c *Certificates) Server(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if cert := c.serving.Load(); cert != nil {
		return cert, nil
	}
	return nil, fmt.Errorf("node %s has no serving certificate yet", c.node)
}

// keep writes a certificate to its file and uses it.
func (c *Certificates) keep(file string, cert *tls.Certificate, to *atomic.Pointer[tls.Certificate]) error {
	certPEM, keyPEM, err := pki.PEM(cert)
	if err != nil {
		return err
	}
	if err := wholefile.Write(filepath.Join(c.dir, file), append(certPEM, keyPEM...), 0o600, wholefile.Durable); err != nil {
		return fmt.Errorf("saving a certificate of the node: %w", err)
	}
	to.Store(cert)
	return nil
}

// Client returns a client of the API server as the node. It shows the newest certificate. Requests block until wait is closed; nil
// means that they do not.
func (c *Certificates) Client(server, agent string, wait <-chan struct{}) (*client.REST, error) {
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext)
	c.mu.Lock()
	c.dialers = append(c.dialers, dialer)
	c.mu.Unlock()
	transport := utilnet.SetTransportDefaults(&http.Transport{
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 25,
		DialContext:         dialer.DialContext,
		TLSClientConfig: &tls.Config{
			MinVersion:         tls.VersionTLS12,
			InsecureSkipVerify: true, // VerifyConnection verifies, by an authority that may change
			VerifyConnection:   func(s tls.ConnectionState) error { return verify(s, c.Pool()) },
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return c.client.Load(), nil
			},
			NextProtos: []string{"h2", "http/1.1"},
		},
	})
	config := &rest.Config{Host: server, Transport: measured{transport, c.requests}}
	if wait != nil {
		config.Transport = waiting{config.Transport, wait}
	}
	return client.NewREST(config, client.RESTOptions{UserAgent: agent})
}

// waiting is a transport whose requests block until a channel is closed.
type waiting struct {
	http.RoundTripper
	until <-chan struct{}
}

// RoundTrip implements [http.RoundTripper].
func (w waiting) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-w.until:
		return w.RoundTripper.RoundTrip(r)
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
}

// verify verifies a server as package tls does.
func verify(s tls.ConnectionState, roots *x509.CertPool) error {
	o := x509.VerifyOptions{Roots: roots, DNSName: s.ServerName, Intermediates: x509.NewCertPool()}
	for _, c := range s.PeerCertificates[1:] {
		o.Intermediates.AddCert(c)
	}
	_, err := s.PeerCertificates[0].Verify(o)
	if err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
	}
	return nil
}

// retries are the pauses after a request that failed.
func retries() run.Backoff { return run.Backoff{First: time.Second, Max: 5 * time.Minute} }

// Run keeps the certificates valid until ctx is cancelled: it gets the serving certificate for the given addresses, unless it
// has that, and new certificates in time (join-J3).
func (c *Certificates) Run(ctx context.Context, api client.Interface, addresses []netip.Addr, log *slog.Logger) error {
	g := run.NewGroup(ctx, 0)
	defer g.Wait()
	g.Go(func(ctx context.Context) {
		c.renew(ctx, api, asClient(), clientFile, &c.client, &c.clientRenewals, log, c.Disconnect)
	})
	g.Go(func(ctx context.Context) {
		c.renew(ctx, api, asServer(c.node, addresses), serverFile, &c.serving, &c.servingRenewals, log, func() {})
	})
	return nil
}

// Disconnect closes the connections of all clients, which make new ones with the newest certificate.
func (c *Certificates) Disconnect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.dialers {
		d.CloseAll()
	}
}

// renew gets a new certificate whenever the one that there is is due, until ctx is cancelled.
func (c *Certificates) renew(ctx context.Context, api client.Interface, p purpose, file string, to *atomic.Pointer[tls.Certificate], measured *renewals, log *slog.Logger, renewed func()) {
	for failures := 0; ; {
		c.mu.Lock()
		changed := c.changed
		c.mu.Unlock()
		at := due(to.Load(), p, c.ca.Load().signer)
		if failures == 0 || at.After(time.Now()) {
			switch pauseUntil(ctx, at, changed) {
			case over:
				return
			case interrupted:
				continue
			}
		}
		old := to.Load()
		cert, err := request(ctx, api, c.node, p)
		if err == nil {
			err = c.keep(file, cert, to)
		}
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			measured.renewed(old, time.Now())
			if !due(cert, p, c.ca.Load().signer).Before(time.Now()) {
				failures = 0
			} else {
				failures++ // the cluster has another authority than this machine has read so far
			}
			log.InfoContext(ctx, "the node has a new certificate", "signer", p.signer, "expires", cert.Leaf.NotAfter.UTC().Format(time.RFC3339))
			if renewed(); failures == 0 {
				continue
			}
		} else {
			failures++
			measured.errors.Inc()
			log.WarnContext(ctx, "the node gets no new certificate, will try again", "signer", p.signer, "err", err)
		}
		if !run.Pause(ctx, retries().Pause(failures)) {
			return
		}
	}
}

// Why a pause has ended.
const (
	reached     = iota // its time
	interrupted        // something has changed
	over               // the context is cancelled
)

// pauseUntil pauses until a time, until a channel is closed, or until ctx is cancelled.
func pauseUntil(ctx context.Context, at time.Time, changed <-chan struct{}) int {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		if ctx.Err() == nil {
			return reached
		}
	case <-changed:
		return interrupted
	case <-ctx.Done():
	}
	return over
}

// due returns when a certificate is to be replaced: at once if there is none, if it is not for this purpose, or if it was not
// signed by the certificate of the authority that signs now, because the former one may be dropped.
func due(cert *tls.Certificate, p purpose, signer *x509.Certificate) time.Time {
	if cert == nil || cert.Leaf.CheckSignatureFrom(signer) != nil {
		return time.Time{}
	}
	for _, name := range p.names {
		if cert.Leaf.VerifyHostname(name) != nil {
			return time.Time{}
		}
	}
	for _, a := range p.addresses {
		if cert.Leaf.VerifyHostname(a.String()) != nil {
			return time.Time{}
		}
	}
	return pki.Renewable(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}))
}
