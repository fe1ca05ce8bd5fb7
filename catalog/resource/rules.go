package resource

import (
	"encoding/json"
	"fmt"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validateClass(c, old *resourcev1.DeviceClass) field.ErrorList {
	at := field.NewPath("spec")
	var was resourcev1.DeviceClassSpec
	if old != nil {
		was = old.Spec
	}
	// Unchanged fields are not checked again.
	stored := old != nil && equality.Semantic.DeepEqual(c.Spec.Selectors, was.Selectors)
	errs := validateSelectors(c.Spec.Selectors, stored, at.Child("selectors"))
	stored = old != nil && equality.Semantic.DeepEqual(c.Spec.Config, was.Config)
	return append(errs, each(c.Spec.Config, resourcev1.DeviceConfigMaxSize, at.Child("config"), func(c *resourcev1.DeviceClassConfiguration, at *field.Path) field.ErrorList {
		return validateConfig(&c.DeviceConfiguration, stored, at)
	})...)
}

func validateTaintRule(r, _ *resourcev1.DeviceTaintRule) (errs field.ErrorList) {
	at := field.NewPath("spec", "deviceSelector")
	if s := r.Spec.DeviceSelector; s != nil {
		if s.Driver != nil {
			errs = append(errs, validateDriver(*s.Driver, at.Child("driver"))...)
		}
		if s.Pool != nil {
			errs = append(errs, validatePool(*s.Pool, at.Child("pool"))...)
		}
		if s.Device != nil {
			errs = append(errs, faults(at.Child("device"), *s.Device, validation.IsDNS1123Label(*s.Device))...)
		}
	}
	return append(errs, validateTaint(&r.Spec.Taint, field.NewPath("spec", "taint"))...)
}

// each checks the items of a list. If there are more than most, a declared rule says so, and that is all.
func each[T any](items []T, most int, at *field.Path, check func(item *T, at *field.Path) field.ErrorList) (errs field.ErrorList) {
	if len(items) > most {
		return nil
	}
	for i := range items {
		errs = append(errs, check(&items[i], at.Index(i))...)
	}
	return errs
}

func faults(at *field.Path, value any, messages []string) (errs field.ErrorList) {
	for _, m := range messages {
		errs = append(errs, field.Invalid(at, value, m))
	}
	return errs
}

func validateDriver(name string, at *field.Path) (errs field.ErrorList) {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	if len(name) > resourcev1.DriverNameMaxLength {
		errs = append(errs, field.TooLong(at, "", resourcev1.DriverNameMaxLength))
	}
	return append(errs, faults(at, name, validation.IsDNS1123Subdomain(strings.ToLower(name)))...)
}

func validatePool(name string, at *field.Path) (errs field.ErrorList) {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	if len(name) > resourcev1.PoolNameMaxLength {
		errs = append(errs, field.TooLong(at, "", resourcev1.PoolNameMaxLength))
	}
	for part := range strings.SplitSeq(name, "/") {
		errs = append(errs, faults(at, part, validation.IsDNS1123Subdomain(part))...)
	}
	return errs
}

// validateQualifiedName requires an identifier of C, behind a domain and a slash or alone. Upstream lets names with
// two slashes pass.
func validateQualifiedName(name string, at *field.Path) (errs field.ErrorList) {
	parts := strings.Split(name, "/")
	id := parts[len(parts)-1]
	switch {
	case len(parts) > 2:
		return nil
	case len(parts) == 2 && parts[0] == "":
		errs = append(errs, field.Invalid(at, "", "the domain must not be empty"))
	case len(parts) == 2:
		errs = append(errs, validateDriver(parts[0], at)...)
	}
	if len(parts) == 2 && id == "" {
		return append(errs, field.Invalid(at, "", "the name must not be empty"))
	}
	if len(id) > resourcev1.DeviceMaxIDLength {
		errs = append(errs, field.TooLong(at, "", resourcev1.DeviceMaxIDLength))
	}
	return append(errs, faults(at, id, content.IsCIdentifier(id))...)
}

func validateTaint(t *resourcev1.DeviceTaint, at *field.Path) field.ErrorList {
	errs := metav1validation.ValidateLabelName(t.Key, at.Child("key"))
	return append(errs, faults(at.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))...)
}

