package catalog

import (
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Bounds on the answer about an object that is not valid.
const (
	// mostReported is how many of the errors of an object an answer has. The library composes the text in a time that grows with the
	// square of their number, and an object of 3 MB can have a million: an hour, and gigabytes.
	mostReported = 200

	// mostShown is how many bytes the values in the errors have together, about. Some errors of an element show the whole list: 200
	// times 2 MB.
	mostShown = 256 << 10
)

// Invalid returns the status error of an object that is not valid: the first errors, and how many more there are. Values for
// which there is no room are left out.
func Invalid(kind schema.GroupKind, name string, errs field.ErrorList) *apierrors.StatusError {
	shown := make(field.ErrorList, min(len(errs), mostReported))
	left := mostShown
	for i := range shown {
		shown[i] = errs[i]
		after := left
		if shrink(reflect.ValueOf(errs[i].BadValue), &after); after >= 0 {
			left = after
			continue
		}
		short := *errs[i]
		short.BadValue = "(a value that is too large to be shown)"
		shown[i] = &short
	}
	err := apierrors.NewInvalid(kind, name, shown)
	if more := len(errs) - mostReported; more > 0 {
		err.ErrStatus.Message += fmt.Sprintf(" and %d more errors", more)
	}
	return err
}

// shrink subtracts from left about how many bytes a value has as text. It ends when nothing is left.
func shrink(v reflect.Value, left *int) {
	*left -= 4 // signs and blanks
	if *left < 0 {
		return
	}
	switch v.Kind() {
	case reflect.String:
		*left -= v.Len()
	case reflect.Pointer, reflect.Interface:
		shrink(v.Elem(), left)
	case reflect.Struct:
		for i := 0; i < v.NumField() && *left >= 0; i++ {
			if !v.Field(i).IsZero() {
				*left -= len(v.Type().Field(i).Name)
				shrink(v.Field(i), left)
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			*left -= v.Len() * 4 / 3
			return
		}
		for i := 0; i < v.Len() && *left >= 0; i++ {
			shrink(v.Index(i), left)
		}
	case reflect.Map:
		for it := v.MapRange(); *left >= 0 && it.Next(); {
			shrink(it.Key(), left)
			shrink(it.Value(), left)
		}
	default:
	}
}
