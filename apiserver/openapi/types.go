package openapi

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/validation/spec"
	kjson "sigs.k8s.io/json"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/sampan-io/sampan/catalog"
)

// Types says how objects of the served kinds are merged and compared field by field: the models of
// the documents as types of structured-merge-diff. It is safe for concurrent use.
//
// The types of a group version are made when they are first needed, and dropped by the garbage
// collector when they are no longer in use: an idle server has none.
type Types struct {
	catalog *catalog.Catalog

	mu    sync.Mutex
	kinds *catalog.Snapshot                                  // guarded by mu; whose types are built
	built map[schema.GroupVersion]weak.Pointer[typed.Parser] // guarded by mu; of kinds with Go types

	schemas map[*catalog.Kind]weak.Pointer[typed.Parser] // guarded by mu; of the others
}

// NewTypes returns the types of the kinds of c.
func NewTypes(c *catalog.Catalog) *Types {
	return &Types{catalog: c}
}

// Of returns the type of obj: an object of a kind of gv, or the body of a
// subresource of one.
func (t *Types) Of(kind *catalog.Kind, obj runtime.Object) typed.ParseableType {
	switch _, untyped := obj.(*unstructured.Unstructured); {
	case untyped:
		return t.untyped(kind).Type(untypedName)
	case kind.Untyped(): // a body that many kinds have
		ms := models{}
		ms.of(reflect.TypeOf(obj))
		ms.mark()
		p := &typed.Parser{Schema: smd.Schema{Types: ms.types()}}
		return p.Type(modelName(reflect.TypeOf(obj).Elem()))
	}
	return t.parser(kind.GroupVersion()).Type(modelName(reflect.TypeOf(obj).Elem()))
}

// untypedName is the name of the type of the objects of a kind without a Go type.
const untypedName = "object"

// untyped returns the types of a kind without a Go type, from its schema.
func (t *Types) untyped(kind *catalog.Kind) *typed.Parser {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.follow()
	if p := t.schemas[kind].Value(); p != nil {
		return p
	}
	ms := models{}
	ms.of(reflect.TypeFor[metav1.ObjectMeta]())
	ms.mark()
	types := ms.types()
	whole := custom(kind)
	made, err := schemaconv.ToSchemaFromOpenAPI(map[string]*spec.Schema{untypedName: whole}, false)
	if err == nil {
		for _, def := range made.Types {
			if def.Name == untypedName {
				types = append(types, def)
			}
		}
	} else { // what the schema of a definition admits has been checked before
		types = append(types, smd.TypeDef{Name: untypedName, Atom: untyped(untypedDeduced, smd.Separable)})
	}
	p := &typed.Parser{Schema: smd.Schema{Types: types}}
	t.schemas[kind] = weak.Make(p)
	return p
}

// follow forgets the types that a newer catalog may not have any more. The caller holds mu.
func (t *Types) follow() {
	kinds := t.catalog.Snapshot()
	if t.kinds == kinds {
		return
	}
	if t.kinds == nil || t.kinds.Scheme() != kinds.Scheme() {
		t.built = map[schema.GroupVersion]weak.Pointer[typed.Parser]{}
	}
	t.kinds, t.schemas = kinds, map[*catalog.Kind]weak.Pointer[typed.Parser]{}
}

func (t *Types) parser(gv schema.GroupVersion) *typed.Parser {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.follow()
	if p := t.built[gv].Value(); p != nil {
		return p
	}
	ms := models{}
	for _, k := range t.kinds.Kinds() {
		if k.GroupVersion() != gv || k.Answered() || k.Untyped() {
			continue
		}
		ms.of(reflect.TypeOf(k.New()))
		for _, s := range k.Subresources {
			if b := s.Body(); b != nil {
				ms.of(reflect.TypeOf(b.New()))
			}
		}
	}
	ms.mark()
	p := &typed.Parser{Schema: smd.Schema{Types: ms.types()}}
	t.built[gv] = weak.Make(p)
	return p
}

