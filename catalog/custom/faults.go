package custom

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	openapierrors "k8s.io/kube-openapi/pkg/validation/errors"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

// mostFaults is how many faults of an object are explained. Kubernetes' validator compares each error with all others,
// and the error of an enum has all its values: 80,000 items without their key took minutes.
// A value can have several, such as one for each joined schema.
const mostFaults = 200

// maxPath is the length in bytes to which the path of a value is cut. Kubernetes' validator makes the path of each
// value that it checks: with a key of a megabyte the paths of a list below it would take gigabytes.
const maxPath = 1024

// A faultFinder is Kubernetes' validator of a schema with a bound: it does not look at the further values of a list or
// map in which it found more than mostFaults faults. A faultFinder is for one call.
type faultFinder struct {
	schema  *spec.Schema
	tooMany bool
	// example is one of too many faults, if Kubernetes' validator does not report its path.
	example string
}

var _ validation.SchemaValidator = (*faultFinder)(nil)

func (f *faultFinder) Validate(value any, _ ...validation.ValidationOption) *validate.Result {
	return f.pick(newValidator(f.schema, "").Validate(value))
}

func (f *faultFinder) ValidateUpdate(value, old any, options ...validation.ValidationOption) *validate.Result {
	return f.pick(withJoined(f.schema, "", func(schema *spec.Schema) validate.ValueValidator {
		return update{validation.NewRatchetingSchemaValidator(schema, nil, "", strfmt.Default, bounded), old, options}
	}).Validate(value))
}

// An update validates a new value, and ignores the faults of the old one.
type update struct {
	*validation.RatchetingSchemaValidator
	old     any
	options []validation.ValidationOption
}

func (u update) SetPath(string)                 {}
func (u update) Applies(any, reflect.Kind) bool { return true }

func (u update) Validate(value any) *validate.Result {
	return u.ValidateUpdate(value, u.old, u.options...)
}

// pick returns the result with one error if it has too many: of those with a path, the one with the shortest, which is
// the first of a list.
func (f *faultFinder) pick(result *validate.Result) *validate.Result {
	if f.tooMany = len(result.Errors) > mostFaults; !f.tooMany {
		return result
	}
	first := slices.MinFunc(result.Errors, func(a, b error) int {
		a1, b1 := pathOf(a), pathOf(b)
		switch {
		case (a1 == "") != (b1 == ""):
			return cmp.Compare(len(b1), len(a1))
		case len(a1) != len(b1):
			return cmp.Compare(len(a1), len(b1))
		}
		return cmp.Compare(a1, b1)
	})
	if pathOf(first) == "" {
		f.example = first.Error()
	}
	return &validate.Result{Errors: []error{first}}
}

// pathOf returns the path in an error of Kubernetes' validator, or "" if it has none, as those of joined schemas and of
// numbers that their format does not allow.
func pathOf(err error) string {
	if err, ok := err.(*openapierrors.Validation); ok { //nolint:errorlint // it is not wrapped
		return err.Name
	}
	return ""
}

// summary returns errs, which were made of the result, with a message that says so if there were too many.
func (f *faultFinder) summary(errs field.ErrorList) field.ErrorList {
	if !f.tooMany || len(errs) == 0 {
		return errs
	}
	message := fmt.Sprintf("more than %d values do not fit the schema; this is one of them", mostFaults)
	if f.example != "" {
		message = fmt.Sprintf("more than %d values do not fit the schema; one of them: %s", mostFaults, f.example)
	}
	// This type of error keeps rules from being checked.
	return field.ErrorList{{Type: field.ErrorTypeTypeInvalid, Field: errs[0].Field, BadValue: field.OmitValueType{}, Detail: message}}
}

// newValidator returns a validator of values that have no old one.
func newValidator(schema *spec.Schema, path string) validate.ValueValidator {
	return withJoined(schema, path, func(schema *spec.Schema) validate.ValueValidator {
		return validate.NewSchemaValidator(schema, nil, path, strfmt.Default, bounded)
	})
}

// bounded makes the validator of a value stop when it has found too many faults in the fields or items of the value.
func bounded(o *validate.SchemaValidatorOptions) {
	found := new(int)
	// Of a value that has an old one, these make validators that ignore the old faults.
	newForField, newForIndex := o.NewValidatorForField, o.NewValidatorForIndex
	o.NewValidatorForField = func(name string, schema *spec.Schema, root any, path string, formats strfmt.Registry, _ ...validate.Option) validate.ValueValidator {
		path = cut(path)
		if newForField == nil {
			return part{schema, found, func(schema *spec.Schema) validate.ValueValidator { return newValidator(schema, path) }}
		}
		return part{schema, found, func(schema *spec.Schema) validate.ValueValidator {
			return withJoined(schema, path, func(schema *spec.Schema) validate.ValueValidator {
				return newForField(name, schema, root, path, formats, bounded)
			})
		}}
	}
	o.NewValidatorForIndex = func(i int, schema *spec.Schema, root any, path string, formats strfmt.Registry, _ ...validate.Option) validate.ValueValidator {
		if newForIndex == nil {
			return part{schema, found, func(schema *spec.Schema) validate.ValueValidator { return newValidator(schema, path) }}
		}
		return part{schema, found, func(schema *spec.Schema) validate.ValueValidator {
			return withJoined(schema, path, func(schema *spec.Schema) validate.ValueValidator {
				return newForIndex(i, schema, root, path, formats, bounded)
			})
		}}
	}
}

func cut(path string) string {
	if len(path) > maxPath {
		return strings.ToValidUTF8(path[:maxPath], "") + "…"
	}
	return path
}

// A part validates a field or an item, unless too many faults were found in the whole value, and adds its faults to
// those found.
type part struct {
	schema *spec.Schema
	found  *int
	create func(*spec.Schema) validate.ValueValidator
}

func (p part) SetPath(string)                 {}
func (p part) Applies(any, reflect.Kind) bool { return true }

func (p part) Validate(value any) *validate.Result {
	if *p.found > mostFaults {
		return nil
	}
	schema := p.schema
	if len(schema.Enum) > 0 && listed(schema.Enum, value) {
		// Kubernetes' validator takes a microsecond for each value of an enum: minutes for 300,000 items.
		listed := *schema
		listed.Enum = nil
		schema = &listed
	}
	result := p.create(schema).Validate(value)
	if result == nil {
		return nil
	}
	// Without a cut each level of nesting would add its own faults.
	result.Errors = result.Errors[:min(len(result.Errors), mostFaults+1)]
	// These are faults that the old value has. They are not reported, and would be compared with each other.
	result.Warnings = nil
	*p.found += len(result.Errors)
	return result
}

// listed reports whether a value is certainly in an enum.
func listed(enum []any, value any) bool {
	switch value.(type) {
	case string, bool, int64, float64:
		return slices.Contains(enum, value)
	}
	return false
}
