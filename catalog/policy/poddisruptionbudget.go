package policy

import (
	"fmt"
	"strconv"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
)

// Kinds returns the kinds of policy.
func Kinds() []*catalog.Kind { return []*catalog.Kind{podDisruptionBudgets()} }

func podDisruptionBudgets() *catalog.Kind {
	spec, status := policyv1.PodDisruptionBudgetSpec{}.SwaggerDoc(), policyv1.PodDisruptionBudgetStatus{}.SwaggerDoc()
	return &catalog.Kind{
		GroupVersionKind: policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"),
		Resource:         "poddisruptionbudgets",
		Conditional:      true,
		Singular:         "poddisruptionbudget",
		ShortNames:       []string{"pdb"},
		Namespaced:       true,
		New:              func() catalog.Object { return &policyv1.PodDisruptionBudget{} },
		NewList:          func() runtime.Object { return &policyv1.PodDisruptionBudgetList{} },
		Prepare: catalog.Prepare(func(b, old *policyv1.PodDisruptionBudget) {
			b.Status = policyv1.PodDisruptionBudgetStatus{}
			if old != nil {
				b.Status = old.Status
			}
		}),
		Validate:   catalog.Validate(validate),
		Generation: true,
		Columns: []catalog.Column{
			catalog.Text("Min Available", spec["minAvailable"], func(b *policyv1.PodDisruptionBudget) string { return orNotAsked(b.Spec.MinAvailable) }),
			catalog.Text("Max Unavailable", spec["maxUnavailable"], func(b *policyv1.PodDisruptionBudget) string { return orNotAsked(b.Spec.MaxUnavailable) }),
			catalog.Number("Allowed Disruptions", status["disruptionsAllowed"], func(b *policyv1.PodDisruptionBudget) int64 { return int64(b.Status.DisruptionsAllowed) }),
			catalog.Age(),
		},
		Subresources: []catalog.Subresource{{
			Name:  "status",
			Verbs: []string{"get", "patch", "update"},
			Shape: catalog.Part{
				Prepare: catalog.Prepare(func(b, old *policyv1.PodDisruptionBudget) {
					b.Spec = old.Spec
				}),
				Validate: catalog.Validate(validateStatus),
			},
		}},
	}
}

func orNotAsked(v *intstr.IntOrString) string {
	if v == nil {
		return "N/A"
	}
	return v.String()
}

func validate(b, _ *policyv1.PodDisruptionBudget) (errs field.ErrorList) {
	at, s := field.NewPath("spec"), &b.Spec
	if s.MinAvailable != nil && s.MaxUnavailable != nil {
		errs = append(errs, field.Invalid(at, fmt.Sprintf("minAvailable %s, maxUnavailable %s", s.MinAvailable, s.MaxUnavailable), "minAvailable and maxUnavailable cannot be both set"))
	}
	errs = append(errs, validateShare(s.MinAvailable, at.Child("minAvailable"))...)
	errs = append(errs, validateShare(s.MaxUnavailable, at.Child("maxUnavailable"))...)
	errs = append(errs, metav1validation.ValidateLabelSelector(s.Selector, metav1validation.LabelSelectorValidationOptions{}, at.Child("selector"))...)
	if p := s.UnhealthyPodEvictionPolicy; p != nil && *p != policyv1.IfHealthyBudget && *p != policyv1.AlwaysAllow {
		errs = append(errs, field.NotSupported(at.Child("unhealthyPodEvictionPolicy"), *p, []policyv1.UnhealthyPodEvictionPolicyType{policyv1.AlwaysAllow, policyv1.IfHealthyBudget}))
	}
	return errs
}

// validateShare checks a number of pods, or a percentage of at most all of them.
func validateShare(v *intstr.IntOrString, at *field.Path) (errs field.ErrorList) {
	switch {
	case v == nil:
		return nil
	case v.Type == intstr.Int:
		return apivalidation.ValidateNonnegativeField(int64(v.IntVal), at)
	case v.Type != intstr.String:
		return field.ErrorList{field.Invalid(at, *v, "must be an integer or percentage (e.g '5%%')")}
	}
	for _, fault := range validation.IsValidPercent(v.StrVal) {
		errs = append(errs, field.Invalid(at, *v, fault))
	}
	if n, err := strconv.Atoi(strings.TrimSuffix(v.StrVal, "%")); len(errs) == 0 && (err != nil || n > 100) {
		errs = append(errs, field.Invalid(at, *v, "must not be greater than 100%"))
	}
	return errs
}

func validateStatus(b, _ *policyv1.PodDisruptionBudget) field.ErrorList {
	at, s := field.NewPath("status"), &b.Status
	errs := metav1validation.ValidateConditions(s.Conditions, at.Child("conditions"))
	for _, n := range []struct {
		name  string
		value int32
	}{
		{"disruptionsAllowed", s.DisruptionsAllowed},
		{"currentHealthy", s.CurrentHealthy},
		{"desiredHealthy", s.DesiredHealthy},
		{"expectedPods", s.ExpectedPods},
	} {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(n.value), at.Child(n.name))...)
	}
	return errs
}
