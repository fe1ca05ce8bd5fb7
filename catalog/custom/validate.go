package custom

import (
	"context"
	"fmt"
	"math"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

// validate returns the faults of obj, which is of this version as old is; old is nil in a creation. What was wrong
// with old already, and has not changed, is not (KEP-4008).
func (v *version) validate(ctx context.Context, obj, old *unstructured.Unstructured) field.ErrorList {
	return v.check(ctx, obj, old, func(s *schemas) (errs field.ErrorList) {
		if shape := s.shape(); !shape.holds(obj.Object) {
			e := s.explain()
			if e.err != nil {
				return field.ErrorList{field.InternalError(nil, e.err)}
			}
			finder := &faultFinder{schema: e.schema}
			if old == nil {
				errs = validation.ValidateCustomResource(nil, obj.Object, finder)
			} else {
				errs = validation.ValidateCustomResourceUpdate(nil, obj.Object, old.Object, finder, validation.WithRatcheting(s.correlate(obj, old)))
			}
			errs = finder.summary(errs)
		}
		errs = append(errs, v.scale.validateSpec(obj)...)
		errs = append(errs, v.scale.validateStatus(obj)...)
		if !s.embedded {
			return errs
		}
		return append(errs, objectmeta.Validate(ctx, nil, obj.Object, s.structural, false)...)
	})
}

// validateStatus returns the faults of obj, whose status alone differs from that of old.
func (v *version) validateStatus(ctx context.Context, obj, old *unstructured.Unstructured) field.ErrorList {
	return v.check(ctx, obj, old, func(s *schemas) (errs field.ErrorList) {
		status, found := obj.Object["status"]
		if shape := s.shape(); found && (shape == nil || !shape.properties["status"].holds(status)) {
			e := s.explain()
			if e.err != nil {
				return field.ErrorList{field.InternalError(nil, e.err)}
			}
			if e.status != nil {
				ratchet := validation.WithRatcheting(s.correlate(obj, old).Key("status"))
				finder := &faultFinder{schema: e.status}
				errs = finder.summary(validation.ValidateCustomResourceUpdate(field.NewPath("status"), status, old.Object["status"], finder, ratchet))
			}
		}
		return append(errs, v.scale.validateStatus(obj)...)
	})
}

func (s *schemas) correlate(obj, old *unstructured.Unstructured) *common.CorrelatedObject {
	return common.NewCorrelatedObject(obj.Object, old.Object, &model.Structural{Structural: s.structural})
}

// check runs the checks that all writes have, after those of fields.
func (v *version) check(ctx context.Context, obj, old *unstructured.Unstructured, fields func(*schemas) field.ErrorList) field.ErrorList {
	if errs := v.checkType(obj); len(errs) > 0 {
		return errs
	}
	s := v.source.get()
	if tooManyDefaults(obj, s.defaults) {
		return field.ErrorList{field.Invalid(nil, "", fmt.Sprintf("its defaults take more than %d bytes", maxDefaults))}
	}
	errs := fields(s)
	if s.lists {
		lists := listtype.ValidateListSetsAndMaps(nil, s.structural, obj.Object)
		if len(lists) > 0 && (old == nil || len(listtype.ValidateListSetsAndMaps(nil, s.structural, old.Object)) == 0) {
			errs = append(errs, lists...)
		}
	}
	return append(errs, s.checkRules(ctx, obj, old, errs)...)
}

// checkRules checks the CEL rules of an object with which errs are wrong.
func (s *schemas) checkRules(ctx context.Context, obj, old *unstructured.Unstructured, errs field.ErrorList) field.ErrorList {
	rules, ok := s.rules()
	if ok && rules == nil {
		return nil
	}
	if blocking(errs) {
		return field.ErrorList{field.Invalid(nil, nil, "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation")}
	}
	var before any // not a nil map in an interface
	if old != nil {
		before = old.Object
	}
	if budget := int64(celconfig.RuntimeCELCostBudget); ok && rules.hold(ctx, obj.Object, before, &budget) {
		return nil
	}
	e := s.explain()
	if e.err != nil {
		return field.ErrorList{field.InternalError(nil, e.err)}
	}
	if e.rules == nil {
		return nil
	}
	var options []cel.Option
	if old != nil {
		options = append(options, cel.WithRatcheting(s.correlate(obj, old)))
	}
	faults, _ := e.rules.Validate(ctx, nil, s.structural, obj.Object, before, celconfig.RuntimeCELCostBudget, options...)
	return faults
}

// tooManyDefaults reports whether obj has not got its defaults because there was no room for them.
func tooManyDefaults(obj *unstructured.Unstructured, d *defaults) bool {
	return !(&filler{}).fill(obj.Object, d) && !(&filler{left: maxDefaults}).fill(obj.DeepCopy().Object, d)
}

// blocking reports whether rules, which rely on types and sizes, cannot be checked.
func blocking(errs field.ErrorList) bool {
	for _, err := range errs {
		switch err.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return true
		}
	}
	return false
}

func (v *version) checkType(obj *unstructured.Unstructured) (errs field.ErrorList) {
	if kind := obj.GetKind(); kind != v.gvk.Kind {
		errs = append(errs, field.Invalid(field.NewPath("kind"), kind, "must be "+v.gvk.Kind))
	}
	if is, want := obj.GetAPIVersion(), v.gvk.GroupVersion().String(); is != want {
		errs = append(errs, field.Invalid(field.NewPath("apiVersion"), is, "must be "+want))
	}
	return errs
}

func (s *scale) validateSpec(obj *unstructured.Unstructured) field.ErrorList {
	if s == nil {
		return nil
	}
	return checkReplicas(obj, s.spec)
}

func (s *scale) validateStatus(obj *unstructured.Unstructured) field.ErrorList {
	if s == nil {
		return nil
	}
	errs := checkReplicas(obj, s.status)
	if s.selector != "" {
		if value, _, err := unstructured.NestedString(obj.Object, steps(s.selector)...); err != nil {
			errs = append(errs, field.Invalid(field.NewPath(s.selector), value, err.Error()))
		}
	}
	return errs
}

func checkReplicas(obj *unstructured.Unstructured, path string) field.ErrorList {
	n, _, err := unstructured.NestedInt64(obj.Object, steps(path)...)
	message := ""
	switch {
	case err != nil:
		message = err.Error()
	case n < 0:
		message = "should be a non-negative integer"
	case n > math.MaxInt32:
		message = fmt.Sprintf("should be less than or equal to %v", math.MaxInt32)
	default:
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath(path), n, message)}
}

// steps returns the fields on a path: ".spec.replicas".
func steps(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }
