package apiextensions

import (
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/transport"

	"github.com/sampan-io/sampan/catalog/webhookclient"
)

// conversion checks how objects are converted between versions.
func (r rules) conversion(c *apiextensions.CustomResourceConversion, at *field.Path) (errs field.ErrorList) {
	if c == nil {
		return nil
	}
	errs = oneOf(at.Child("strategy"), c.Strategy, apiextensions.NoneConverter, apiextensions.WebhookConverter)
	client, versions := at.Child("webhookClientConfig"), at.Child("conversionReviewVersions")
	if c.Strategy != apiextensions.WebhookConverter {
		const unused = "should not be set when strategy is not set to Webhook"
		if c.WebhookClientConfig != nil {
			errs = append(errs, field.Forbidden(client, unused))
		}
		if len(c.ConversionReviewVersions) > 0 {
			errs = append(errs, field.Forbidden(versions, unused))
		}
		return errs
	}
	switch config := c.WebhookClientConfig; {
	case config == nil:
		errs = append(errs, field.Required(client, "required when strategy is set to Webhook"))
	default:
		errs = append(errs, checkClient(config, client)...)
		if r.bundle && len(config.CABundle) > 0 {
			if err := bundleError(config.CABundle); err != nil {
				errs = append(errs, field.Invalid(client.Child("caBundle"), config.CABundle, err.Error()))
			}
		}
	}
	return append(errs, r.reviews(c.ConversionReviewVersions, versions)...)
}

func checkClient(config *apiextensions.WebhookClientConfig, at *field.Path) field.ErrorList {
	switch {
	case (config.URL == nil) == (config.Service == nil):
		return field.ErrorList{field.Required(at, "exactly one of url or service is required")}
	case config.URL != nil:
		return webhookclient.ValidateURL(*config.URL, at.Child("url"))
	}
	return checkService(config.Service, at.Child("service"))
}

// checkService checks the service of a webhook. Kubernetes takes its name for its namespace in errors, and so do we.
func checkService(s *apiextensions.ServiceReference, at *field.Path) (errs field.ErrorList) {
	if s.Namespace == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	if s.Name == "" {
		errs = append(errs, field.Required(at.Child("namespace"), ""))
	}
	if faults := validation.IsValidPortNum(int(s.Port)); len(faults) > 0 {
		errs = append(errs, field.Invalid(at.Child("port"), s.Port, "port is not valid: "+strings.Join(faults, ", ")))
	}
	if s.Path != nil {
		errs = append(errs, webhookclient.ValidatePath(*s.Path, at.Child("path"))...)
	}
	return errs
}

func bundleError(bundle []byte) error {
	_, err := transport.TLSConfigFor(&transport.Config{TLS: transport.TLSConfig{CAData: bundle}})
	return err
}

func hasInvalidBundle(c *apiextensions.CustomResourceConversion) bool {
	return c != nil && c.WebhookClientConfig != nil && len(c.WebhookClientConfig.CABundle) > 0 && bundleError(c.WebhookClientConfig.CABundle) != nil
}

// reviewed reports whether ConversionReviews of a version are sent.
func reviewed(version string) bool { return version == "v1" || version == "v1beta1" }

// reviews checks the versions of ConversionReview that a webhook accepts.
func (r rules) reviews(versions []string, at *field.Path) (errs field.ErrorList) {
	if len(versions) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	seen := sets.New[string]()
	for i, v := range versions {
		if seen.Has(v) {
			errs = append(errs, field.Invalid(at.Index(i), v, "duplicate version"))
			continue
		}
		seen.Insert(v)
		for _, fault := range validation.IsDNS1035Label(v) {
			errs = append(errs, field.Invalid(at.Index(i), v, fault))
		}
	}
	if r.reviewVersions && !slices.ContainsFunc(versions, reviewed) {
		errs = append(errs, field.Invalid(at, versions, "must include at least one of v1, v1beta1"))
	}
	return errs
}
