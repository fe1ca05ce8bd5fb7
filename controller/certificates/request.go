package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
)

type signingRequest = certificatesv1.CertificateSigningRequest

const (
	nodePrefix = "system:node:"
	nodesGroup = "system:nodes"
)

// parse returns the request for a certificate that a CertificateSigningRequest carries.
func parse(r *signingRequest) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(r.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, fmt.Errorf("unable to parse csr %q: %w", r.Name, errors.New("PEM block type must be CERTIFICATE REQUEST"))
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("unable to parse csr %q: %w", r.Name, err)
	}
	return request, nil
}

// has reports whether a request has a condition of a type. The API server accepts such conditions only with the status
// True.
func has(r *signingRequest, t certificatesv1.RequestConditionType) bool {
	return slices.ContainsFunc(r.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool { return c.Type == t })
}

func issued(r *signingRequest) bool { return len(r.Status.Certificate) > 0 }

// undecided reports whether a request is neither approved nor denied.
func undecided(r *signingRequest) bool {
	return !issued(r) && !has(r, certificatesv1.CertificateApproved) && !has(r, certificatesv1.CertificateDenied)
}

// signable reports whether a request is approved and waits for its certificate.
func signable(r *signingRequest) bool {
	failed := slices.ContainsFunc(r.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == certificatesv1.CertificateFailed && (c.Status == "" || c.Status == corev1.ConditionTrue)
	})
	return !issued(r) && has(r, certificatesv1.CertificateApproved) && !has(r, certificatesv1.CertificateDenied) && !failed
}

// A rule returns why a signer does not issue a certificate for a request, or nil.
type rule func(request *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error

// signers returns the rules of Kubernetes' own signers, by the name of the signer.
func signers() map[string]rule {
	return map[string]rule{
		certificatesv1.KubeAPIServerClientSignerName:        forClient,
		certificatesv1.KubeAPIServerClientKubeletSignerName: forKubeletClient,
		certificatesv1.KubeletServingSignerName:             forKubeletServing,
		"kubernetes.io/legacy-unknown":                      func(*x509.CertificateRequest, []certificatesv1.KeyUsage) error { return nil },
	}
}

func forClient(_ *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	for _, u := range usages {
		switch u {
		case certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth:
		default:
			return fmt.Errorf("invalid usage for client certificate: %s", u)
		}
	}
	if !slices.Contains(usages, certificatesv1.UsageClientAuth) {
		return fmt.Errorf("missing required usage for client certificate: %s", certificatesv1.UsageClientAuth)
	}
	return nil
}

func forKubeletClient(r *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	switch {
	case !slices.Equal(r.Subject.Organization, []string{nodesGroup}):
		return errors.New("subject organization is not system:nodes")
	case len(r.DNSNames) > 0:
		return errors.New("DNS subjectAltNames are not allowed")
	case len(r.EmailAddresses) > 0:
		return errors.New("Email subjectAltNames are not allowed") //nolint:staticcheck // upstream's words
	case len(r.IPAddresses) > 0:
		return errors.New("IP subjectAltNames are not allowed")
	case len(r.URIs) > 0:
		return errors.New("URI subjectAltNames are not allowed")
	case !strings.HasPrefix(r.Subject.CommonName, nodePrefix):
		return errors.New("subject common name does not begin with system:node:")
	}
	return forNode(usages, certificatesv1.UsageClientAuth)
}

func forKubeletServing(r *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	switch {
	case !slices.Equal(r.Subject.Organization, []string{nodesGroup}):
		return errors.New("subject organization is not system:nodes")
	case len(r.DNSNames)+len(r.IPAddresses) == 0:
		return errors.New("DNS or IP subjectAltName is required")
	case len(r.EmailAddresses) > 0:
		return errors.New("Email subjectAltNames are not allowed") //nolint:staticcheck // upstream's words
	case len(r.URIs) > 0:
		return errors.New("URI subjectAltNames are not allowed")
	}
	if err := forNode(usages, certificatesv1.UsageServerAuth); err != nil {
		return err
	}
	if !strings.HasPrefix(r.Subject.CommonName, nodePrefix) {
		return errors.New("subject common name does not begin with system:node:")
	}
	return nil
}

// forNode accepts the given usage together with digital signatures, and with the encipherment of keys or without it:
// only RSA keys are used for that.
func forNode(usages []certificatesv1.KeyUsage, usage certificatesv1.KeyUsage) error {
	want := []certificatesv1.KeyUsage{usage, certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment}
	slices.Sort(want)
	unused := func(u certificatesv1.KeyUsage) bool { return u == certificatesv1.UsageKeyEncipherment }
	got := slices.Compact(slices.Sorted(slices.Values(usages)))
	if !slices.Equal(got, want) && !slices.Equal(got, slices.DeleteFunc(slices.Clone(want), unused)) {
		return fmt.Errorf("usages did not match %v", want)
	}
	return nil
}
