package codec

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"weak"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	validation "k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/typedjson"
	"github.com/sampan-io/sampan/store"
)

// An object without a Go type, a custom resource, has the second form of objects. Its record is its JSON, with sorted
// members and without a resource version. The item keeps the record, which is also the answer to readers once the version
// is spliced in; the decoded object, which takes ten times the memory, lasts as long as it is in use.
//
// The definition of the kind can change at any time, and when a store is opened no definition is known yet. So the item
// does not know its kind: its record says in which version it was written. [Shown] makes of it the object that a
// definition describes, and the item remembers that.
type untyped struct {
	text []byte                     // the record
	made weak.Pointer[catalog.Kind] // the hub under whose definition the record was made; zero if that is not known

	stored []byte // the record in the store of which text is made; nil if that is text

	loose weak.Pointer[unstructured.Unstructured] // the decoded object; guarded by mu of the item once it is placed

	// What the object is by later definitions and in other versions; guarded by mu of the item.
	hub   *Item
	hubOf weak.Pointer[catalog.Kind]
	views []view
}

// A view is an item in a version that is not stored, for as long as it is in use: watchers of one event share it.
type view struct {
	of   weak.Pointer[catalog.Kind]
	item weak.Pointer[Item]
}

// mostViews is more than the versions in which clients read at the same time.
const mostViews = 8

// deepestRecord is how many levels a record can have: those of a client's object, and its managed fields. A record that is
// not decoded any more would be lost.
const deepestRecord = deepestUntyped + 50

// newUntyped is [NewItem] for an object without a Go type.
func newUntyped(kind *catalog.Kind, obj *unstructured.Unstructured) (*Item, error) {
	text, err := record(obj)
	if err == nil {
		err = checkExtent(text, deepestRecord, math.MaxInt)
	}
	if err != nil {
		return nil, cannotBeHandled(kind.GroupVersionKind, kind.GroupVersionKind, err)
	}
	return &Item{mark: markOf(obj), untyped: &untyped{text: text, made: weak.Make(kind), loose: weak.Make(obj)}}, nil
}

// record encodes an object, and takes out its resource version.
func record(obj *unstructured.Unstructured) ([]byte, error) {
	if _, ok := obj.Object["metadata"].(map[string]any); !ok {
		return nil, errors.New("the object has no metadata")
	}
	unstructured.RemoveNestedField(obj.Object, "metadata", "resourceVersion")
	return typedjson.MarshalContent(obj.Object)
}

// loadUntyped is [LoadItem] for a kind that may not be known yet.
func loadUntyped(data []byte) (*Item, error) {
	obj, err := decodeUntyped(data)
	if err != nil {
		return nil, err
	}
	return &Item{mark: markOf(obj), untyped: &untyped{text: data}}, nil
}

// isUntyped reports whether a record is the JSON of an object.
func isUntyped(data []byte) bool { return len(data) > 0 && data[0] == '{' }

func decodeUntyped(text []byte) (*unstructured.Unstructured, error) {
	content, ok := typedjson.UnmarshalContent(text)
	if !ok {
		content = nil
		if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &content); err != nil {
			return nil, err
		}
	}
	obj := &unstructured.Unstructured{Object: content}
	if _, ok := content["metadata"].(map[string]any); !ok || obj.GetAPIVersion() == "" || obj.GetKind() == "" {
		return nil, errors.New("the record has no apiVersion, kind or metadata")
	}
	return obj, nil
}

// root returns the item that holds the object.
func (i *Item) root() *Item {
	for i.before != nil {
		i = i.before
	}
	return i
}

// decoded returns a copy of the object of an item without a Go type.
func (i *Item) decoded() *unstructured.Unstructured {
	obj, err := decodeUntyped(i.root().untyped.text)
	if err != nil {
		panic(fmt.Sprintf("codec: a stored record does not decode any more: %v", err)) // it has been encoded or decoded before
	}
	obj.SetResourceVersion(i.rv)
	return obj
}

// shared returns the decoded object of an item without a Go type. The caller holds mu.
func (i *Item) shared() *unstructured.Unstructured {
	if obj := i.untyped.loose.Value(); obj != nil {
		return obj
	}
	obj := i.decoded()
	i.untyped.loose = weak.Make(obj)
	return obj
}

// labelsOf returns the labels in the record of an object without a Go type.
func labelsOf(text []byte) map[string]string {
	at, end, err := jsonMember(text, 0, "metadata")
	if err != nil || at < 0 {
		return nil
	}
	from, to, err := jsonMember(text[:end], at, "labels")
	if err != nil || from < 0 {
		return nil
	}
	var labels map[string]string
	if json.Unmarshal(text[from:to], &labels) != nil {
		return nil // an object of a client that wrote them is refused
	}
	return labels
}

