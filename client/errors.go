package client

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ErrWatchEnded is yielded by a watch whose server closed it in an orderly way,
// as servers do from time to time. Watch again from the last revision seen.
var ErrWatchEnded = errors.New("the server ended the watch")

// An UnreachableError says that a request got no answer: nothing listens, the connection broke, the
// peer's certificate is not trusted.
type UnreachableError struct {
	Server string // URL of the server
	Err    error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("cannot reach the cluster at %s: %v", e.Server, e.Err)
}

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// A CertificateError says that a request failed because a certificate is
// outside of its time.
type CertificateError struct {
	Server    string // URL of the server
	Client    bool   // it is the client's own certificate, not the server's
	Subject   string // common name
	NotBefore time.Time
	NotAfter  time.Time
	Err       error
}

func (e *CertificateError) Error() string {
	whose := "the certificate of " + e.Server
	if e.Client {
		whose = "the client certificate"
	}
	if e.Subject != "" {
		whose += fmt.Sprintf(" (%s)", e.Subject)
	}
	if e.NotBefore.After(time.Now()) {
		return fmt.Sprintf("%s is not valid before %s", whose, e.NotBefore.Format(time.RFC3339))
	}
	return fmt.Sprintf("%s expired at %s", whose, e.NotAfter.Format(time.RFC3339))
}

// Unwrap returns the cause.
func (e *CertificateError) Unwrap() error { return e.Err }

// unreachable explains why an exchange with the server failed. A context that is
// over is the caller's doing and is returned as its cause.
func (c *REST) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if u := (*url.Error)(nil); errors.As(err, &u) {
		err = u.Err // the method and URL are said elsewhere
	}
	server := c.base.Scheme + "://" + c.base.Host
	if bad := (x509.CertificateInvalidError{}); errors.As(err, &bad) && bad.Reason == x509.Expired && bad.Cert != nil {
		return &CertificateError{
			Server: server, Subject: bad.Cert.Subject.CommonName,
			NotBefore: bad.Cert.NotBefore, NotAfter: bad.Cert.NotAfter, Err: err,
		}
	}
	if strings.Contains(err.Error(), "tls: ") { // crypto/tls has no type for an alert of the peer
		if e := c.ownCertificate(err); e != nil {
			return e
		}
	}
	return &UnreachableError{Server: server, Err: err}
}

// ownCertificate returns a [*CertificateError] if the client's certificate is
// outside of its time, which servers answer with an alert or with 401.
func (c *REST) ownCertificate(cause error) error {
	cert := c.certificate
	if now := time.Now(); cert == nil || !now.After(cert.NotAfter) && !now.Before(cert.NotBefore) {
		return nil
	}
	return &CertificateError{
		Server: c.base.Scheme + "://" + c.base.Host, Client: true, Subject: cert.Subject.CommonName,
		NotBefore: cert.NotBefore, NotAfter: cert.NotAfter, Err: cause,
	}
}

// answered reports whether err is the answer of a server, as opposed to the lack
// of one.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}
