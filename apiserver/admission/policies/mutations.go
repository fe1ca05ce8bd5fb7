package policies

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"google.golang.org/protobuf/types/known/structpb"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/sampan-io/sampan/apiserver/patch"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/admissioncel"
)

// Types has the schemas of objects: [openapi.Types].
type Types interface {
	Of(kind *catalog.Kind, obj runtime.Object) typed.ParseableType
}

// mutations is the part of a mutating policy that other policies lack.
type mutations struct {
	changes  []change
	reinvoke bool // if something else changed the object afterwards
}

// A change is a compiled spec.mutations item.
type change struct {
	program admissioncel.Program
	patch   func(t Types, obj runtime.Object, kind *catalog.Kind, result ref.Val) (runtime.Object, error)
}

func compileMutating(p *admissionregistrationv1.MutatingAdmissionPolicy) *policy[mutations] {
	spec := p.Spec.DeepCopy()
	c := admissioncel.NewPolicyCompiler(admissioncel.Stored)
	d := admissioncel.Declarations{Params: spec.ParamKind != nil, Authorizer: true}
	for _, v := range spec.Variables {
		c.Define(v.Name, v.Expression, d)
	}
	out := &policy[mutations]{
		name: p.Name, params: spec.ParamKind,
		ignore:  spec.FailurePolicy != nil && *spec.FailurePolicy == admissionregistrationv1.Ignore,
		matcher: matcherOf(spec.MatchConstraints, false), conditions: c.Conditions(spec.MatchConditions, d),
	}
	out.body.reinvoke = spec.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy
	d.Patches = true
	for _, m := range spec.Mutations {
		switch {
		case m.PatchType == admissionregistrationv1.PatchTypeJSONPatch && m.JSONPatch != nil:
			out.body.changes = append(out.body.changes, change{c.Compile(m.JSONPatch.Expression, d, admissioncel.JSONPatches), applyPatch})
		case m.PatchType == admissionregistrationv1.PatchTypeApplyConfiguration && m.ApplyConfiguration != nil:
			out.body.changes = append(out.body.changes, change{c.Compile(m.ApplyConfiguration.Expression, d, admissioncel.AppliedObject), applyConfiguration})
		}
	}
	out.variables = c.Variables()
	return out
}

// Bounds of a JSON patch, which are those of a request. Package patch bounds the results of its copies.
const (
	maxOperations = 10_000
	maxPatched    = 3 << 20 // bytes of the object afterwards
)

// applyPatch applies a list of JSONPatch{}. A patch one of whose tests fails changes nothing.
func applyPatch(_ Types, obj runtime.Object, _ *catalog.Kind, result ref.Val) (runtime.Object, error) {
	operations, err := patchOf(result)
	if err != nil || len(operations) == 0 {
		return obj, err
	}
	before, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("failed to create JSON patch: %w", err)
	}
	after, err := patch.ApplyOperations(operations, before)
	switch {
	case errors.Is(err, jsonpatch.ErrTestFailed):
		return obj, nil
	case err != nil:
		return nil, fmt.Errorf("JSON Patch: %w", err)
	case len(after) > maxPatched:
		return nil, fmt.Errorf("JSON Patch: the object would have %d bytes, at most %d are allowed", len(after), maxPatched)
	}
	return decode(obj, after)
}

// decode reads JSON as an object of the same type as obj.
func decode(obj runtime.Object, text []byte) (runtime.Object, error) {
	if _, ok := obj.(*unstructured.Unstructured); ok {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(text); err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		return u, nil
	}
	out, ok := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(runtime.Object)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("a %T cannot be made", obj))
	}
	strict, err := kjson.UnmarshalStrict(text, out)
	if err == nil {
		err = errors.Join(strict...)
	}
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return out, nil
}

// patchOf converts the result of an expression to a JSON patch.
func patchOf(result ref.Val) (jsonpatch.Patch, error) {
	list, ok := result.(traits.Lister)
	if !ok {
		return nil, errors.New("type mismatch: JSONPatchType.expression should evaluate to array")
	}
	operations := jsonpatch.Patch{}
	for it := list.Iterator(); it.HasNext().Value() == true; {
		item := it.Next()
		op, ok := item.(*mutation.JSONPatchVal)
		if !ok {
			return nil, fmt.Errorf("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch, got element of %T", item)
		}
		operation := jsonpatch.Operation{"op": quoted(op.Op), "path": quoted(op.Path)}
		if op.From != "" {
			operation["from"] = quoted(op.From)
		}
		if op.Val != nil {
			text, err := jsonOf(op.Val)
			if err != nil {
				return nil, err
			}
			operation["value"] = &text
		}
		if operations = append(operations, operation); len(operations) > maxOperations {
			return nil, fmt.Errorf("JSON Patch: more than %d operations", maxOperations)
		}
	}
	return operations, nil
}

