package codec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"weak"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/footprint"
	"github.com/sampan-io/sampan/internal/typedjson"
	"github.com/sampan-io/sampan/store"
)

// An Item is one state of one object: a [store.Value]. It never changes once the
// store has placed it, and is safe for concurrent use (E1).
type Item struct {
	kind *catalog.Kind

	// Set by Place, before any reader can see the item.
	created, revision store.Revision
	rv                string // revision in decimal; empty until placed

	untyped *untyped // of an object without a Go type, which has no kind; nil for others

	before *Item // the item that this one restates, or nil
	size   int   // bytes of memory that the object takes, see Footprint; 0 of an item that was not stored or loaded as itself
	mark   int   // bytes that the mark of a deletion will take; 0 of the same items
	fault  error // why the record is not an object; the object is then a stand-in

	mu    sync.Mutex // serialises the making of shared encodings
	obj   atomic.Pointer[catalog.Object]
	proto atomic.Pointer[encoded] // always there while obj is not
	json  atomic.Pointer[[]byte]

	// The first JSON is the answer to the writer, the first protobuf the record on disk. Usually
	// they are not needed again, so they last until the next collection. The second JSON is kept,
	// and so is the protobuf that was made a third time, until Release.
	firstJSON  weak.Pointer[[]byte]  // guarded by mu
	askedJSON  bool                  // guarded by mu; there was a first
	firstProto weak.Pointer[encoded] // guarded by mu, once there are readers

	loose      weak.Pointer[catalog.Object] // guarded by mu, once there are readers; the object of a bulky kind, whose protobuf is kept
	askedProto bool                         // guarded by mu; the first was made again
}

// An encoded is the protobuf of an object.
type encoded struct {
	data []byte // the saved form: the envelope, without a revision
	meta []byte // of the object in data: its metadata
	rest []byte // and everything after it
}

// marshaler is implemented by the generated code of API types.
type marshaler interface {
	runtime.ProtobufReverseMarshaller
	Unmarshal(data []byte) error
}

// NewItem encodes obj, which is an object of the hub of the kind and becomes the item's own: its kind is set, its resource
// version is taken out and put back when the store places the item, and it is normalized
// (E4). The error is a 400 status if obj has a value that an encoding cannot carry.
func NewItem(kind *catalog.Kind, obj catalog.Object) (*Item, error) {
	kind = kind.Hub()
	obj.GetObjectKind().SetGroupVersionKind(kind.GroupVersionKind)
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return newUntyped(kind, u)
	}
	obj.SetResourceVersion("")
	if err := Normalize(obj); err != nil {
		return nil, err
	}
	e, err := encode(kind, obj)
	if err != nil {
		return nil, err
	}
	i := &Item{kind: kind, size: footprint.Of(obj), mark: markOf(obj)}
	i.obj.Store(&obj)
	i.proto.Store(e)
	return i, nil
}

// encode encodes an object without a resource version.
func encode(kind *catalog.Kind, obj catalog.Object) (*encoded, error) {
	m, ok := obj.(marshaler)
	if !ok {
		return nil, fmt.Errorf("%T has no protobuf encoding", obj)
	}
	data, at, err := sealEnvelope(kind.GroupVersionKind.GroupVersion().String(), kind.Kind, m)
	if err != nil {
		return nil, fmt.Errorf("encoding %s %q: %w", kind.Kind, obj.GetName(), err)
	}
	e := &encoded{data: data}
	if e.meta, e.rest, err = splitBody(data[at : len(data)-len(envelopeEnd)]); err != nil {
		return nil, fmt.Errorf("encoding %s %q: %w", kind.Kind, obj.GetName(), err)
	}
	return e, nil
}

// LoadItem returns the item that was saved as data. The data is checked by decoding it; the object is kept, as that of
// a new item: components in the same process follow nearly all kinds and would have it decoded again.
func LoadItem(kind *catalog.Kind, data []byte) (*Item, error) {
	if kind.Untyped() {
		return loadUntyped(data)
	}
	body, err := openEnvelope(data)
	if err != nil {
		return nil, err
	}
	e := &encoded{data: data}
	if e.meta, e.rest, err = splitBody(body); err != nil {
		return nil, err
	}
	obj, err := decode(kind, data)
	if err != nil {
		return nil, err
	}
	i := &Item{kind: kind, size: footprint.Of(obj), mark: markOf(obj)}
	i.proto.Store(e)
	i.obj.Store(&obj)
	return i, nil
}

