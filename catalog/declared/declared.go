package declared

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
)

// gates has the feature gates that declared rules depend on, with the defaults of Kubernetes v1.37.
// A rule whose gate is not here is an internal error.
var gates = map[string]bool{
	"DRAPartitionableDevicesType":                  false,
	"HPAScaleToZero":                               true,
	"InPlacePodVerticalScalingSchedulerPreemption": false,
	"WorkloadWithJob":                              false,
}

// Validate returns the errors of the declared rules in obj, a pointer to a type of k8s.io/api with
// its defaults set. On an update old is the object that obj replaces, of the same type; on a creation
// it is nil. Subresource is the path of the subresource that the request is for, such as "status", or
// "" for the object itself.
//
// On an update, fields that do not change are not checked, so that an object that was stored before
// a rule existed can still be changed elsewhere.
//
// An object of a type without declared rules has no errors. An error of the type
// [field.ErrorTypeInternal] is a fault of the rules and not of the object: a panic, or a gate that
// is not known.
//
// Validate changes neither object and keeps neither. It is safe for concurrent use.
func Validate(ctx context.Context, obj, old runtime.Object, subresource string) (errs field.ErrorList) {
	op := operation.Operation{Type: operation.Create, Options: gates}
	if old != nil {
		op.Type = operation.Update
		if reflect.TypeOf(obj) != reflect.TypeOf(old) {
			return field.ErrorList{field.InternalError(nil, fmt.Errorf("declared rules: an update of a %T with a %T", old, obj))}
		}
	}
	if subresource != "" {
		op.Request.Subresources = strings.Split(subresource, "/")
	}
	defer func() {
		if fault := recover(); fault != nil {
			errs = field.ErrorList{field.InternalError(nil, fmt.Errorf("declared rules of %T: %v", obj, fault))}
		}
	}()
	return validate.FilterEnforcedDeclarativeErrors(ctx, check(ctx, op, obj, old), true)
}

// With returns rules for the objects themselves (subresource is "") or for updates through a
// subresource: those by hand, which may be nil, merged with the declared ones of the Go type.
func With(byHand func(ctx context.Context, obj, old catalog.Object) field.ErrorList, subresource string) func(ctx context.Context, obj, old catalog.Object) field.ErrorList {
	return func(ctx context.Context, obj, old catalog.Object) field.ErrorList {
		var errs field.ErrorList
		if byHand != nil {
			errs = byHand(ctx, obj, old)
		}
		var was runtime.Object // nil, not a nil pointer
		if old != nil {
			was = old
		}
		return Merge(errs, Validate(ctx, obj, was, subresource))
	}
}

// Merge joins the errors of the rules by hand and the declared rules in the same object. If both
// have an error of the same type for the same field, only one of them stays: the one by hand, or, if
// that one says so ([field.Error.MarkCoveredByDeclarative]), the declared one. The errors by hand come
// first.
//
// Upstream marks its errors and compares the origin of errors as well. Errors by hand here have
// neither marks nor origins, and their texts are those of the servers before the rule was declared,
// which users know. So one error by hand hides all declared ones of its type and field: the request
// is refused in any case.
//
// The result may be byHand itself.
func Merge(byHand, declared field.ErrorList) field.ErrorList {
	if len(declared) == 0 {
		return byHand
	}
	type fault struct {
		field string
		kind  field.ErrorType
	}
	at := func(e *field.Error) fault { return fault{e.Field, e.Type} }

	covered := map[fault]bool{} // by a declared error
	for _, e := range declared {
		covered[at(e)] = true
	}
	kept := map[fault]bool{} // by hand
	var all field.ErrorList
	for _, e := range byHand {
		if e.CoveredByDeclarative && covered[at(e)] {
			continue
		}
		all = append(all, e)
		kept[at(e)] = true
	}
	for _, e := range declared {
		if !kept[at(e)] {
			all = append(all, e)
		}
	}
	return all
}
