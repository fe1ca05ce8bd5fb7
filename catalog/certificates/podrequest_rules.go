package certificates

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/mail"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog/podspec"
)

const (
	longestUID   = 128
	longestStub  = 10 << 10  // bytes
	longestChain = 100 << 10 // bytes

	// The limits of maxExpirationSeconds: an hour, and a day for signers of Kubernetes or 91 days for others.
	leastExpiration   = 60 * 60
	mostOfKubernetes  = 24 * 60 * 60
	mostOfOthers      = 91 * 24 * 60 * 60
	clockSkew         = 5 * time.Minute
	leastLifetime     = time.Hour
	leastUntilRefresh = 10 * time.Minute // and between refresh and end
)

func validatePodRequest(r, old *podRequest) (errs field.ErrorList) {
	at, s := field.NewPath("spec"), &r.Spec
	if old != nil { // nothing changes, and nothing is checked again
		return apivalidation.ValidateImmutableField(r.Spec, old.Spec, at)
	}
	errs = podspec.ValidateSigner(s.SignerName, at.Child("signerName"))
	annotations := at.Child("unverifiedUserAnnotations")
	errs = append(errs, podspec.ValidateUserAnnotations(s.UnverifiedUserAnnotations, annotations)...)
	for _, o := range []struct{ name, value, uid string }{
		{"pod", s.PodName, string(s.PodUID)},
		{"serviceAccount", s.ServiceAccountName, string(s.ServiceAccountUID)},
		{"node", string(s.NodeName), string(s.NodeUID)},
	} {
		for _, fault := range validation.IsDNS1123Subdomain(o.value) {
			errs = append(errs, field.Invalid(at.Child(o.name+"Name"), o.value, fault))
		}
		switch uid := at.Child(o.name + "UID"); {
		case o.uid == "":
			errs = append(errs, field.Invalid(uid, o.uid, "must not be empty"))
		case len(o.uid) > longestUID:
			errs = append(errs, field.TooLong(uid, o.uid, longestUID))
		}
	}
	expiration := at.Child("maxExpirationSeconds")
	if s.MaxExpirationSeconds == nil {
		return append(errs, field.Required(expiration, "must be set"))
	}
	most := int32(mostOfOthers)
	if domain, _, _ := strings.Cut(s.SignerName, "/"); domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") {
		most = mostOfKubernetes
	}
	if n := *s.MaxExpirationSeconds; n < leastExpiration || n > most {
		errs = append(errs, field.Invalid(expiration, n, fmt.Sprintf("must be in the range [%d, %d]", leastExpiration, most)))
	}
	if len(s.StubPKCS10Request) == 0 {
		return append(errs, field.Invalid(at, field.OmitValueType{}, "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set"))
	}
	if err := validateStub(s.StubPKCS10Request, at.Child("stubPKCS10Request")); err != nil {
		errs = append(errs, err)
	}
	return errs
}

// validateStub requires a signed request with a strong key. What else is in it does not matter.
func validateStub(stub []byte, at *field.Path) *field.Error {
	if len(stub) > longestStub {
		return field.TooLong(at, stub, longestStub)
	}
	r, err := x509.ParseCertificateRequest(stub)
	if err != nil {
		return field.Invalid(at, field.OmitValueType{}, "must be a valid PKCS#10 CSR")
	}
	curves := []elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()}
	switch key := r.PublicKey.(type) {
	case ed25519.PublicKey:
	case *ecdsa.PublicKey:
		if !slices.Contains(curves, key.Curve) {
			return field.Invalid(at, "curve "+key.Curve.Params().Name, "elliptic public keys must use curve P256, P384, or P521")
		}
	case *rsa.PublicKey:
		if bits := key.Size() * 8; bits != 3072 && bits != 4096 {
			return field.Invalid(at, fmt.Sprintf("%d-bit modulus", bits), "RSA keys must have modulus size 3072 or 4096")
		}
	default:
		return field.Invalid(at, field.OmitValueType{}, "unknown public key type; supported types are Ed25519, ECDSA, and RSA")
	}
	if r.CheckSignature() != nil {
		return field.Invalid(at, field.OmitValueType{}, "invalid signature")
	}
	return nil
}

// validatePodRequestStatus allows one change: from no outcome to one.
func validatePodRequestStatus(r, old *podRequest, now time.Time) field.ErrorList {
	at := field.NewPath("status")
	if errs := validateOutcome(r.Status.Conditions, at.Child("conditions")); len(errs) > 0 {
		return errs
	}
	has := func(r *podRequest, t string) bool { return meta.IsStatusConditionTrue(r.Status.Conditions, t) }
	same := func(want certificatesv1.PodCertificateRequestStatus, message string) field.ErrorList {
		if equality.Semantic.DeepEqual(r.Status, want) {
			return nil
		}
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, message)}
	}
	switch {
	case slices.ContainsFunc(outcomes, func(t string) bool { return has(old, t) }):
		return same(old.Status, "immutable after PodCertificateRequest is issued, denied, or failed")
	case has(r, certificatesv1.PodCertificateRequestConditionTypeDenied), has(r, certificatesv1.PodCertificateRequestConditionTypeFailed):
		return same(certificatesv1.PodCertificateRequestStatus{Conditions: r.Status.Conditions},
			"non-condition status fields must be empty when denying or failing the PodCertificateRequest")
	case has(r, certificatesv1.PodCertificateRequestConditionTypeIssued):
		return validateIssued(r, now, at)
	}
	return same(old.Status, `status is immutable unless transitioning to "Issued", "Denied", or "Failed"`)
}