// In returns the item as an object of one of the versions of its kind, as the definition of that says now: see [Shown].
func (i *Item) In(ctx context.Context, kind *catalog.Kind) (*Item, error) {
	if !kind.Untyped() {
		return i.in(kind)
	}
	if known := i.known(kind); known != nil {
		return known, nil
	}
	shown, err := Shown(ctx, kind, []*Item{i})
	if err != nil {
		return nil, err
	}
	return shown[0], nil
}

// Shown returns items as objects of one of the versions of their kind, in the same order. Objects without a Go type that are
// stored in other versions are converted together, by one call of a webhook if the definition has one. The error is an
// API status error.
func Shown(ctx context.Context, kind *catalog.Kind, items []*Item) ([]*Item, error) {
	out := make([]*Item, len(items))
	var others []int // of which the version differs
	var objs []catalog.Object
	for n, i := range items {
		if !kind.Untyped() {
			var err error
			if out[n], err = i.in(kind); err != nil {
				return nil, err
			}
			continue
		}
		if out[n] = i.known(kind); out[n] != nil {
			continue
		}
		obj := i.decoded()
		gv := obj.GroupVersionKind().GroupVersion()
		if from := kind.In(gv); from != nil {
			if err := from.Restore(obj); err != nil {
				out[n] = i.faulty(err)
				continue
			}
		}
		if gv != kind.GroupVersion() {
			others, objs = append(others, n), append(objs, obj)
			continue
		}
		out[n] = i.remember(kind, obj)
	}
	if len(others) == 0 {
		return out, nil
	}
	converted, err := kind.Hub().Convert(ctx, objs, kind.GroupVersion())
	if err == nil && len(converted) != len(objs) {
		err = fmt.Errorf("conversion of %s returned %d objects, expected %d", kind.GroupVersionKind, len(converted), len(objs))
	}
	if err != nil {
		return nil, conversionFault(err)
	}
	for at, n := range others {
		obj, ok := converted[at].(*unstructured.Unstructured)
		if !ok {
			return nil, conversionFault(fmt.Errorf("conversion of %s returned a %T", kind.GroupVersionKind, converted[at]))
		}
		if err := kind.Restore(obj); err != nil {
			out[n] = items[n].faulty(err)
			continue
		}
		out[n] = items[n].remember(kind, obj)
	}
	return out, nil
}

// conversionFault returns the answer to a request whose objects cannot be converted. It is as upstream's: without a reason.
func conversionFault(err error) error {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return err
	}
	return status(http.StatusInternalServerError, metav1.StatusReasonUnknown, err.Error())
}

// known returns the item in the version of kind if that needs no work: it was made so, or asked for before. Records that
// cannot be read are the same in every version.
func (i *Item) known(kind *catalog.Kind) *Item {
	r := i.root()
	if r.untyped == nil || r.fault != nil {
		return i
	}
	shown := r
	if of := weak.Make(kind); r.untyped.made != of {
		r.mu.Lock()
		shown = r.untyped.find(of)
		r.mu.Unlock()
	}
	return i.restated(shown)
}

// record returns the bytes in the store.
func (u *untyped) record() []byte {
	if u.stored != nil {
		return u.stored
	}
	return u.text
}

func (u *untyped) find(of weak.Pointer[catalog.Kind]) *Item {
	if u.hubOf == of {
		return u.hub
	}
	for _, v := range u.views {
		if v.of == of {
			return v.item.Value()
		}
	}
	return nil
}

// restated returns shown, which is of the root of i, as of the revision of i.
func (i *Item) restated(shown *Item) *Item {
	if shown == nil || i.before == nil {
		return shown
	}
	if shown == i.root() {
		return i
	}
	r := shown.Restate()
	r.created, r.revision, r.rv = i.created, i.revision, i.rv
	return r
}

// remember returns the item of obj, which is what i is in the version of kind.
func (i *Item) remember(kind *catalog.Kind, obj *unstructured.Unstructured) *Item {
	r := i.root()
	obj.SetGroupVersionKind(kind.GroupVersionKind)
	text, err := record(obj)
	if err != nil {
		return i.faulty(err)
	}
	if bytes.Equal(text, r.untyped.text) {
		text = r.untyped.text
	}
	obj.SetResourceVersion(r.rv)
	of := weak.Make(kind)
	shown := &Item{created: r.created, revision: r.revision, rv: r.rv, untyped: &untyped{text: text, made: of, stored: r.untyped.record(), loose: weak.Make(obj)}}
	r.mu.Lock()
	defer r.mu.Unlock()
	if other := r.untyped.find(of); other != nil {
		return i.restated(other)
	}
	if kind.Hub() == kind {
		r.untyped.hub, r.untyped.hubOf = shown, of
		return i.restated(shown)
	}
	r.untyped.views = slices.DeleteFunc(r.untyped.views, func(v view) bool { return v.item.Value() == nil })
	if len(r.untyped.views) >= mostViews {
		r.untyped.views = r.untyped.views[:0]
	}
	r.untyped.views = append(r.untyped.views, view{of, weak.Make(shown)})
	return i.restated(shown)
}

