package custom

import (
	"fmt"
	"reflect"
	"slices"

	openapierrors "k8s.io/kube-openapi/pkg/validation/errors"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

// A joined validates a value against a schema that joins others (allOf, anyOf, oneOf, not) which have schemas of items
// or of values of maps, or long enums. Kubernetes' validator has no options for the joined schemas, so that it cannot be
// bounded there: 20,000 items that a schema of an anyOf does not allow took half a minute, even if another one allows
// them.
type joined struct {
	schema *spec.Schema
	path   string
	create func(*spec.Schema) validate.ValueValidator
}

// withJoined returns the validator of a schema. create makes Kubernetes' validator of a schema for the same value.
func withJoined(schema *spec.Schema, path string, create func(*spec.Schema) validate.ValueValidator) validate.ValueValidator {
	if slices.ContainsFunc(branches(schema), costly) {
		return joined{schema, path, create}
	}
	return create(schema)
}

func branches(s *spec.Schema) (all []*spec.Schema) {
	for _, list := range [][]spec.Schema{s.AllOf, s.AnyOf, s.OneOf} {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	if s.Not != nil {
		all = append(all, s.Not)
	}
	return all
}

// costly reports whether a schema can have any number of faults in one value, or has a long enum.
func costly(s *spec.Schema) bool {
	const fewValues = 10
	if s.Items != nil || s.AdditionalProperties != nil || len(s.Enum) > fewValues {
		return true
	}
	for _, property := range s.Properties {
		if costly(&property) {
			return true
		}
	}
	return slices.ContainsFunc(branches(s), costly)
}

func (j joined) SetPath(string)                 {}
func (j joined) Applies(any, reflect.Kind) bool { return true }

func (j joined) Validate(value any) *validate.Result {
	own := *j.schema
	own.AllOf, own.AnyOf, own.OneOf, own.Not = nil, nil, nil, nil
	result := j.create(&own).Validate(value)
	if value == nil {
		return result // Kubernetes' validator does not compare null with joined schemas
	}
	faults := &validate.Result{}
	j.allOf(value, faults)
	j.anyOf(value, faults)
	j.oneOf(value, faults)
	if j.schema.Not != nil && j.branch(j.schema.Not, value).IsValid() {
		faults.AddErrors(j.fault(validate.MustNotValidateSchemaError))
	}
	if faults.IsValid() {
		return result
	}
	// Faults of a value that an update has not changed are ignored. The schema {not: {}} is invalid for every value, so its
	// validator reports no fault only for such a value.
	if j.create(&spec.Schema{SchemaProps: spec.SchemaProps{Not: &spec.Schema{}}}).Validate(value).IsValid() {
		return result
	}
	return result.Merge(faults)
}

func (j joined) fault(format string, args ...any) error {
	return openapierrors.New(openapierrors.CompositeErrorCode, format, append([]any{j.path}, args...)...)
}

// branch validates a value against one of the joined schemas.
func (j joined) branch(schema *spec.Schema, value any) *validate.Result {
	return part{schema, new(int), func(schema *spec.Schema) validate.ValueValidator { return newValidator(schema, j.path) }}.Validate(value)
}

func (j joined) allOf(value any, faults *validate.Result) {
	valid := 0
	for i := range j.schema.AllOf {
		result := j.branch(&j.schema.AllOf[i], value)
		if result.IsValid() {
			valid++
		}
		faults.Merge(result)
	}
	switch {
	case valid == len(j.schema.AllOf):
	case valid == 0:
		faults.AddErrors(j.fault(validate.MustValidateAllSchemasError, ". None validated"))
	default:
		faults.AddErrors(j.fault(validate.MustValidateAllSchemasError, ""))
	}
}

func (j joined) anyOf(value any, faults *validate.Result) {
	if len(j.schema.AnyOf) == 0 {
		return
	}
	var nearest *validate.Result
	for i := range j.schema.AnyOf {
		result := j.branch(&j.schema.AnyOf[i], value)
		if result.IsValid() {
			return
		}
		if nearest == nil || result.MatchCount > nearest.MatchCount {
			nearest = result
		}
	}
	faults.AddErrors(j.fault(validate.MustValidateAtLeastOneSchemaError))
	faults.Merge(nearest)
}

func (j joined) oneOf(value any, faults *validate.Result) {
	if len(j.schema.OneOf) == 0 {
		return
	}
	var nearest *validate.Result
	valid := 0
	for i := range j.schema.OneOf {
		result := j.branch(&j.schema.OneOf[i], value)
		if result.IsValid() {
			valid++
		} else if nearest == nil || result.MatchCount > nearest.MatchCount {
			nearest = result
		}
	}
	switch valid {
	case 1:
	case 0:
		faults.AddErrors(j.fault(validate.MustValidateOnlyOneSchemaError, "Found none valid"))
		faults.Merge(nearest)
	default:
		faults.AddErrors(j.fault(validate.MustValidateOnlyOneSchemaError, fmt.Sprintf("Found %d valid alternatives", valid)))
	}
}