// deletionMark is about what deletionTimestamp, deletionGracePeriodSeconds and the finalizer of a propagation policy take in an
// object and in its encodings, in bytes.
const deletionMark = 320

// markOf returns the memory that the mark of a deletion will take, if the object has none.
func markOf(obj catalog.Object) int {
	if obj.GetDeletionTimestamp() != nil {
		return 0
	}
	return deletionMark
}

// Footprint implements [store.Sized]: the memory of the object and of one encoding, as large as the saved form, and the mark of
// a deletion: as it always succeeds, it has its memory from the beginning. An object whose protobuf is kept instead has two encodings.
func (i *Item) Footprint() int {
	r := i.root()
	if r.untyped != nil {
		return r.mark + len(r.untyped.text) + len(r.untyped.stored)
	}
	saved := 0
	if e := i.proto.Load(); e != nil {
		saved = len(e.data)
	}
	if i.keepsProto() {
		return r.mark + 2*saved
	}
	return r.mark + i.size + saved
}

// Restate returns an item with the same object that is not placed yet: the last state in a deletion
// event. Nothing is encoded or decoded again for it.
func (i *Item) Restate() *Item {
	return &Item{kind: i.kind, before: i}
}

// RestateAt returns the item as of a later revision, for the event that takes the object out of a
// watch because it no longer matches.
func (i *Item) RestateAt(revision store.Revision) *Item {
	r := i.Restate()
	r.Place(i.created, revision)
	return r
}

// in returns the item as an object of one of the versions of its kind: the item itself in the
// version that is stored, and otherwise one that is not shared. It is for items that have been placed. Those without a Go
// type must be of that version: see [Item.In].
func (i *Item) in(kind *catalog.Kind) (*Item, error) {
	if kind.Hub() == kind || kind.Untyped() {
		return i, nil
	}
	obj, err := kind.FromHub(i.Object())
	if err != nil {
		return nil, err
	}
	out := &Item{kind: kind, created: i.created, revision: i.revision, rv: i.rv}
	out.obj.Store(&obj)
	return out, nil
}

// Bytes implements [store.Value].
func (i *Item) Bytes() []byte {
	if r := i.root(); r.untyped != nil {
		return r.untyped.text
	}
	return i.encoded().data
}

// Place implements [store.Value].
func (i *Item) Place(created, revision store.Revision) {
	i.created, i.revision = created, revision
	i.rv = strconv.FormatUint(uint64(revision), 10)
	if i.untyped != nil {
		if obj := i.untyped.loose.Value(); obj != nil {
			obj.SetResourceVersion(i.rv)
		}
		return
	}
	if obj := i.obj.Load(); obj != nil {
		(*obj).SetResourceVersion(i.rv)
		if i.keepsProto() {
			i.loose = weak.Make(obj)
			i.obj.Store(nil)
			return
		}
		i.loosen()
	}
}

// keepsProto reports whether the item keeps its protobuf and lets go of its object, instead of the reverse.
func (i *Item) keepsProto() bool {
	return i.kind != nil && i.kind.Bulky && i.before == nil && i.fault == nil && i.proto.Load() != nil
}

// loosen lets go of the protobuf of an item that has its object.
func (i *Item) loosen() {
	if e := i.proto.Load(); e != nil {
		i.firstProto = weak.Make(e)
		i.proto.Store(nil)
	}
}

