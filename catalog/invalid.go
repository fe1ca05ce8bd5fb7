package catalog

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// mostReported is how many of the errors of an object an answer has. The library composes the text in a time that grows with the
// square of their number, and an object of 3 MB can have a million: an hour, and gigabytes.
const mostReported = 200

// Invalid returns the status error of an object that is not valid: the first errors, and how many more there are.
func Invalid(kind schema.GroupKind, name string, errs field.ErrorList) *apierrors.StatusError {
	err := apierrors.NewInvalid(kind, name, errs[:min(len(errs), mostReported)])
	if more := len(errs) - mostReported; more > 0 {
		err.ErrStatus.Message += fmt.Sprintf(" and %d more errors", more)
	}
	return err
}
