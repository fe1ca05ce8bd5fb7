// Package webhookclient checks where a webhook is: the URL, and the path below a service, in the words of Kubernetes. Webhooks of
// admission and of the conversion of custom resources share these rules.
package webhookclient

import (
	"fmt"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateURL returns the faults of the URL of a webhook.
func ValidateURL(text string, at *field.Path) (errs field.ErrorList) {
	const form = "; desired format: https://host[/path]"
	u, err := url.Parse(text)
	if err != nil {
		return field.ErrorList{field.Required(at, "url must be a valid URL: "+err.Error()+form)}
	}
	if u.Scheme != "https" {
		errs = append(errs, field.Invalid(at, u.Scheme, "'https' is the only allowed URL scheme"+form))
	}
	if u.Host == "" {
		errs = append(errs, field.Invalid(at, u.Host, "host must be specified"+form))
	}
	if u.User != nil {
		errs = append(errs, field.Invalid(at, u.User.String(), "user information is not permitted in the URL"))
	}
	if u.Fragment != "" {
		errs = append(errs, field.Invalid(at, u.Fragment, "fragments are not permitted in the URL"))
	}
	if u.RawQuery != "" {
		errs = append(errs, field.Invalid(at, u.RawQuery, "query parameters are not permitted in the URL"))
	}
	return errs
}

// ValidatePath returns the faults of the path of a webhook below its service.
func ValidatePath(path string, at *field.Path) (errs field.ErrorList) {
	switch path {
	case "", "/":
		return nil
	case "//":
		return field.ErrorList{field.Invalid(at, path, "segment[0] may not be empty")}
	}
	if !strings.HasPrefix(path, "/") {
		errs = append(errs, field.Invalid(at, path, "must start with a '/'"))
	}
	for i, segment := range strings.Split(strings.TrimSuffix(path[1:], "/"), "/") {
		if segment == "" {
			errs = append(errs, field.Invalid(at, path, fmt.Sprintf("segment[%d] may not be empty", i)))
			continue
		}
		for _, fault := range validation.IsDNS1123Subdomain(segment) {
			errs = append(errs, field.Invalid(at, path, fmt.Sprintf("segment[%d]: %v", i, fault)))
		}
	}
	return errs
}
