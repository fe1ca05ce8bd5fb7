package admission

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/sampan-io/sampan/apiserver/auth"
)

// CertificateRequester sets the user who asks for a certificate in the request. The kind drops what
// the client wrote there.
type CertificateRequester struct{}

// Name implements [Plugin].
func (CertificateRequester) Name() string { return "CertificateRequester" }

// Admit implements [Mutator].
func (CertificateRequester) Admit(_ context.Context, a *Attributes) error {
	r, ok := a.Object.(*certificatesv1.CertificateSigningRequest)
	if !ok || a.Operation != Create || a.User == nil {
		return nil
	}
	r.Spec.Username, r.Spec.UID, r.Spec.Groups, r.Spec.Extra = a.User.Name, a.User.UID, a.User.Groups, nil
	for key, values := range a.User.Extra {
		if r.Spec.Extra == nil {
			r.Spec.Extra = map[string]certificatesv1.ExtraValue{}
		}
		r.Spec.Extra[key] = values
	}
	return nil
}

// A SignerAuthorizer reports whether a user may use a signer of certificates: the verb is approve or sign.
type SignerAuthorizer func(ctx context.Context, user *auth.User, verb, signer string) bool

// CertificateApproval lets only users who may approve the requests to a signer decide about them.
type CertificateApproval struct{ may SignerAuthorizer }

// NewCertificateApproval returns the plug-in.
func NewCertificateApproval(may SignerAuthorizer) CertificateApproval {
	return CertificateApproval{may}
}

// Name implements [Plugin].
func (CertificateApproval) Name() string { return "CertificateApproval" }

// Validate implements [Validator].
func (p CertificateApproval) Validate(ctx context.Context, a *Attributes) error {
	old, ok := a.Old.(*certificatesv1.CertificateSigningRequest)
	if !ok || a.Operation != Update || a.Subresource != "approval" {
		return nil
	}
	if !p.may(ctx, a.User, "approve", old.Spec.SignerName) {
		return refuse(a, "user not permitted to approve requests with signerName %q", old.Spec.SignerName)
	}
	return nil
}

// CertificateSigning lets only users who may sign for a signer write certificates and conditions.
type CertificateSigning struct{ may SignerAuthorizer }

// NewCertificateSigning returns the plug-in.
func NewCertificateSigning(may SignerAuthorizer) CertificateSigning { return CertificateSigning{may} }

// Name implements [Plugin].
func (CertificateSigning) Name() string { return "CertificateSigning" }

// Validate implements [Validator].
func (p CertificateSigning) Validate(ctx context.Context, a *Attributes) error {
	r, ok := a.Object.(*certificatesv1.CertificateSigningRequest)
	old, had := a.Old.(*certificatesv1.CertificateSigningRequest)
	if !ok || !had || a.Operation != Update || a.Subresource != "status" {
		return nil
	}
	if bytes.Equal(r.Status.Certificate, old.Status.Certificate) && equality.Semantic.DeepEqual(r.Status.Conditions, old.Status.Conditions) {
		return nil
	}
	if !p.may(ctx, a.User, "sign", old.Spec.SignerName) {
		return refuse(a, "user not permitted to sign requests with signerName %q", old.Spec.SignerName)
	}
	return nil
}

// CertificateSubjectRestriction refuses requests for client certificates of the group system:masters,
// which may do everything.
type CertificateSubjectRestriction struct{}

// Name implements [Plugin].
func (CertificateSubjectRestriction) Name() string { return "CertificateSubjectRestriction" }

// Validate implements [Validator].
func (CertificateSubjectRestriction) Validate(_ context.Context, a *Attributes) error {
	r, ok := a.Object.(*certificatesv1.CertificateSigningRequest)
	if !ok || a.Operation != Create || a.Subresource != "" || r.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return nil
	}
	request, err := parseRequest(r.Spec.Request)
	if err != nil {
		return refuse(a, "failed to parse CSR: %w", err)
	}
	if slices.Contains(request.Subject.Organization, auth.GroupMasters) {
		return refuse(a, "use of %s signer with system:masters group is not allowed", r.Spec.SignerName)
	}
	return nil
}

func parseRequest(data []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}