// The types of what no model describes: all of it at once, and field by field.
const (
	untypedAtomic  = "__untyped_atomic_"
	untypedDeduced = "__untyped_deduced_"
)

// types returns the models as types, sorted by name.
func (ms models) types() []smd.TypeDef {
	var types []smd.TypeDef
	for _, name := range slices.Sorted(maps.Keys(ms)) {
		types = append(types, smd.TypeDef{Name: name, Atom: ms[name].atom()})
	}
	return append(types,
		smd.TypeDef{Name: untypedAtomic, Atom: untyped(untypedAtomic, smd.Atomic)},
		smd.TypeDef{Name: untypedDeduced, Atom: untyped(untypedDeduced, smd.Separable)},
	)
}

// untyped is the schema of any value; members are of the named type.
func untyped(members string, relation smd.ElementRelationship) smd.Atom {
	return smd.Atom{
		Scalar: new(smd.Untyped),
		List:   &smd.List{ElementType: smd.TypeRef{NamedType: new(untypedAtomic)}, ElementRelationship: smd.Atomic},
		Map:    &smd.Map{ElementType: smd.TypeRef{NamedType: &members}, ElementRelationship: relation},
	}
}

// atom returns what values of the model are.
func (m *model) atom() smd.Atom {
	switch m.Type {
	case "array":
		l := &smd.List{ElementType: m.Items.ref(), ElementRelationship: smd.Atomic}
		if m.ListType == "map" || m.ListType == "set" {
			l.ElementRelationship, l.Keys = smd.Associative, m.ListKeys
		}
		return smd.Atom{List: l}
	case "object":
		o := &smd.Map{ElementRelationship: relation(m.MapType)}
		for _, name := range slices.Sorted(maps.Keys(m.Properties)) {
			p := m.Properties[name]
			o.Fields = append(o.Fields, smd.StructField{Name: name, Type: p.ref(), Default: p.defaultValue()})
		}
		switch {
		case m.Additional != nil:
			o.ElementType = m.Additional.ref()
		case len(m.Properties) == 0:
			o.ElementType = smd.TypeRef{Inlined: untyped(untypedDeduced, smd.Separable)}
		}
		return smd.Atom{Map: o}
	case "integer", "number":
		return smd.Atom{Scalar: new(smd.Numeric)}
	case "boolean":
		return smd.Atom{Scalar: new(smd.Boolean)}
	case "string":
		if m.Format == "date-time" || m.Format == "int-or-string" {
			return smd.Atom{Scalar: new(smd.Untyped)}
		}
		return smd.Atom{Scalar: new(smd.String)}
	}
	if len(m.OneOf) > 0 {
		return smd.Atom{Scalar: new(smd.Untyped)}
	}
	return untyped(untypedDeduced, smd.Separable)
}

// ref returns a reference to the type of the model, or the type itself if it has no
// name.
func (m *model) ref() smd.TypeRef {
	to := m.Ref
	if len(m.AllOf) == 1 {
		to = m.AllOf[0].Ref
	}
	if m.opaque {
		return smd.TypeRef{NamedType: new(untypedAtomic)}
	}
	if to == "" {
		return smd.TypeRef{Inlined: m.atom()}
	}
	r := smd.TypeRef{NamedType: new(strings.TrimPrefix(to, schemaRef))}
	if m.MapType != "" {
		r.ElementRelationship = new(relation(m.MapType))
	}
	return r
}

func relation(mapType string) smd.ElementRelationship {
	switch mapType {
	case "atomic":
		return smd.Atomic
	case "granular":
		return smd.Separable
	}
	return "" // which means the latter
}

// defaultValue returns the value that the marks give a field, or nil.
func (m *model) defaultValue() any {
	if m.Default == nil {
		return nil
	}
	var v any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(m.Default, &v); err != nil {
		panic(fmt.Sprintf("openapi: the default %s: %v", m.Default, err)) // a test reads the same lines
	}
	return v
}
