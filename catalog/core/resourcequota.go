package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/podspec"
)

func resourceQuotas() *catalog.Kind {
	return &catalog.Kind{
		GroupVersionKind: gvk("ResourceQuota"),
		Resource:         "resourcequotas",
		Lifecycle:        catalog.Lifecycle{AnswersDeleted: true},
		Singular:         "resourcequota",
		ShortNames:       []string{"quota"},
		Namespaced:       true,
		New:              func() catalog.Object { return &corev1.ResourceQuota{} },
		NewList:          func() runtime.Object { return &corev1.ResourceQuotaList{} },
		Default: catalog.Default(func(q *corev1.ResourceQuota) {
			podspec.RoundUp(q.Spec.Hard)
			podspec.RoundUp(q.Status.Hard)
			podspec.RoundUp(q.Status.Used)
		}),
		Prepare: catalog.Prepare(func(q, old *corev1.ResourceQuota) {
			q.Status = corev1.ResourceQuotaStatus{}
			if old != nil {
				q.Status = old.Status
			}
		}),
		Validate: catalog.Validate(validateQuota),
		Warn:     catalog.WarnChange(requestsAboveLimits),
		Columns: []catalog.Column{
			catalog.Text("Request", "Request represents a minimum amount of cpu/memory that a container may consume.", func(q *corev1.ResourceQuota) string {
				return usage(&q.Status, false)
			}),
			catalog.Text("Limit", "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.", func(q *corev1.ResourceQuota) string {
				return usage(&q.Status, true)
			}),
			catalog.Age(),
		},
		Subresources: []catalog.Subresource{{
			Name:  "status",
			Verbs: readWrite,
			Shape: catalog.Part{
				Prepare: catalog.Prepare(func(q, old *corev1.ResourceQuota) {
					q.Spec = old.Spec
				}),
				Validate: catalog.Validate(func(q, _ *corev1.ResourceQuota) field.ErrorList {
					at := field.NewPath("status")
					return append(validateQuotaAmounts(q.Status.Hard, at.Child("hard")), validateQuotaAmounts(q.Status.Used, at.Child("used"))...)
				}),
			},
		}},
	}
}

// usage returns the used and the allowed amounts: of the limits, or of the other resources.
func usage(s *corev1.ResourceQuotaStatus, limits bool) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s.Hard)) {
		if strings.HasPrefix(string(name), "limits.") == limits {
			used, hard := s.Used[name], s.Hard[name]
			parts = append(parts, fmt.Sprintf("%s: %s/%s", name, used.String(), hard.String()))
		}
	}
	return strings.Join(parts, ", ")
}

// requestsAboveLimits warns of requests that the limits beside them do not allow.
func requestsAboveLimits(q, old *corev1.ResourceQuota) (warnings []string) {
	if old != nil {
		return nil
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceStorage, corev1.ResourceEphemeralStorage} {
		requests, limits := corev1.DefaultResourceRequestsPrefix+name, "limits."+name
		request, ok := q.Spec.Hard[requests]
		if !ok && (name == corev1.ResourceCPU || name == corev1.ResourceMemory) {
			requests = name // the short name
			request, ok = q.Spec.Hard[requests]
		}
		if limit, limited := q.Spec.Hard[limits]; ok && limited && request.Cmp(limit) > 0 {
			warnings = append(warnings, fmt.Sprintf("ResourceQuota %s (%s) should be less than %s (%s)", requests, request.String(), limits, limit.String()))
		}
	}
	return warnings
}

func validateQuota(q, old *corev1.ResourceQuota) field.ErrorList {
	at := field.NewPath("spec")
	errs := validateQuotaAmounts(q.Spec.Hard, at.Child("hard"))
	if size := quotaSize(q.Spec.Hard); size > maxQuotaSize && (old == nil || size > quotaSize(old.Spec.Hard)) {
		errs = append(errs, field.TooLong(at.Child("hard"), "", maxQuotaSize))
	}
	errs = append(errs, validateScopes(&q.Spec, at.Child("scopes"))...)
	if q.Spec.ScopeSelector != nil {
		errs = append(errs, validateScopeSelector(&q.Spec, at.Child("scopeSelector", "matchExpressions"))...)
	}
	if old != nil && !sets.New(q.Spec.Scopes...).Equal(sets.New(old.Spec.Scopes...)) {
		errs = append(errs, field.Invalid(at.Child("scopes"), q.Spec.Scopes, apivalidation.FieldImmutableErrorMsg))
	}
	return errs
}

// maxQuotaSize is the largest size of spec.hard, in bytes. The status has its names twice and its amounts once, and the managed fields all
// names three times: about six times as much, which fits in an object of 3 MiB. A larger one could be made, but have no status.
const maxQuotaSize = 384 << 10

// quotaSize returns the size of a list of resources in an object.
func quotaSize(list corev1.ResourceList) (n int) {
	const punctuation = 16 // of JSON and protobuf around a name and an amount, at most
	for name, q := range list {
		n += len(name) + len(q.String()) + punctuation
	}
	return n
}