func quoted(s string) *json.RawMessage {
	text, _ := json.Marshal(s) // a string always can
	return (*json.RawMessage)(&text)
}

// jsonOf converts a value of CEL to JSON.
func jsonOf(v ref.Val) (json.RawMessage, error) {
	if o, ok := v.(*dynamic.ObjectVal); ok {
		if err := o.CheckTypeNamesMatchFieldPathNames(); err != nil {
			return nil, fmt.Errorf("type mismatch: %w", err)
		}
	}
	native, err := v.ConvertToNative(reflect.TypeFor[*structpb.Value]())
	if err == nil {
		var text []byte
		if text, err = json.Marshal(native); err == nil {
			return text, nil
		}
	}
	return nil, fmt.Errorf("JSONPath valueExpression evaluated to a type that could not marshal to JSON: %w", err)
}

// applyConfiguration merges Object{} into the object by the type of the object.
func applyConfiguration(types Types, obj runtime.Object, kind *catalog.Kind, result ref.Val) (runtime.Object, error) {
	applied, ok := result.(*dynamic.ObjectVal)
	if !ok {
		return nil, fmt.Errorf("unsupported return type from ApplyConfiguration expression: %v", result.Type())
	}
	if err := applied.CheckTypeNamesMatchFieldPathNames(); err != nil {
		return nil, fmt.Errorf("type mismatch: %w", err)
	}
	fields, ok := applied.Value().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("invalid return type: %T", result)
	}
	config := &unstructured.Unstructured{Object: fields}
	config.SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
	merged, err := merge(types.Of(kind, obj), obj, config)
	if err != nil {
		return nil, fmt.Errorf("error applying patch: %w", err)
	}
	text, err := json.Marshal(merged)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return decode(obj, text)
}

func merge(typ typed.ParseableType, obj runtime.Object, config *unstructured.Unstructured) (any, error) {
	patch, err := typ.FromUnstructured(config.Object)
	if err != nil {
		return nil, fmt.Errorf("failed to convert patch object to typed object: %w", err)
	}
	if found := atomics(patch.Schema(), patch.TypeRef(), patch.AsValue(), nil); len(found) > 0 {
		return nil, fmt.Errorf("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: %v", strings.Join(found, ", "))
	}
	var live *typed.TypedValue
	if u, ok := obj.(*unstructured.Unstructured); ok {
		live, err = typ.FromUnstructured(u.Object, typed.AllowDuplicates)
	} else {
		live, err = typ.FromStructured(obj, typed.AllowDuplicates)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to convert original object to typed object: %w", err)
	}
	merged, err := live.Merge(patch)
	if err != nil {
		return nil, fmt.Errorf("failed to merge patch: %w", err)
	}
	return merged.AsValue().Unstructured(), nil
}

// atomics returns the fields of a configuration that can only be set as a whole, where a policy would remove what it does not name.
func atomics(s *smd.Schema, of smd.TypeRef, v value.Value, at fieldpath.Path) (found []string) {
	atom, ok := s.Resolve(of)
	if !ok {
		return nil // the value was checked against the type before
	}
	switch {
	case v.IsMap() && atom.Map != nil:
		if atom.Map.ElementRelationship == smd.Atomic {
			found = append(found, at.String())
		}
		v.AsMap().Iterate(func(key string, field value.Value) bool {
			if known, ok := atom.Map.FindField(key); ok {
				found = append(found, atomics(s, known.Type, field, append(at, fieldpath.PathElement{FieldName: &key}))...)
			}
			return true
		})
	case v.IsList() && atom.List != nil:
		if atom.List.ElementRelationship == smd.Atomic {
			found = append(found, at.String())
		}
		list := v.AsList()
		for i := range list.Length() {
			found = append(found, atomics(s, atom.List.ElementType, list.At(i), append(at, fieldpath.PathElement{Index: &i}))...)
		}
	}
	return found
}
