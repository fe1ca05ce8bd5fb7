package certificates

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog/podspec"
)

const (
	// legacySigner stood for a signer without a name, in older versions of the API.
	legacySigner = "kubernetes.io/legacy-unknown"

	leastSeconds = 600

	requestBlock     = "CERTIFICATE REQUEST"
	certificateBlock = "CERTIFICATE"
)

// decisions are the conditions that only an approval sets.
var decisions = []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied}

// usages are the allowed uses of a certificate, sorted.
var usages = []certificatesv1.KeyUsage{
	certificatesv1.UsageAny,
	certificatesv1.UsageCertSign,
	certificatesv1.UsageClientAuth,
	certificatesv1.UsageCodeSigning,
	certificatesv1.UsageContentCommitment,
	certificatesv1.UsageCRLSign,
	certificatesv1.UsageDataEncipherment,
	certificatesv1.UsageDecipherOnly,
	certificatesv1.UsageDigitalSignature,
	certificatesv1.UsageEmailProtection,
	certificatesv1.UsageEncipherOnly,
	certificatesv1.UsageIPsecEndSystem,
	certificatesv1.UsageIPsecTunnel,
	certificatesv1.UsageIPsecUser,
	certificatesv1.UsageKeyAgreement,
	certificatesv1.UsageKeyEncipherment,
	certificatesv1.UsageMicrosoftSGC,
	certificatesv1.UsageNetscapeSGC,
	certificatesv1.UsageOCSPSigning,
	certificatesv1.UsageSMIME,
	certificatesv1.UsageServerAuth,
	certificatesv1.UsageSigning,
	certificatesv1.UsageTimestamping,
}

func validate(r, old *request) field.ErrorList {
	errs := validateRequest(r, old)
	if old == nil {
		return errs
	}
	errs = append(errs, validateKept(r, old)...)
	errs = append(errs, validateDecision(r, old)...)
	return append(errs, validateNoCertificate(r, old)...)
}

func validateApproval(r, old *request) field.ErrorList {
	errs := append(validateRequest(r, old), validateKept(r, old)...)
	return append(errs, validateNoCertificate(r, old)...)
}

func validateStatus(r, old *request) field.ErrorList {
	errs := append(validateRequest(r, old), validateKept(r, old)...)
	errs = append(errs, validateDecision(r, old)...)
	if len(old.Status.Certificate) > 0 && !bytes.Equal(r.Status.Certificate, old.Status.Certificate) {
		errs = append(errs, field.Forbidden(field.NewPath("status", "certificate"), "updates may not modify existing certificate content"))
	}
	return errs
}

// validateRequest checks a request. Stored values stay allowed: old may be nil.
func validateRequest(r, old *request) (errs field.ErrorList) {
	at := field.NewPath("spec")
	if err := checkRequest(r.Spec.Request); err != nil {
		errs = append(errs, field.Invalid(at.Child("request"), r.Spec.Request, err.Error()))
	}
	if len(r.Spec.Usages) == 0 {
		errs = append(errs, field.Required(at.Child("usages"), ""))
	}
	loose := old != nil // the spec doesn't change
	seen := sets.New[certificatesv1.KeyUsage]()
	for i, u := range r.Spec.Usages {
		at := at.Child("usages").Index(i)
		if !loose && !slices.Contains(usages, u) {
			errs = append(errs, field.NotSupported(at, u, usages))
		}
		if !loose && seen.Has(u) {
			errs = append(errs, field.Duplicate(at, u))
		}
		seen.Insert(u)
	}
	signer := at.Child("signerName")
	if r.Spec.SignerName == legacySigner && !loose {
		errs = append(errs, field.Invalid(signer, r.Spec.SignerName, "the legacy signerName is not allowed via this API version"))
	} else {
		errs = append(errs, podspec.ValidateSigner(r.Spec.SignerName, signer)...)
	}
	if s := r.Spec.ExpirationSeconds; s != nil && *s < leastSeconds {
		errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *s, "may not specify a duration less than 600 seconds (10 minutes)"))
	}
	if old == nil {
		return errs
	}
	errs = append(errs, validateConditions(r, old)...)
	changed := !bytes.Equal(r.Status.Certificate, old.Status.Certificate)
	if err := checkCertificate(r.Status.Certificate); err != nil && changed && checkCertificate(old.Status.Certificate) == nil {
		errs = append(errs, field.Invalid(field.NewPath("status", "certificate"), "<certificate data>", err.Error()))
	}
	return errs
}

