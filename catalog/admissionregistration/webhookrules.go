package admissionregistration

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog/webhookclient"
)

type (
	webhook     = admissionregistrationv1.MutatingWebhook
	webhookList = []admissionregistrationv1.MutatingWebhook
)

// longestTimeout is that of a call, in seconds.
const longestTimeout = 30

// leniency says which rules a stored configuration already breaks: an update may go on breaking them.
type leniency struct {
	conditions  bool // match conditions have not changed
	sideEffects bool
	versions    bool
	names       bool
	labels      bool     // of selectors
	expressions []string // of match conditions
}

func lenient(before, after webhookList) (l leniency) {
	l.conditions = len(before) == len(after)
	names := map[string]bool{}
	for i := range before {
		w := &before[i]
		if l.conditions && !reflect.DeepEqual(w.MatchConditions, after[i].MatchConditions) {
			l.conditions = false
		}
		l.sideEffects = l.sideEffects || w.SideEffects == nil || !slices.Contains(harmless, *w.SideEffects)
		l.versions = l.versions || !slices.ContainsFunc(w.AdmissionReviewVersions, spoken)
		l.names = l.names || names[w.Name]
		names[w.Name] = true
		for _, s := range []*metav1.LabelSelector{w.NamespaceSelector, w.ObjectSelector} {
			l.labels = l.labels || s != nil && len(metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, nil)) > 0
		}
		for _, c := range w.MatchConditions {
			l.expressions = append(l.expressions, c.Expression)
		}
	}
	return l
}

// Side effects and versions of AdmissionReview in the order in which messages list them.
var (
	harmless     = []admissionregistrationv1.SideEffectClass{admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun}
	sideEffects  = append(slices.Clone(harmless), admissionregistrationv1.SideEffectClassSome, admissionregistrationv1.SideEffectClassUnknown)
	spokenReview = []string{"v1", "v1beta1"}
)

func spoken(version string) bool { return slices.Contains(spokenReview, version) }

// validateWebhooks returns the faults of the webhooks of a configuration.
func validateWebhooks(all, before webhookList, update bool) (errs field.ErrorList) {
	var l leniency
	if update {
		l = lenient(before, all)
	}
	names := map[string]bool{}
	for i := range all {
		at := field.NewPath("webhooks").Index(i)
		errs = append(errs, validateWebhook(&all[i], &l, at)...)
		if name := all[i].Name; name != "" && !l.names {
			if names[name] {
				errs = append(errs, field.Duplicate(at.Child("name"), name))
			}
			names[name] = true
		}
	}
	return errs
}

func validateWebhook(w *webhook, l *leniency, at *field.Path) field.ErrorList {
	errs := validation.IsFullyQualifiedName(at.Child("name"), w.Name)
	for i := range w.Rules {
		errs = append(errs, validateOperations(&w.Rules[i], at.Child("rules").Index(i))...)
	}
	if p := w.FailurePolicy; p != nil {
		errs = append(errs, oneOf(at.Child("failurePolicy"), *p, admissionregistrationv1.Fail, admissionregistrationv1.Ignore)...)
	}
	if p := w.MatchPolicy; p != nil {
		errs = append(errs, oneOf(at.Child("matchPolicy"), *p, admissionregistrationv1.Equivalent, admissionregistrationv1.Exact)...)
	}
	if p := w.ReinvocationPolicy; p != nil {
		errs = append(errs, oneOf(at.Child("reinvocationPolicy"), *p, admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)...)
	}
	allowed := harmless
	if l.sideEffects {
		allowed = sideEffects
	}
	if w.SideEffects == nil {
		errs = append(errs, field.Required(at.Child("sideEffects"), "must specify one of "+strings.Join(texts(allowed), ", ")))
	} else {
		errs = append(errs, oneOf(at.Child("sideEffects"), *w.SideEffects, allowed...)...)
	}
	if t := w.TimeoutSeconds; t != nil && (*t < 1 || *t > longestTimeout) {
		errs = append(errs, field.Invalid(at.Child("timeoutSeconds"), *t, "the timeout value must be between 1 and 30 seconds"))
	}
	opts := metavalidation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: l.labels}
	if s := w.NamespaceSelector; s != nil {
		errs = append(errs, metavalidation.ValidateLabelSelector(s, opts, at.Child("namespaceSelector"))...)
	}
	if s := w.ObjectSelector; s != nil {
		errs = append(errs, metavalidation.ValidateLabelSelector(s, opts, at.Child("objectSelector"))...)
	}
	errs = append(errs, validateClient(&w.ClientConfig, at.Child("clientConfig"))...)
	if !l.conditions {
		errs = append(errs, validateConditions(w.MatchConditions, false, l.expressions, at.Child("matchConditions"))...)
	}
	return append(errs, validateReviews(w.AdmissionReviewVersions, l, at.Child("admissionReviewVersions"))...)
}