func validateScopes(s *corev1.ResourceQuotaSpec, at *field.Path) (errs field.ErrorList) {
	for _, scope := range s.Scopes {
		if !knownScope(scope) {
			errs = append(errs, field.Invalid(at, s.Scopes, "unsupported scope"))
		}
		for range outOfScope(s, scope) {
			errs = append(errs, field.Invalid(at, s.Scopes, "unsupported scope applied to resource"))
		}
	}
	return append(errs, validateScopePairs(s, s.Scopes, at)...)
}

func validateScopeSelector(s *corev1.ResourceQuotaSpec, at *field.Path) (errs field.ErrorList) {
	var scopes []corev1.ResourceQuotaScope
	for _, r := range s.ScopeSelector.MatchExpressions {
		scopes = append(scopes, r.ScopeName)
		if !knownScope(r.ScopeName) {
			errs = append(errs, field.Invalid(at.Child("scopeName"), r.ScopeName, "unsupported scope"))
		}
		for range outOfScope(s, r.ScopeName) {
			errs = append(errs, field.Invalid(at, s.ScopeSelector, "unsupported scope applied to resource"))
		}
		switch r.ScopeName {
		case corev1.ResourceQuotaScopePriorityClass, corev1.ResourceQuotaScopeVolumeAttributesClass:
		default:
			if knownScope(r.ScopeName) && r.Operator != corev1.ScopeSelectorOpExists {
				errs = append(errs, field.Invalid(at.Child("operator"), r.Operator, "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"))
			}
		}
		switch r.Operator {
		case corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn:
			if len(r.Values) == 0 {
				errs = append(errs, field.Required(at.Child("values"), "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"))
			}
		case corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpDoesNotExist:
			if len(r.Values) != 0 {
				errs = append(errs, field.Invalid(at.Child("values"), r.Values, "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"))
			}
		default:
			errs = append(errs, field.Invalid(at.Child("operator"), r.Operator, "not a valid selector operator"))
		}
	}
	return append(errs, validateScopePairs(s, scopes, at)...)
}

// validateScopePairs refuses scopes that no pod has both.
func validateScopePairs(s *corev1.ResourceQuotaSpec, scopes []corev1.ResourceQuotaScope, at *field.Path) (errs field.ErrorList) {
	for _, pair := range [][2]corev1.ResourceQuotaScope{
		{corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort},
		{corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating},
	} {
		if slices.Contains(scopes, pair[0]) && slices.Contains(scopes, pair[1]) {
			errs = append(errs, field.Invalid(at, s.Scopes, "conflicting scopes"))
		}
	}
	return errs
}

func knownScope(scope corev1.ResourceQuotaScope) bool {
	switch scope {
	case corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort,
		corev1.ResourceQuotaScopePriorityClass, corev1.ResourceQuotaScopeVolumeAttributesClass, corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return true
	default:
		return false
	}
}

// outOfScope returns the resources of a quota that a scope can't be applied to.
func outOfScope(s *corev1.ResourceQuotaSpec, scope corev1.ResourceQuotaScope) (names []corev1.ResourceName) {
	for name := range s.Hard {
		fits := true
		switch {
		case !podspec.IsOfQuota(name) || !knownScope(scope):
		case scope == corev1.ResourceQuotaScopeBestEffort:
			fits = name == corev1.ResourcePods
		case scope == corev1.ResourceQuotaScopeVolumeAttributesClass:
			fits = name == corev1.ResourcePersistentVolumeClaims || name == corev1.ResourceRequestsStorage
		default:
			fits = name == corev1.ResourcePods || podspec.IsCompute(name)
		}
		if !fits {
			names = append(names, name)
		}
	}
	return names
}

// validateQuotaAmounts checks the amounts of a quota: those allowed, or those used.
func validateQuotaAmounts(list corev1.ResourceList, at *field.Path) (errs field.ErrorList) {
	for name, q := range list {
		at := at.Key(string(name))
		errs = append(errs, podspec.ValidateAnyResourceName(name, at)...)
		if !strings.Contains(string(name), "/") && !podspec.IsOfQuota(name) {
			errs = append(errs, field.Invalid(at, name, "must be a standard resource for quota"))
		}
		errs = append(errs, validateAmount(name, q, at)...)
	}
	return errs
}

func validateAmount(name corev1.ResourceName, q resource.Quantity, at *field.Path) (errs field.ErrorList) {
	if q.Sign() < 0 {
		errs = append(errs, field.Invalid(at, q.String(), apivalidation.IsNegativeErrorMsg))
	}
	if (podspec.IsCounted(name) || podspec.IsExtended(name)) && q.MilliValue()%1000 != 0 {
		errs = append(errs, field.Invalid(at, q, "must be an integer"))
	}
	return errs
}
