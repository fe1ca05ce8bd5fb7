package codec

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/typedjson"
)

// Encode writes an object that is not stored (a status, a table, a view) whose kind
// is set.
func Encode(m Media, obj runtime.Object) ([]byte, error) {
	if gvk := obj.GetObjectKind().GroupVersionKind(); m.Beta && gvk.Group == metav1.GroupName {
		obj.GetObjectKind().SetGroupVersionKind(metav1beta1.SchemeGroupVersion.WithKind(gvk.Kind)) // it was made for this answer
	}
	if m.Encoding == Protobuf {
		p, ok := obj.(runtime.ProtobufReverseMarshaller)
		if !ok {
			return nil, fmt.Errorf("%T has no protobuf encoding", obj)
		}
		gvk := obj.GetObjectKind().GroupVersionKind()
		data, _, err := sealEnvelope(gvk.GroupVersion().String(), gvk.Kind, p)
		return data, err
	}
	b, err := marshal(obj)
	if err != nil {
		return nil, err
	}
	return reshape(m, b)
}

func marshal(obj runtime.Object) ([]byte, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return typedjson.MarshalContent(u.Object)
	}
	return typedjson.Marshal(obj)
}

// EncodeItem writes a stored object. In plain JSON the bytes are the item's own and
// must not be changed.
func EncodeItem(m Media, i *Item) ([]byte, error) {
	if m.Encoding == Protobuf {
		return i.AppendProtobuf(make([]byte, 0, i.ProtobufSize())), nil
	}
	b, err := i.JSON()
	if err != nil {
		return nil, err
	}
	return reshape(m, b)
}

// reshape turns plain JSON into what m asks for.
func reshape(m Media, b []byte) ([]byte, error) {
	switch {
	case m.Encoding == YAML:
		return yaml.JSONToYAML(escapedForYAML(b))
	case m.Pretty:
		var out bytes.Buffer
		if err := json.Indent(&out, b, "", "  "); err != nil {
			return nil, err
		}
		out.WriteByte('\n')
		return out.Bytes(), nil
	}
	return b, nil
}

// escapedForYAML returns JSON in which those characters are escaped that JSON allows as they
// are and YAML does not (YAML 1.2, 5.1): the converter reads JSON as YAML.
func escapedForYAML(b []byte) []byte {
	var out []byte
	from := 0
	for i := 0; i < len(b); {
		if c := b[i]; c < utf8.RuneSelf && c != 0x7f {
			i++
			continue
		}
		r, n := utf8.DecodeRune(b[i:])
		if r == 0x7f || r > 0x7f && r < 0xa0 || r == 0xfeff || r == 0xfffe || r == 0xffff {
			out = fmt.Appendf(append(out, b[from:i]...), `\u%04x`, r)
			from = i + n
		}
		i += n
	}
	if out == nil {
		return b
	}
	return append(out, b[from:]...)
}

// WriteList writes a list of stored objects: a concatenation of their bytes, in pieces of
// the size of w's buffer. The caller flushes it.
func WriteList(w *bufio.Writer, m Media, kind *catalog.Kind, meta metav1.ListMeta, items []*Item) error {
	if m.Encoding == Protobuf {
		return writeProtobufList(w, kind, meta, items)
	}
	if m.Encoding == YAML {
		return writeYAMLList(w, kind, meta, items)
	}
	if m.Pretty {
		var whole bytes.Buffer
		if err := writeJSONList(&whole, kind, meta, items); err != nil {
			return err
		}
		b, err := reshape(m, whole.Bytes())
		if err != nil {
			return err
		}
		_, err = w.Write(b)
		return err
	}
	return writeJSONList(w, kind, meta, items)
}