// encoded returns the object's protobuf, which is shared and must not be changed.
func (i *Item) encoded() *encoded {
	if i.before != nil {
		return i.before.encoded()
	}
	if e := i.proto.Load(); e != nil {
		return e
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if e := i.proto.Load(); e != nil {
		return e
	}
	if e := i.firstProto.Value(); e != nil {
		return e
	}
	e := i.mustEncode()
	if i.askedProto {
		i.proto.Store(e)
	} else {
		i.askedProto, i.firstProto = true, weak.Make(e)
	}
	return e
}

// mustEncode encodes the object. The caller holds mu.
func (i *Item) mustEncode() *encoded {
	obj := shallowCopy(i.object())
	obj.SetResourceVersion("")
	e, err := encode(i.kind, obj)
	if err != nil {
		panic(fmt.Sprintf("codec: a stored %s does not encode: %v", i.kind.Kind, err))
	}
	return e
}

// Release lets go of the encodings that are kept: of JSON, and of protobuf if the object is there. They last
// until the next collection, and are made again when they are asked for.
func (i *Item) Release() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if b := i.json.Load(); b != nil {
		i.firstJSON, i.askedJSON = weak.Make(b), false
		i.json.Store(nil)
	}
	if i.before == nil && i.untyped == nil && i.obj.Load() != nil && i.proto.Load() != nil {
		i.askedProto = false
		i.loosen()
	}
}

// Revision returns the revision that the item was placed at, or 0.
func (i *Item) Revision() store.Revision { return i.revision }

// ResourceVersion returns the revision as clients see it.
func (i *Item) ResourceVersion() string { return i.rv }

// Same reports whether both items are saved as the same bytes, whatever their revisions. Of an object in a version that is
// not stored these are not its own.
func (i *Item) Same(other *Item) bool { return bytes.Equal(i.saved(), other.saved()) }

func (i *Item) saved() []byte {
	if r := i.root(); r.untyped != nil {
		return r.untyped.record()
	}
	return i.Bytes()
}

