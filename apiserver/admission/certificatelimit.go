package admission

import (
	"context"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/sampan-io/sampan/apiserver/auth"
)

// Limits of the CertificateSigningRequests of one node or one bootstrap token. Together they keep 16 MiB of them at most.
const (
	// maxRequests is how many may exist. Requests are deleted an hour after they were decided, so a thousand machines can
	// join with one token in an hour. A kubelet whose requests are not approved makes about a hundred in a day, and then the
	// first one is deleted.
	maxRequests = 1000

	// maxRequestSize is how many bytes one may have. That for an RSA key of 8192 bits has 4 KiB.
	maxRequestSize = 16 << 10
)

// CertificateRequestLimit limits the CertificateSigningRequests of nodes and bootstrap tokens: each machine that joins has such
// credentials, and has to be able to create requests. Other users may create what roles and quotas let them create.
type CertificateRequestLimit struct{ reader Reader }

// NewCertificateRequestLimit returns the plug-in.
func NewCertificateRequestLimit(r Reader) *CertificateRequestLimit {
	return &CertificateRequestLimit{r}
}

// Name implements [Plugin].
func (*CertificateRequestLimit) Name() string { return "CertificateRequestLimit" }

// Validate implements [Validator]. Requests that are created at the same time may exceed the limit by their number.
func (p *CertificateRequestLimit) Validate(ctx context.Context, a *Attributes) error {
	r, ok := a.Object.(*certificatesv1.CertificateSigningRequest)
	if !ok || a.Operation != Create || a.Subresource != "" || a.User == nil {
		return nil
	}
	if _, node := a.User.Node(); !node && !slices.Contains(a.User.Groups, auth.GroupBootstrappers) {
		return nil
	}
	if size := r.Size(); size > maxRequestSize {
		return refuse(a, "the request has %d bytes; one of a node or a bootstrap token may have at most %d", size, maxRequestSize)
	}
	all, err := p.reader.List(ctx, certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests"), "", nil)
	if err != nil {
		return err
	}
	n := 0
	for _, o := range all {
		if other, ok := o.(*certificatesv1.CertificateSigningRequest); ok && other.Spec.Username == a.User.Name {
			n++
		}
	}
	if n >= maxRequests {
		return refuse(a, "user %q has %d requests for certificates, and may have at most %d; they are deleted an hour after they were approved or denied, and otherwise after a day", a.User.Name, n, maxRequests)
	}
	return nil
}