// faulty returns an item that cannot be shown, with its own object as the stand-in.
func (i *Item) faulty(err error) *Item {
	var obj catalog.Object = i.decoded()
	f := &Item{created: i.created, revision: i.revision, rv: i.rv, fault: err, untyped: &untyped{text: i.root().untyped.text}}
	f.obj.Store(&obj)
	return f
}

// ItemOf returns the item of a store's value of the kind. A record that was written when the key belonged to another kind
// is an item with a [Item.Fault].
func ItemOf(kind *catalog.Kind, key string, v store.Value) *Item {
	if i, ok := v.(*Item); ok {
		return i
	}
	return badItem(kind, key, v.Bytes(), errors.New("the record is not of a custom resource"))
}

// decodeBody is [Decode] for an object without a Go type. Whether its fields are known is not its concern: see
// [catalog.Kind.Coerce].
func (e Encoding) decodeBody(ctx context.Context, body []byte, obj *unstructured.Unstructured, want schema.GroupVersionKind, v Validation) (warnings []string, err error) {
	var faults []error
	switch e {
	case Protobuf:
		return nil, UnsupportedMediaType("the body of the request was in an unknown format - accepted media types include: " + TypeJSON + ", " + TypeYAML)
	case YAML:
		body, faults, err = fromYAML(ctx, body, v)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			return nil, cannotBeHandled(want, want, err)
		}
	case JSON:
	}
	if err := checkExtent(body, deepestUntyped, math.MaxInt); err != nil {
		return nil, cannotBeHandled(want, want, err)
	}
	content, ok := typedjson.UnmarshalContent(body)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if ok {
		// The content is complete.
	} else if content = nil; v == Ignore {
		err = kjson.UnmarshalCaseSensitivePreserveInts(body, &content)
	} else {
		var more []error
		more, err = kjson.UnmarshalStrict(body, &content)
		faults = append(faults, more...)
	}
	if err != nil {
		return nil, cannotBeHandled(want, want, err)
	}
	if content == nil {
		content = map[string]any{}
	}
	obj.Object = content
	if err := checkType(obj, want); err != nil {
		return nil, err
	}
	if len(faults) > 0 && v == Strict {
		return nil, cannotBeHandled(want, want, runtime.NewStrictDecodingError(faults))
	}
	for _, f := range faults {
		warnings = append(warnings, f.Error())
	}
	obj.SetGroupVersionKind(want)
	if _, ok := content["metadata"].(map[string]any); !ok {
		if content["metadata"] != nil {
			return nil, cannotBeHandled(want, want, errors.New("metadata is not an object"))
		}
		content["metadata"] = map[string]any{}
	}
	return warnings, nil
}

// checkType compares the kind that a body names with the one that the path takes.
func checkType(obj *unstructured.Unstructured, want schema.GroupVersionKind) error {
	for _, name := range []string{"apiVersion", "kind"} {
		if value, found := obj.Object[name]; found {
			if _, ok := value.(string); !ok {
				return cannotBeHandled(want, want, fmt.Errorf("%s is not a string", name))
			}
		}
	}
	if version := obj.GetAPIVersion(); version != "" && version != want.GroupVersion().String() {
		gv, err := schema.ParseGroupVersion(version)
		if err != nil {
			return cannotBeHandled(want, want, err)
		}
		return apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", gv, want.GroupVersion()))
	}
	if kind := obj.GetKind(); kind != "" && kind != want.Kind {
		return apierrors.NewInvalid(want.GroupKind(), obj.GetName(), validation.ErrorList{validation.Invalid(validation.NewPath("kind"), kind, "must be "+want.Kind)})
	}
	return nil
}

// UnknownFields turns the paths of unknown fields into warnings, or into an error if v is Strict.
func UnknownFields(paths []string, gvk schema.GroupVersionKind, v Validation) (warnings []string, err error) {
	if len(paths) == 0 || v == Ignore {
		return nil, nil
	}
	var faults []error
	for _, p := range paths {
		warnings = append(warnings, fmt.Sprintf("unknown field %q", p))
		faults = append(faults, fmt.Errorf("unknown field %q", p))
	}
	if v == Strict {
		return nil, cannotBeHandled(gvk, gvk, runtime.NewStrictDecodingError(faults))
	}
	return warnings, nil
}

// normalized returns a copy of an object without a Go type as it comes out of its JSON. The caller may have given it values
// that no decoder makes.
func normalized(obj *unstructured.Unstructured) (map[string]any, error) {
	b, err := typedjson.MarshalContent(obj.Object)
	if err != nil {
		return nil, err
	}
	content, ok := typedjson.UnmarshalContent(b)
	if ok {
		return content, nil
	}
	content = nil
	err = kjson.UnmarshalCaseSensitivePreserveInts(b, &content)
	return content, err
}

// standIn returns an object for a record of a kind without a Go type that cannot be read, with the names in its key.
func standIn(key string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	parts := strings.Split(key, "/")
	if obj.SetName(parts[len(parts)-1]); len(parts) == 3 {
		obj.SetNamespace(parts[1])
	}
	return obj
}