func texts[S ~string](all []S) []string {
	out := make([]string, len(all))
	for i, s := range all {
		out[i] = string(s)
	}
	return out
}

// validateReviews checks the versions of AdmissionReview that a webhook reads.
func validateReviews(versions []string, l *leniency, at *field.Path) (errs field.ErrorList) {
	known := strings.Join(spokenReview, ", ")
	if len(versions) == 0 {
		return field.ErrorList{field.Required(at, "must specify one of "+known)}
	}
	named := make(map[string]bool, len(versions))
	for i, v := range versions {
		if named[v] {
			errs = append(errs, field.Invalid(at.Index(i), v, "duplicate version"))
			continue
		}
		named[v] = true
		for _, fault := range validation.IsDNS1035Label(v) {
			errs = append(errs, field.Invalid(at.Index(i), v, fault))
		}
	}
	if !l.versions && !slices.ContainsFunc(versions, spoken) {
		errs = append(errs, field.Invalid(at, versions, "must include at least one of "+known))
	}
	return errs
}

// validateClient checks where a webhook is.
func validateClient(c *admissionregistrationv1.WebhookClientConfig, at *field.Path) field.ErrorList {
	switch {
	case (c.URL == nil) == (c.Service == nil):
		return field.ErrorList{field.Required(at, "exactly one of url or service is required")}
	case c.URL != nil:
		return webhookclient.ValidateURL(*c.URL, at.Child("url"))
	}
	return validateService(c.Service, at.Child("service"))
}

func validateService(s *admissionregistrationv1.ServiceReference, at *field.Path) (errs field.ErrorList) {
	if s.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	if s.Namespace == "" {
		errs = append(errs, field.Required(at.Child("namespace"), ""))
	}
	port := defaultPort
	if s.Port != nil {
		port = *s.Port
	}
	if faults := validation.IsValidPortNum(int(port)); faults != nil {
		errs = append(errs, field.Invalid(at.Child("port"), port, "port is not valid: "+strings.Join(faults, ", ")))
	}
	if s.Path != nil {
		errs = append(errs, webhookclient.ValidatePath(*s.Path, at.Child("path"))...)
	}
	return errs
}

// unasked reports whether webhooks are never asked about a resource: without it no user could authenticate, or ask for rights.
func unasked(r schema.GroupResource) bool {
	switch r {
	case schema.GroupResource{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"}, schema.GroupResource{Group: "authentication.k8s.io", Resource: "tokenreviews"},
		schema.GroupResource{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"}, schema.GroupResource{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"},
		schema.GroupResource{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"}, schema.GroupResource{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}:
		return true
	}
	return false
}

// warnWebhooks warns of a reserved name, and of rules that name what webhooks are not asked about.
func warnWebhooks(name string, all webhookList) []string {
	warnings := warnStaticSuffix(name)
	for i := range all {
		for j := range all[i].Rules {
			r := &all[i].Rules[j]
			if slices.Contains(r.APIGroups, "*") || slices.Contains(r.Resources, "*") {
				continue
			}
			seen := map[schema.GroupResource]bool{}
			for _, group := range r.APIGroups {
				for _, resource := range r.Resources {
					gr := schema.GroupResource{Group: group, Resource: resource}
					if unasked(gr) && !seen[gr] {
						seen[gr] = true
						warnings = append(warnings, fmt.Sprintf("%s: %s is excluded from admission webhooks; this rule will have no effect",
							field.NewPath("webhooks").Index(i).Child("rules").Index(j), gr))
					}
				}
			}
		}
	}
	return warnings
}
