package catalog

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// A Version is a further version, of the same or of another group, in which the objects of a kind
// are served. Objects are stored in the version of the [Kind] itself, which is the hub: all
// functions of the kind get hub objects, whatever version a client uses.
type Version struct {
	schema.GroupVersion

	New     func() Object
	NewList func() runtime.Object

	// Default fills in the fields that were left out of an object of this version, before
	// ToHub. Nil means nothing.
	Default func(obj Object)

	// ToHub and FromHub convert an object of this version to the hub and back. They do not change
	// obj; the result may share memory with it. They lose nothing: fields that the other version
	// cannot express is kept in annotations. An error is the client's fault in ToHub.
	ToHub, FromHub func(obj Object) (Object, error)

	// Validate returns the errors in an object that a client wrote in this version, beside
	// those of [Kind.Validate]. Both objects are of the hub. Nil means nothing.
	Validate func(ctx context.Context, obj, old Object) field.ErrorList

	// Whole says that Validate returns everything that is wrong, instead of what [Kind.Validate] does not say.
	Whole bool

	// Coerce is as in Kind, for an object of this version.
	Coerce func(obj Object, c Coercion) (unknown []string, err error)

	// Prepare, Warn and Subresources replace those of the kind in this version unless they are nil. Their objects are of
	// the hub.
	Prepare      func(obj, old Object)
	Warn         func(obj, old Object) []string
	Subresources []Subresource

	// Columns replace those of the kind unless they are nil. Their cells get objects of this version.
	Columns []Column

	// Selectable replaces [Kind.Fields] unless it is nil. Its functions get objects of the hub.
	Selectable map[string]func(obj Object) string

	// Deprecated is as in Kind.
	Deprecated string

	// Schema and SchemaDigest are as in Kind.
	Schema       func() *spec.Schema
	SchemaDigest string

	// Fields maps the names that field selectors use in this version to those of
	// [Kind.Fields]; nil means the same names.
	Fields map[string]string
}

// Convert makes a [Version.ToHub] or [Version.FromHub] of f.
func Convert[From, To Object](f func(obj From) (To, error)) func(Object) (Object, error) {
	return func(obj Object) (Object, error) {
		from, ok := obj.(From)
		if !ok {
			return nil, fmt.Errorf("catalog: cannot convert a %T", obj)
		}
		to, err := f(from)
		if err != nil {
			return nil, err
		}
		return to, nil
	}
}

// in returns the kind as it is served in v.
func (k *Kind) in(v *Version) *Kind {
	served := *k
	served.GroupVersionKind = v.WithKind(k.Kind)
	served.New, served.NewList = v.New, v.NewList
	served.hub, served.version, served.Versions = k, v, nil
	served.Coerce, served.Schema, served.SchemaDigest = v.Coerce, v.Schema, v.SchemaDigest
	served.Unserved, served.Deprecated = false, v.Deprecated
	v.replace(&served)
	if v.Whole {
		served.Validate = v.Validate
	} else if v.Validate != nil {
		served.Validate = func(ctx context.Context, obj, old Object) field.ErrorList {
			var errs field.ErrorList
			if k.Validate != nil {
				errs = k.Validate(ctx, obj, old)
			}
			return append(errs, v.Validate(ctx, obj, old)...)
		}
	}
	if v.Fields != nil {
		served.Fields, served.Indexed = map[string]func(Object) string{}, nil
		for name, inHub := range v.Fields {
			served.Fields[name] = k.Fields[inHub]
		}
	}
	return &served
}

// replace puts into served what v has of its own.
func (v *Version) replace(served *Kind) {
	if v.Prepare != nil {
		served.Prepare = v.Prepare
	}
	if v.Warn != nil {
		served.Warn = v.Warn
	}
	if v.Subresources != nil {
		served.Subresources = v.Subresources
	}
	if v.Columns != nil {
		served.Columns = v.Columns
	}
	if v.Selectable != nil {
		served.Fields, served.Indexed = v.Selectable, nil
	}
}

// Hub returns the kind in the version in which its objects are stored: k itself, unless k is one
// of the [Kind.Versions] of another.
func (k *Kind) Hub() *Kind {
	if k.hub != nil {
		return k.hub
	}
	return k
}

// Served returns the kind in all versions that a catalog serves it in, the hub first if it is served.
func (k *Kind) Served() []*Kind {
	hub := k.Hub()
	if hub.Unserved {
		return slices.Clone(hub.further)
	}
	return append([]*Kind{hub}, hub.further...)
}

// ToHub returns obj, which is of the version of k, as an object of the hub.
func (k *Kind) ToHub(obj Object) (Object, error) {
	if k.hub == nil {
		return obj, nil
	}
	out, err := k.version.ToHub(obj)
	if err != nil {
		return nil, fmt.Errorf("converting a %s from %s: %w", k.Kind, k.GroupVersion(), err)
	}
	out.GetObjectKind().SetGroupVersionKind(k.hub.GroupVersionKind)
	return out, nil
}

// FromHub returns obj, which is of the hub, as an object of the version of k.
func (k *Kind) FromHub(obj Object) (Object, error) {
	if k.hub == nil {
		return obj, nil
	}
	out, err := k.version.FromHub(obj)
	if err != nil {
		return nil, fmt.Errorf("converting a %s to %s: %w", k.Kind, k.GroupVersion(), err)
	}
	out.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	return out, nil
}

// Accept completes obj, which a client wrote in the version of k, with the defaults of that
// version, and returns it as an object of the hub, which still lacks those of [Kind.Default].
func (k *Kind) Accept(obj Object) (Object, error) {
	if k.hub == nil {
		return obj, nil
	}
	if k.version.Default != nil {
		k.version.Default(obj)
	}
	return k.ToHub(obj)
}

// Restore fits obj, which was read from the store in the version of k, to the present definition of that version.
// It is for kinds without a Go type.
func (k *Kind) Restore(obj Object) error {
	if k.Coerce != nil {
		if _, err := k.Coerce(obj, Coercion{Stored: true}); err != nil {
			return err
		}
	}
	complete := k.Default
	if k.version != nil {
		complete = k.version.Default
	}
	if complete != nil {
		complete(obj)
	}
	return nil
}

// In returns the kind in another of its versions, the hub even if it is not served, or nil.
func (k *Kind) In(gv schema.GroupVersion) *Kind {
	hub := k.Hub()
	if hub.GroupVersion() == gv {
		return hub
	}
	for _, other := range hub.further {
		if other.GroupVersion() == gv {
			return other
		}
	}
	return nil
}