// writeYAMLList converts each object by itself: a conversion takes a hundred times the memory of the object.
func writeYAMLList(w *bufio.Writer, kind *catalog.Kind, meta metav1.ListMeta, items []*Item) error {
	t := listType(kind)
	head, err := yaml.Marshal(struct {
		APIVersion string `json:"apiVersion"`
	}{t.APIVersion})
	if err != nil {
		return err
	}
	tail, err := yaml.Marshal(struct {
		Kind     string          `json:"kind"`
		Metadata metav1.ListMeta `json:"metadata"`
	}{t.Kind, meta})
	if err != nil {
		return err
	}
	if head = append(head, "items:\n"...); len(items) == 0 {
		head = append(head[:len(head)-1], " []\n"...)
	}
	if _, err := w.Write(head); err != nil {
		return err
	}
	for _, i := range items {
		shown, err := i.in(kind)
		if err != nil {
			return err
		}
		b, err := EncodeItem(Media{Encoding: YAML}, shown)
		if err != nil {
			return err
		}
		if err := writeYAMLItem(w, b); err != nil {
			return err
		}
	}
	_, err = w.Write(tail)
	return err
}

// writeYAMLItem writes a YAML document as an item of a list.
func writeYAMLItem(w *bufio.Writer, document []byte) error {
	mark := "- "
	for line := range bytes.Lines(document) {
		if len(line) > 1 {
			if _, err := w.WriteString(mark); err != nil {
				return err
			}
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
		mark = "  "
	}
	return nil
}

func writeJSONList(w io.Writer, kind *catalog.Kind, meta metav1.ListMeta, items []*Item) error {
	head, err := json.Marshal(struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ListMeta `json:"metadata"`
	}{listType(kind), meta})
	if err != nil {
		return err
	}
	head = append(head[:len(head)-1], `,"items":[`...)
	if _, err := w.Write(head); err != nil {
		return err
	}
	for n, i := range items {
		if n > 0 {
			if _, err := io.WriteString(w, ","); err != nil {
				return err
			}
		}
		shown, err := i.in(kind)
		if err != nil {
			return err
		}
		b, err := shown.JSON()
		if err != nil {
			return err
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	_, err = io.WriteString(w, "]}\n")
	return err
}

func listType(kind *catalog.Kind) metav1.TypeMeta {
	if kind.Untyped() { // its list kind has a name of its own
		return metav1.TypeMeta{Kind: kind.NewList().GetObjectKind().GroupVersionKind().Kind, APIVersion: kind.GroupVersion().String()}
	}
	return metav1.TypeMeta{Kind: kind.Kind + "List", APIVersion: kind.GroupVersion().String()}
}

// Every list of the Kubernetes API has its metadata in field 1 and its items in
// field 2.
const (
	tagListMeta = 1<<3 | 2
	tagListItem = 2<<3 | 2
)

func writeProtobufList(w *bufio.Writer, kind *catalog.Kind, meta metav1.ListMeta, items []*Item) error {
	m, err := meta.Marshal()
	if err != nil {
		return err
	}
	size := 1 + uvarintSize(len(m)) + len(m)
	bodies := make([]*encoded, len(items)) // none may go between the two rounds
	for n, i := range items {
		shown, err := i.in(kind)
		if err != nil {
			return err
		}
		bodies[n] = shown.encoded()
		length := bodies[n].size(i.rv)
		size += 1 + uvarintSize(length) + length
	}
	t := listType(kind)
	head := appendEnvelopeStart(make([]byte, 0, 256), t.APIVersion, t.Kind, size)
	head = append(head, tagListMeta)
	head = binary.AppendUvarint(head, uint64(len(m)))
	_, _ = w.Write(append(head, m...))
	for n, i := range items {
		head = append(head[:0], tagListItem)
		head = binary.AppendUvarint(head, uint64(bodies[n].size(i.rv)))
		head = bodies[n].appendMeta(head, i.rv)
		_, _ = w.Write(head)
		// A bufio.Writer keeps its first error and gives it back every time.
		if _, err := w.Write(bodies[n].rest); err != nil {
			return err
		}
	}
	_, err = w.WriteString(envelopeEnd)
	return err
}

// EmptyObject returns an object of the kind that has nothing but a resource version
// and annotations, as in bookmarks.
func EmptyObject(kind *catalog.Kind, rv string, annotations map[string]string) catalog.Object {
	obj := kind.New()
	obj.GetObjectKind().SetGroupVersionKind(kind.GroupVersionKind)
	obj.SetResourceVersion(rv)
	if len(annotations) > 0 {
		obj.SetAnnotations(annotations)
	}
	return obj
}