// Object returns the decoded object, which is shared and must not be changed. Of an item
// with a [Item.Fault] it is a stand-in.
func (i *Item) Object() catalog.Object {
	if obj := i.obj.Load(); obj != nil {
		return *obj
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.untyped != nil {
		return i.shared()
	}
	return i.object()
}

// Fresh returns a copy of the object, decoded from the saved bytes, for the caller to keep. The
// shared object may have come from a client with empty lists and maps, which are not saved and
// never served.
func (i *Item) Fresh() (catalog.Object, error) {
	if i.root().untyped != nil {
		return i.decoded(), nil
	}
	obj, err := decode(i.kind, i.encoded().data)
	if err != nil {
		return nil, fmt.Errorf("decoding a stored %s: %w", i.kind.Kind, err)
	}
	obj.SetResourceVersion(i.rv)
	return obj, nil
}

// decode reads an object from its saved form.
func decode(kind *catalog.Kind, data []byte) (catalog.Object, error) {
	body, err := openEnvelope(data)
	if err != nil {
		return nil, err
	}
	obj := kind.New()
	if err := unmarshalMessage(body, obj.(marshaler)); err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(kind.GroupVersionKind)
	if kind.Default != nil {
		// As Kubernetes does it with what it reads: an older version may have left something
		// out, and the kinds of objects within objects are not saved.
		kind.Default(obj)
	}
	return obj, nil
}

// object makes the object if need be. The caller holds mu.
func (i *Item) object() catalog.Object {
	if obj := i.obj.Load(); obj != nil {
		return *obj
	}
	if loose := i.loose.Value(); loose != nil {
		return *loose
	}
	var obj catalog.Object
	if i.root().untyped != nil {
		obj = i.decoded() // of a restated item
	} else if i.before != nil {
		obj = shallowCopy(i.before.Object())
	} else {
		var err error
		if obj, err = decode(i.kind, i.proto.Load().data); err != nil {
			panic(fmt.Sprintf("codec: a stored %s does not decode any more: %v", i.kind.Kind, err)) // LoadItem has decoded it
		}
	}
	obj.SetResourceVersion(i.rv)
	if i.keepsProto() {
		i.loose = weak.Make(&obj)
		return obj
	}
	i.obj.Store(&obj)
	if i.before == nil {
		i.loosen()
	}
	return obj
}

// shallowCopy copies the struct that obj points to. The copy shares maps, slices and pointers with
// it, which is safe because shared objects are never changed.
func shallowCopy(obj catalog.Object) catalog.Object {
	from := reflect.ValueOf(obj).Elem()
	to := reflect.New(from.Type())
	to.Elem().Set(from)
	return to.Interface().(catalog.Object)
}

// JSON returns the object's JSON, which is shared and must not be changed.
func (i *Item) JSON() ([]byte, error) {
	if b := i.json.Load(); b != nil {
		return *b, nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if b := i.json.Load(); b != nil {
		return *b, nil
	}
	if b := i.firstJSON.Value(); b != nil {
		return *b, nil
	}
	b, err := i.encodeJSON()
	if err != nil {
		return nil, fmt.Errorf("encoding a stored %s: %w", i.kind.Kind, err)
	}
	if i.askedJSON && i.root().untyped == nil { // otherwise the record is there already
		i.json.Store(&b)
	} else {
		i.askedJSON, i.firstJSON = true, weak.Make(&b)
	}
	return b, nil
}

func (i *Item) encodeJSON() ([]byte, error) {
	if i.untyped != nil {
		return SpliceJSON(i.untyped.text, i.rv)
	}
	if i.before == nil {
		return typedjson.Marshal(i.object())
	}
	b, err := i.before.JSON()
	if err != nil {
		return nil, err
	}
	return SpliceJSON(b, i.rv)
}

// ProtobufSize returns the length of what [Item.AppendProtobuf] appends.
func (i *Item) ProtobufSize() int {
	return envelopeSize(i.kind.GroupVersion().String(), i.kind.Kind, i.encoded().size(i.rv))
}

// AppendProtobuf appends the object in its envelope, with its revision.
func (i *Item) AppendProtobuf(dst []byte) []byte {
	e := i.encoded()
	dst = appendEnvelopeStart(dst, i.kind.GroupVersion().String(), i.kind.Kind, e.size(i.rv))
	dst = e.append(dst, i.rv)
	return append(dst, envelopeEnd...)
}

// size returns the length of what append appends.
func (e *encoded) size(rv string) int { return splicedSize(e.meta, e.rest, rv) }

// append appends the object's protobuf with a revision, without an envelope.
func (e *encoded) append(dst []byte, rv string) []byte { return appendSpliced(dst, e.meta, e.rest, rv) }

// appendMeta appends the part of it that rest follows.
func (e *encoded) appendMeta(dst []byte, rv string) []byte { return appendSplicedMeta(dst, e.meta, rv) }

// envelopeEnd is the end of a runtime.Unknown: no content encoding, no content
// type.
const envelopeEnd = "\x1a\x00\x22\x00"

// appendEnvelopeStart appends an envelope up to the object's bytes.
func appendEnvelopeStart(dst []byte, apiVersion, kind string, body int) []byte {
	dst = append(dst, magic...)
	dst = append(dst, tagTypeMeta)
	dst = binary.AppendUvarint(dst, uint64(typeMetaSize(apiVersion, kind)))
	dst = append(dst, 1<<3|2)
	dst = binary.AppendUvarint(dst, uint64(len(apiVersion)))
	dst = append(dst, apiVersion...)
	dst = append(dst, 2<<3|2)
	dst = binary.AppendUvarint(dst, uint64(len(kind)))
	dst = append(dst, kind...)
	dst = append(dst, tagRaw)
	return binary.AppendUvarint(dst, uint64(body))
}

func typeMetaSize(apiVersion, kind string) int {
	return 1 + uvarintSize(len(apiVersion)) + len(apiVersion) + 1 + uvarintSize(len(kind)) + len(kind)
}

// envelopeSize returns the length of an envelope with a body of that length in it.
func envelopeSize(apiVersion, kind string, body int) int {
	tm := typeMetaSize(apiVersion, kind)
	return len(magic) + 1 + uvarintSize(tm) + tm + 1 + uvarintSize(body) + body + len(envelopeEnd)
}

// sealEnvelope encodes m in an envelope; its bytes start at data[at].
func sealEnvelope(apiVersion, kind string, m runtime.ProtobufReverseMarshaller) (data []byte, at int, err error) {
	return appendSealed(nil, apiVersion, kind, m)
}

// appendSealed appends m in an envelope to dst; its bytes start at data[at].
func appendSealed(dst []byte, apiVersion, kind string, m runtime.ProtobufReverseMarshaller) (data []byte, at int, err error) {
	size := m.Size()
	if all := envelopeSize(apiVersion, kind, size); cap(dst)-len(dst) < all {
		dst = append(make([]byte, 0, len(dst)+all), dst...)
	}
	data = appendEnvelopeStart(dst, apiVersion, kind, size)
	at = len(data)
	data = data[:at+size]
	n, err := m.MarshalToSizedBuffer(data[at:])
	if err != nil {
		return nil, 0, err
	}
	if n != size {
		return nil, 0, fmt.Errorf("protobuf of %d bytes where %d were announced", n, size)
	}
	return append(data, envelopeEnd...), at, nil
}

// Terms are the index terms of an item: its labels and the indexed fields of its
// kind that are not empty, as spec.nodeName is in each new pod: to find what has no
// value is not worth an entry of each; and what it holds alone. See [LabelTerm],
// [FieldTerm] and [SoleTerm]. It is the Terms
// function of a store. A record that cannot be read has none.
func Terms(_ string, v store.Value) []string {
	i, ok := v.(*Item)
	if !ok || i.fault != nil {
		return nil
	}
	labels := i.Labels()
	if i.root().untyped != nil {
		var terms []string
		for key, value := range labels {
			terms = append(terms, LabelTerm(key, value))
		}
		return terms
	}
	var held []string
	if i.kind.Sole != nil {
		held = i.kind.Sole(i.Object())
	}
	if len(labels)+len(i.kind.Indexed)+len(held) == 0 {
		return nil
	}
	terms := make([]string, 0, len(labels)+len(i.kind.Indexed)+len(held))
	for key, value := range labels {
		terms = append(terms, LabelTerm(key, value))
	}
	for _, name := range i.kind.Indexed {
		field := i.kind.Fields[name]
		if field == nil {
			continue
		}
		if value := field(i.Object()); value != "" {
			terms = append(terms, FieldTerm(name, value))
		}
	}
	for _, what := range held {
		terms = append(terms, SoleTerm(what))
	}
	return terms
}

// Claims is the Claims function of a store: what no other item may have, see catalog.Kind.Sole.
func Claims(_ string, v store.Value) []string {
	if i, ok := v.(*Item); ok && i.kind != nil && i.kind.Sole != nil && i.fault == nil {
		return i.kind.Sole(i.Object())
	}
	return nil
}

// LabelTerm is the index term of the items that carry a label.
func LabelTerm(key, value string) string { return "l/" + key + "=" + value }

// FieldTerm is the index term of the items whose field has that value, which must not be
// empty.
func FieldTerm(name, value string) string { return "f/" + name + "=" + value }

// SoleTerm is the index term of the item that holds something alone; see
// catalog.Kind.Sole.
func SoleTerm(what string) string { return "h/" + what }

// Labels returns the object's labels, which are shared and must not be changed. It
// decodes nothing else.
func (i *Item) Labels() map[string]string {
	if obj := i.obj.Load(); obj != nil {
		return (*obj).GetLabels()
	}
	if i.before != nil {
		return i.before.Labels()
	}
	if i.untyped != nil {
		return labelsOf(i.untyped.text)
	}
	e := i.proto.Load()
	if e == nil { // it has been decoded meanwhile
		return (*i.obj.Load()).GetLabels()
	}
	var labels map[string]string
	for rest := e.meta; len(rest) > 0; {
		tag, payload, after, err := field(rest)
		if err != nil {
			return labels // LoadItem has decoded it: there is no fault
		}
		if tag == tagLabels {
			var pair [2]string // key and value are fields 1 and 2 of a map's entry
			for len(payload) > 0 {
				t, p, r, err := field(payload)
				if err != nil {
					break
				}
				if n := t >> 3; n == 1 || n == 2 {
					pair[n-1] = string(p)
				}
				payload = r
			}
			if labels == nil {
				labels = map[string]string{}
			}
			labels[pair[0]] = pair[1]
		}
		rest = after
	}
	return labels
}