func validateConditions(r, old *request) (errs field.ErrorList) {
	at := field.NewPath("status", "conditions")
	types := func(r *request) (all []certificatesv1.RequestConditionType) {
		for _, c := range r.Status.Conditions {
			all = append(all, c.Type)
		}
		return all
	}
	// Stored values stay allowed.
	was, is := types(old), types(r)
	twice := len(slices.Compact(slices.Sorted(slices.Values(was)))) < len(was)
	seen := sets.New[certificatesv1.RequestConditionType]()
	for i, c := range r.Status.Conditions {
		at := at.Index(i)
		if c.Type == "" && !slices.Contains(was, "") {
			errs = append(errs, field.Required(at.Child("type"), ""))
		}
		allowed := []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown}
		switch c.Type {
		case certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			allowed = []corev1.ConditionStatus{corev1.ConditionTrue}
		}
		switch {
		case c.Status == "":
			errs = append(errs, field.Required(at.Child("status"), ""))
		case !slices.Contains(allowed, c.Status):
			errs = append(errs, field.NotSupported(at.Child("status"), c.Status, allowed))
		}
		if !twice && seen.Has(c.Type) {
			errs = append(errs, field.Duplicate(at.Child("type"), c.Type))
		}
		seen.Insert(c.Type)
	}
	both := func(types []certificatesv1.RequestConditionType) bool {
		return slices.Contains(types, decisions[0]) && slices.Contains(types, decisions[1])
	}
	if both(is) && !both(was) {
		members := [2]string{}
		for i, t := range decisions {
			members[i] = fmt.Sprintf("conditions[{\"type\": \"%s\"}]", t)
		}
		errs = append(errs, field.Invalid(at, fmt.Sprintf("{%s, %s}", members[0], members[1]), fmt.Sprintf("must specify at most one of: `%s`, `%s`", members[0], members[1])))
	}
	return errs
}

// validateKept refuses the removal of conditions that are final.
func validateKept(r, old *request) (errs field.ErrorList) {
	for _, t := range append(slices.Clone(decisions), certificatesv1.CertificateFailed) {
		if len(positions(r, t)) < len(positions(old, t)) {
			errs = append(errs, field.Forbidden(field.NewPath("status", "conditions"), fmt.Sprintf("updates may not remove a condition of type %q", t)))
		}
	}
	return errs
}

// validateDecision refuses a decision. Earlier decisions are restored by then: see prepareStatus.
func validateDecision(r, old *request) (errs field.ErrorList) {
	for _, t := range decisions {
		if len(positions(r, t)) > len(positions(old, t)) {
			errs = append(errs, field.Forbidden(field.NewPath("status", "conditions"), fmt.Sprintf("updates may not add a condition of type %q", t)))
		}
	}
	return errs
}

// validateNoCertificate refuses changes of the certificate.
func validateNoCertificate(r, old *request) field.ErrorList {
	if bytes.Equal(r.Status.Certificate, old.Status.Certificate) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("status", "certificate"), "updates may not set certificate content")}
}

// checkRequest checks that data is a signed request in PEM.
func checkRequest(data []byte) error {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != requestBlock {
		return errors.New("PEM block type must be " + requestBlock)
	}
	r, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return err
	}
	return r.CheckSignature()
}

// checkCertificate checks that data is nothing, or certificates in PEM.
func checkCertificate(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	found := false
	for {
		block, rest := pem.Decode(data)
		switch {
		case block == nil && !found:
			return errors.New("must contain at least one CERTIFICATE PEM block")
		case block == nil:
			return nil
		case block.Type != certificateBlock:
			return fmt.Errorf("only CERTIFICATE PEM blocks are allowed, found %q", block.Type)
		case len(block.Headers) > 0:
			return errors.New("no PEM block headers are permitted")
		}
		certificates, err := x509.ParseCertificates(block.Bytes)
		if err != nil {
			return err
		}
		if len(certificates) == 0 {
			return errors.New("found CERTIFICATE PEM block containing 0 certificates")
		}
		found, data = true, rest
	}
}
