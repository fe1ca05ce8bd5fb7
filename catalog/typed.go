package catalog

import (
	"context"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The functions of a [Kind] take any object. The functions below make them from
// functions of one Go type, so that a kind's file is written without type
// assertions. Where there is no old object, old is nil.

// Default makes a [Kind.Default] (or [Kind.Terminating]) of f.
func Default[T Object](f func(obj T)) func(Object) {
	return func(obj Object) { f(obj.(T)) }
}

// Prepare makes a [Kind.Prepare] or [Part.Prepare] of f.
func Prepare[T Object](f func(obj, old T)) func(obj, old Object) {
	return func(obj, old Object) { f(obj.(T), orNil[T](old)) }
}

// Validate makes a [Kind.Validate] or [Part.Validate] of f.
func Validate[T Object](f func(obj, old T) field.ErrorList) func(ctx context.Context, obj, old Object) field.ErrorList {
	return func(_ context.Context, obj, old Object) field.ErrorList { return f(obj.(T), orNil[T](old)) }
}

// Warn makes a [Kind.Warn] of f.
func Warn[T Object](f func(obj T) []string) func(obj, old Object) []string {
	return func(obj, _ Object) []string { return f(obj.(T)) }
}

// WarnChange makes a [Kind.Warn] of f, whose old is the zero T in a creation.
func WarnChange[T Object](f func(obj, old T) []string) func(obj, old Object) []string {
	return func(obj, old Object) []string { return f(obj.(T), orNil[T](old)) }
}

// Value makes one of [Kind.Fields] of f.
func Value[T Object](f func(obj T) string) func(Object) string {
	return func(obj Object) string { return f(obj.(T)) }
}

func orNil[T Object](obj Object) T {
	t, _ := obj.(T)
	return t
}
