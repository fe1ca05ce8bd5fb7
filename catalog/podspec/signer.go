package podspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// longestSignerPath is how long the part of a signer's name behind the domain may be: a namespace, a dot
// and a name.
const longestSignerPath = validation.DNS1123LabelMaxLength + 1 + validation.DNS1123SubdomainMaxLength

// ValidateSigner checks the name of a signer of certificates, which is like "example.com/signer".
func ValidateSigner(name string, at *field.Path) (errs field.ErrorList) {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	domain, path, ok := strings.Cut(name, "/")
	if !ok || strings.Contains(path, "/") {
		return field.ErrorList{field.Invalid(at, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")}
	}
	if len(domain) > validation.DNS1123SubdomainMaxLength {
		errs = append(errs, field.TooLong(at, "", validation.DNS1123SubdomainMaxLength))
	}
	errs = append(errs, signerLabels(domain, validation.IsDNS1123Label, at)...)
	if !strings.Contains(domain, ".") {
		errs = append(errs, field.Invalid(at, domain, "should be a domain with at least two segments separated by dots"))
	}
	errs = append(errs, signerLabels(path, validation.IsDNS1123Subdomain, at)...)
	if most := validation.DNS1123SubdomainMaxLength + 1 + longestSignerPath; len(name) > most {
		errs = append(errs, field.TooLong(at, "", most))
	}
	return errs
}

// signerLabels checks the labels of a name up to the first bad one.
func signerLabels(name string, rule func(string) []string, at *field.Path) (errs field.ErrorList) {
	for label := range strings.SplitSeq(name, ".") {
		for _, fault := range rule(label) {
			errs = append(errs, field.Invalid(at, name, fmt.Sprintf("validating label %q: %s", label, fault)))
		}
		if len(errs) > 0 {
			break
		}
	}
	return errs
}

// BundleName returns the faults of the name of a ClusterTrustBundle of a signer, which may be empty. The name begins
// with that of the signer, with a colon for the slash and one behind it.
func BundleName(signer, name string, prefix bool) []string {
	if signer == "" {
		if strings.Contains(name, ":") {
			return []string{`ClusterTrustBundle without signer name must not have ":" in its name`}
		}
		return apivalidation.NameIsDNSSubdomain(name, prefix)
	}
	start := strings.ReplaceAll(signer, "/", ":") + ":"
	rest, ok := strings.CutPrefix(name, start)
	if !ok {
		return []string{fmt.Sprintf("ClusterTrustBundle for signerName %s must be named with prefix %s", signer, start)}
	}
	return apivalidation.NameIsDNSSubdomain(rest, prefix)
}

// ValidateUserAnnotations checks the annotations of a pod for the signer of its certificate.
func ValidateUserAnnotations(annotations map[string]string, at *field.Path) (errs field.ErrorList) {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		errs = append(errs, validation.IsDomainPrefixedKey(at, strings.ToLower(key))...)
	}
	if apivalidation.ValidateAnnotationsSize(annotations) != nil {
		errs = append(errs, field.TooLong(at, "", apivalidation.TotalAnnotationSizeLimitB))
	}
	return errs
}