func validateOutcome(all []metav1.Condition, at *field.Path) (errs field.ErrorList) {
	known := 0
	for i, c := range all {
		// Upstream makes an index the name of a field.
		at := at.Child(fmt.Sprintf("[%d]", i))
		if !slices.Contains(outcomes, c.Type) {
			errs = append(errs, field.NotSupported(at.Child("type"), c.Type, outcomes))
			continue
		}
		if known++; known > 1 {
			errs = append(errs, field.Invalid(at.Child("type"), c.Type, `There may be at most one condition with type "Issued", "Denied", or "Failed"`))
		}
		if c.Status != metav1.ConditionTrue {
			errs = append(errs, field.NotSupported(at.Child("status"), c.Status, []metav1.ConditionStatus{metav1.ConditionTrue}))
		}
	}
	return append(errs, metav1validation.ValidateConditions(all, at)...)
}

// validateIssued compares the certificate with the request, and the times in the status with the certificate.
func validateIssued(r *podRequest, now time.Time, status *field.Path) (errs field.ErrorList) {
	s, at := &r.Status, status.Child("certificateChain")
	if len(s.CertificateChain) > longestChain {
		return field.ErrorList{field.TooLong(at, s.CertificateChain, longestChain)}
	}
	wrong := func(message string) field.ErrorList {
		return append(errs, field.Invalid(at, s.CertificateChain, message))
	}
	block, rest := pem.Decode([]byte(s.CertificateChain))
	if block == nil {
		return wrong("issued certificate chain must contain at least one certificate")
	}
	if block.Type != certificateBlock {
		return wrong("issued certificate chain must consist entirely of CERTIFICATE PEM blocks")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return wrong("leaf certificate does not parse as valid X.509")
	}
	errs = validateNames(leaf, at)
	stub, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
	if err != nil {
		return append(errs, field.Invalid(field.NewPath("spec", "stubPKCS10Request"), field.OmitValueType{}, "must be a valid PKCS#10 CSR"))
	}
	if key, ok := stub.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); ok && !key.Equal(leaf.PublicKey) {
		return wrong("leaf certificate was not issued to the requested public key")
	}
	if errs = append(errs, validateTimes(s, status)...); len(errs) > 0 {
		return errs
	}
	if err := validateLifetime(r, leaf, now, status); err != nil {
		return field.ErrorList{err}
	}
	for {
		if block, rest = pem.Decode(rest); block == nil {
			return nil
		}
		if block.Type != certificateBlock {
			return wrong("issued certificate chain must consist entirely of CERTFICATE PEM blocks") // upstream's spelling
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return wrong("intermediate certificate does not parse as valid X.509")
		}
	}
}

func validateNames(leaf *x509.Certificate, at *field.Path) (errs field.ErrorList) {
	for _, name := range leaf.DNSNames {
		if name == "" {
			errs = append(errs, field.Invalid(at, name, "leaf certificate should not contain empty DNSName"))
		}
		if strings.Contains(name, "..") {
			errs = append(errs, field.Invalid(at, name, "leaf certificate's DNSName should not contain '..'"))
		}
		if strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") {
			errs = append(errs, field.Invalid(at, name, "leaf certificate's DNSName should not start or end with '.'"))
		}
	}
	for _, address := range leaf.EmailAddresses {
		if _, err := mail.ParseAddress(address); err != nil {
			errs = append(errs, field.Invalid(at, address, "leaf certificate should not contain invalid EmailAddress"))
		}
	}
	return errs
}

func validateTimes(s *certificatesv1.PodCertificateRequestStatus, status *field.Path) (errs field.ErrorList) {
	const consistent = "must be present and consistent with the issued certificate"
	if s.NotBefore == nil {
		errs = append(errs, field.Required(status.Child("notBefore"), consistent))
	}
	if s.NotAfter == nil {
		errs = append(errs, field.Required(status.Child("notAfter"), consistent))
	}
	if s.BeginRefreshAt == nil {
		errs = append(errs, field.Required(status.Child("beginRefreshAt"), "must be present and in the range [notbefore+10min, notafter-10min]"))
	}
	return errs
}

// validateLifetime checks the times, all of which are set, and returns the first fault.
func validateLifetime(r *podRequest, leaf *x509.Certificate, now time.Time, status *field.Path) *field.Error {
	start, end, refresh := r.Status.NotBefore.Time, r.Status.NotAfter.Time, r.Status.BeginRefreshAt.Time
	chain, lifetime := status.Child("certificateChain"), leaf.NotAfter.Sub(leaf.NotBefore)
	most := defaultExpiration
	if s := r.Spec.MaxExpirationSeconds; s != nil {
		most = int(*s)
	}
	switch {
	case !start.Equal(leaf.NotBefore):
		return field.Invalid(status.Child("notBefore"), start, "must be set to the NotBefore time encoded in the leaf certificate")
	case start.Sub(now).Abs() > clockSkew:
		return field.Invalid(status.Child("notBefore"), start, "must be set to within 5 minutes of kube-apiserver's current time")
	case !end.Equal(leaf.NotAfter):
		return field.Invalid(status.Child("notAfter"), end, "must be set to the NotAfter time encoded in the leaf certificate")
	case lifetime < leastLifetime:
		return field.Invalid(chain, lifetime, "leaf certificate lifetime must be >= 1 hour")
	case lifetime > time.Duration(most)*time.Second:
		return field.Invalid(chain, lifetime, fmt.Sprintf("leaf certificate lifetime must be <= spec.maxExpirationSeconds (%d)", most))
	case refresh.Before(start.Add(leastUntilRefresh)):
		return field.Invalid(status.Child("beginRefreshAt"), refresh, "must be at least 10 minutes after status.notBefore")
	case refresh.After(end.Add(-leastUntilRefresh)):
		return field.Invalid(status.Child("beginRefreshAt"), refresh, "must be at least 10 minutes before status.notAfter")
	}
	return nil
}
