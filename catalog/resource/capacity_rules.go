package resource

import (
	"fmt"
	"math"
	"strconv"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// mostValues is how many amounts a policy may list.
const mostValues = 10

// validateCapacity checks the request policy of a capacity. Shared says that the device has it for several claims.
func validateCapacity(c resourcev1.DeviceCapacity, shared bool, at *field.Path) field.ErrorList {
	p, at := c.RequestPolicy, at.Child("requestPolicy")
	switch {
	case p == nil:
		return nil
	case !shared:
		return field.ErrorList{field.Forbidden(at, "allowMultipleAllocations must be true")}
	case len(p.ValidValues) > 0 && p.ValidRange != nil:
		return field.ErrorList{field.Forbidden(at, `exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time`)}
	case len(p.ValidValues) > 0 && p.Default == nil:
		return field.ErrorList{field.Required(at.Child("default"), "required when validValues is defined")}
	case len(p.ValidValues) > 0:
		return validateAmounts(p, &c.Value, at.Child("validValues"))
	case p.ValidRange != nil && p.Default == nil:
		return field.ErrorList{field.Required(at.Child("default"), "required when validRange is defined")}
	case p.ValidRange != nil:
		return validateRange(p.ValidRange, p.Default, &c.Value, at.Child("validRange"))
	}
	return nil
}

func validateAmounts(p *resourcev1.CapacityRequestPolicy, most *resource.Quantity, at *field.Path) (errs field.ErrorList) {
	all := p.ValidValues
	for i := 1; i < len(all); i++ {
		if all[i-1].Cmp(all[i]) > 0 {
			errs = append(errs, field.Invalid(at.Index(i), all[i].String(), "values must be sorted in ascending order"))
		}
	}
	found := false
	if len(all) > mostValues {
		errs = append(errs, field.TooMany(at, len(all), mostValues))
		all = nil
	}
	seen := map[string]bool{}
	for i := range all {
		v := &all[i]
		if v.Cmp(*most) > 0 {
			errs = append(errs, field.Invalid(at.Index(i), v.String(), "option is larger than capacity value: "+most.String()))
		}
		found = found || v.Cmp(*p.Default) == 0
		key := strconv.FormatInt(v.Value(), 10)
		if seen[key] {
			errs = append(errs, field.Duplicate(at.Index(i), key))
		}
		seen[key] = true
	}
	if !found {
		errs = append(errs, field.Invalid(at, p.Default.String(), "default value is not valid according to the requestPolicy"))
	}
	return errs
}

// A bound is a number of a range.
type bound struct {
	name string
	q    *resource.Quantity
}

// validateRange checks a range. Numbers are rounded up to whole ones: fractions are behind a gate that is closed by
// default in v1.37.
func validateRange(r *resourcev1.CapacityRequestPolicyRange, def, most *resource.Quantity, at *field.Path) (errs field.ErrorList) {
	if r.Min == nil {
		return field.ErrorList{field.Required(at.Child("min"), "required when validRange is defined")}
	}
	wrong := func(name string, q *resource.Quantity, format string, limit *resource.Quantity) {
		errs = append(errs, field.Invalid(at.Child(name), q.String(), fmt.Sprintf(format, limit.String())))
	}
	if r.Min.Cmp(*most) > 0 {
		wrong("min", r.Min, "min is larger than capacity value: %s", most)
	}
	if def.Cmp(*r.Min) < 0 {
		wrong("default", def, "default is less than min: %s", r.Min)
	}
	if r.Max != nil {
		if r.Min.Cmp(*r.Max) > 0 {
			wrong("max", r.Min, "min is larger than max: %s", r.Max)
		}
		if r.Max.Cmp(*most) > 0 {
			wrong("max", r.Max, "max is larger than capacity value: %s", most)
		}
		if def.Cmp(*r.Max) > 0 {
			wrong("default", def, "default is more than max: %s", r.Max)
		}
	}
	if r.Step == nil {
		return errs
	}
	step := at.Child("step")
	if r.Step.Sign() <= 0 {
		return append(errs, field.Invalid(step, r.Step.String(), "must be greater than zero"))
	}
	first := r.Min.DeepCopy()
	if first.Add(*r.Step); first.Cmp(*most) > 0 {
		errs = append(errs, field.Invalid(step, r.Step.String(), fmt.Sprintf("one step %s is larger than capacity value: %s", first.String(), most.String())))
	}
	bounds := []bound{{"default", def}, {"min", r.Min}, {"max", r.Max}, {"step", r.Step}}
	if bad := validateWhole(bounds, at); len(bad) > 0 {
		return append(errs, bad...)
	}
	for _, q := range []*resource.Quantity{def, r.Max} {
		if q != nil && (q.Value()-r.Min.Value())%r.Step.Value() != 0 {
			errs = append(errs, field.Invalid(step, q.String(), fmt.Sprintf("value is not a multiple of a given step (%s) from (%s)", r.Step.String(), r.Min.String())))
		}
	}
	return errs
}

// validateWhole refuses numbers that do not fit an int64, and negative ones.
func validateWhole(bounds []bound, at *field.Path) (errs field.ErrorList) {
	for _, b := range bounds {
		switch {
		case b.q == nil:
		case b.q.Sign() < 0:
			errs = append(errs, field.Invalid(at.Child(b.name), b.q.String(), validation.IsNegativeErrorMsg))
		case b.q.CmpInt64(math.MaxInt64) > 0:
			errs = append(errs, field.Invalid(at.Child(b.name), b.q.String(), "must not be larger than 9223372036854775807"))
		}
	}
	return errs
}