func validateTolerations(all []resourcev1.DeviceToleration, at *field.Path) (errs field.ErrorList) {
	for i := range all {
		t, at := &all[i], at.Index(i).Child("value")
		switch t.Operator {
		case resourcev1.DeviceTolerationOpExists:
			if t.Value != "" {
				errs = append(errs, field.Invalid(at, t.Value, "must be empty for operator `Exists`"))
			}
		case resourcev1.DeviceTolerationOpEqual:
			errs = append(errs, faults(at, t.Value, validation.IsValidLabelValue(t.Value))...)
		default: // a declared rule
		}
	}
	return errs
}

func validateConditions(all []metav1.Condition, most int, at *field.Path) field.ErrorList {
	errs := metav1validation.ValidateConditions(all, at)
	if len(all) > most {
		errs = append(errs, field.TooMany(at, len(all), most))
	}
	return errs
}

func validateSelectors(all []resourcev1.DeviceSelector, stored bool, at *field.Path) field.ErrorList {
	return each(all, resourcev1.DeviceSelectorsMaxSize, at, func(s *resourcev1.DeviceSelector, at *field.Path) field.ErrorList {
		if at = at.Child("cel"); s.CEL == nil {
			return field.ErrorList{field.Required(at, "")}
		}
		if stored {
			return nil
		}
		return validateExpression(s.CEL.Expression, at.Child("expression"))
	})
}

func validateConfig(c *resourcev1.DeviceConfiguration, stored bool, at *field.Path) field.ErrorList {
	if at = at.Child("opaque"); c.Opaque == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	most := resourcev1.OpaqueParametersMaxLength
	if stored {
		most = len(c.Opaque.Parameters.Raw)
	}
	return validateRaw(&c.Opaque.Parameters, most, at.Child("parameters"))
}

// validateRaw requires a JSON object.
func validateRaw(raw *runtime.RawExtension, most int, at *field.Path) field.ErrorList {
	if len(raw.Raw) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	if len(raw.Raw) > most {
		return field.ErrorList{field.TooLong(at, "", most)}
	}
	var v any
	if err := json.Unmarshal(raw.Raw, &v); err != nil {
		return field.ErrorList{field.Invalid(at, "<value omitted>", fmt.Sprintf("error parsing data as JSON: %v", err))}
	}
	if v == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	if _, ok := v.(map[string]any); !ok {
		return field.ErrorList{field.Invalid(at, "<value omitted>", "must be a valid JSON object")}
	}
	return nil
}

// validateBinding checks the conditions that a device waits for before its pod is bound.
func validateBinding(wanted, failed []string, at *field.Path) field.ErrorList {
	success, failure := at.Child("bindingConditions"), at.Child("bindingFailureConditions")
	name := func(s *string, at *field.Path) field.ErrorList { return metav1validation.ValidateLabelName(*s, at) }
	errs := each(wanted, resourcev1.BindingConditionsMaxSize, success, name)
	errs = append(errs, each(failed, resourcev1.BindingFailureConditionsMaxSize, failure, name)...)
	want := map[string]bool{}
	for i, c := range wanted {
		if want[c] {
			errs = append(errs, field.Duplicate(success.Index(i), c))
		}
		want[c] = true
	}
	seen := map[string]bool{}
	for i, c := range failed {
		if seen[c] {
			errs = append(errs, field.Duplicate(failure.Index(i), c))
		}
		if seen[c] = true; want[c] {
			errs = append(errs, field.Invalid(failure.Index(i), c, "bindingFailureConditions must not overlap with bindingConditions"))
		}
	}
	switch {
	case len(wanted) == 0 && len(failed) > 0:
		errs = append(errs, field.Invalid(success, wanted, "bindingConditions are required to use bindingFailureConditions"))
	case len(failed) == 0 && len(wanted) > 0:
		errs = append(errs, field.Invalid(failure, failed, "bindingFailureConditions are required to use bindingConditions"))
	}
	return errs
}
