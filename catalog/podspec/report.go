package podspec

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A report collects faults.
type report struct{ errs field.ErrorList }

func (r *report) add(errs ...*field.Error) { r.errs = append(r.errs, errs...) }

func (r *report) required(at where) { r.add(field.Required(at.path, "")) }

func (r *report) invalid(at where, value any, why string) {
	r.add(field.Invalid(at.path, value, why))
}

func (r *report) forbidden(at where, why string) { r.add(field.Forbidden(at.path, why)) }

// each adds a fault for each sentence about a fault of value.
func (r *report) each(at where, value any, sentences []string) {
	for _, s := range sentences {
		r.invalid(at, value, s)
	}
}

// name checks a name that has to be there.
func (r *report) name(at where, value string, rule func(string) []string) {
	if value == "" {
		r.required(at)
		return
	}
	if sentences := rule(value); len(sentences) > 0 { // in an interface value would take memory
		r.each(at, value, sentences)
	}
}

// supported checks that value, if it is there, is one of those.
func supported[T ~string](r *report, at where, value T, those ...T) {
	if value != "" && !slices.Contains(those, value) {
		r.add(field.NotSupported(at.path, value, those))
	}
}

// requiredOf checks that value is there and one of those.
func requiredOf[T ~string](r *report, at where, value T, those ...T) {
	if value == "" {
		r.required(at)
		return
	}
	supported(r, at, value, those...)
}
