package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	kjson "sigs.k8s.io/json"
)

// envelope begins every protobuf body that is not part of a stream; a
// runtime.Unknown follows.
const envelope = "k8s\x00"

// A message is a protobuf message of k8s.io/api.
type message interface {
	Marshal() ([]byte, error)
	Unmarshal(data []byte) error
}

// encode returns the body for obj, in protobuf if that is wanted and there is
// one for the type.
func encode(obj runtime.Object, protobuf bool) (body []byte, contentType string, err error) {
	gvk := KindOf(obj)
	if gvk.Kind == "" {
		return nil, "", fmt.Errorf("client: the kind of a %T is not known", obj)
	}
	if m, ok := obj.(message); ok && protobuf {
		raw, err := m.Marshal()
		if err != nil {
			return nil, "", fmt.Errorf("client: encode %s: %w", gvk.Kind, err)
		}
		apiVersion, kind := gvk.ToAPIVersionAndKind()
		u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: raw}
		body = make([]byte, len(envelope)+u.Size())
		copy(body, envelope)
		if _, err := u.MarshalTo(body[len(envelope):]); err != nil {
			return nil, "", fmt.Errorf("client: encode %s: %w", gvk.Kind, err)
		}
		return body, mediaProtobuf, nil
	}
	if obj.GetObjectKind().GroupVersionKind() != gvk {
		obj = obj.DeepCopyObject() // C1: it is shared
		obj.GetObjectKind().SetGroupVersionKind(gvk)
	}
	body, err = marshalJSON(obj)
	return body, mediaJSON, err
}

func marshalJSON(obj runtime.Object) ([]byte, error) {
	body, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("client: encode %s: %w", obj.GetObjectKind().GroupVersionKind().Kind, err)
	}
	return body, nil
}

// decode returns the object in a whole body. The kind is used where the body
// does not say one.
func (c *REST) decode(media string, body []byte, kind schema.GroupVersionKind) (runtime.Object, error) {
	if media == mediaProtobuf || bytes.HasPrefix(body, []byte(envelope)) {
		return decodeProtobuf(body)
	}
	return c.decodeJSON(body, kind)
}

func decodeProtobuf(body []byte) (runtime.Object, error) {
	rest, ok := bytes.CutPrefix(body, []byte(envelope))
	if !ok {
		return nil, errors.New("a protobuf body does not begin with k8s\\0")
	}
	var u runtime.Unknown
	if err := u.Unmarshal(rest); err != nil {
		return nil, fmt.Errorf("protobuf: %w", err)
	}
	return unmarshal(schema.FromAPIVersionAndKind(u.APIVersion, u.Kind), u.Raw)
}

// unmarshal decodes a protobuf message of a built-in kind. It keeps nothing of
// raw.
func unmarshal(gvk schema.GroupVersionKind, raw []byte) (runtime.Object, error) {
	obj, err := Scheme().New(gvk)
	if err != nil {
		return nil, fmt.Errorf("protobuf: %w", err)
	}
	m, ok := obj.(message)
	if !ok {
		return nil, fmt.Errorf("protobuf: %v has no such encoding", gvk)
	}
	if err := m.Unmarshal(raw); err != nil {
		return nil, fmt.Errorf("protobuf: %s: %w", gvk.Kind, err)
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	return obj, nil
}

func (c *REST) decodeJSON(body []byte, kind schema.GroupVersionKind) (runtime.Object, error) {
	var meta metav1.TypeMeta
	if err := json.Unmarshal(body, &meta); err != nil {
		return nil, fmt.Errorf("JSON: %w", err)
	}
	gvk := meta.GroupVersionKind()
	if gvk.Kind == "" {
		gvk = kind
	}
	if gvk.Kind == "" {
		return nil, errors.New("JSON: an object without a kind")
	}
	isStatus := gvk.Kind == "Status" && gvk.Group == "" // an error has one Go type for all clients
	if c.metadata && !isStatus {
		m := &metav1.PartialObjectMetadata{}
		if err := json.Unmarshal(body, m); err != nil {
			return nil, fmt.Errorf("JSON: %s: %w", gvk.Kind, err)
		}
		if m.SetGroupVersionKind(gvk); gvk.Group == metav1.GroupName { // the form, and not the kind of the object
			m.SetGroupVersionKind(schema.GroupVersionKind{})
		}
		return m, nil
	}
	if !c.dynamic || isStatus {
		obj, err := Scheme().New(gvk)
		if err == nil {
			if err := kjson.UnmarshalCaseSensitivePreserveInts(body, obj); err != nil {
				return nil, fmt.Errorf("JSON: %s: %w", gvk.Kind, err)
			}
			obj.GetObjectKind().SetGroupVersionKind(gvk)
			return obj, nil
		}
		if !runtime.IsNotRegisteredError(err) {
			return nil, fmt.Errorf("JSON: %w", err)
		}
	}
	u := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(body, &u.Object); err != nil {
		return nil, fmt.Errorf("JSON: %s: %w", gvk.Kind, err)
	}
	u.SetGroupVersionKind(gvk)
	return u, nil
}

// statusError returns the error that obj is when it is a failure status.
func statusError(obj runtime.Object) error {
	if s, ok := obj.(*metav1.Status); ok && s.Status != metav1.StatusSuccess {
		return apierrors.FromObject(s)
	}
	return nil
}

// decodeList reads a list item by item: no more than one encoded item is held,
// and no item keeps its neighbours alive.
func (c *REST) decodeList(resp *http.Response) ([]runtime.Object, metav1.ListMeta, error) {
	var items []runtime.Object
	var meta metav1.ListMeta
	var err error
	if mediaType(resp) == mediaProtobuf {
		items, meta, err = readProtobufList(resp.Body)
	} else {
		items, meta, err = c.readJSONList(resp.Body)
	}
	if err != nil {
		return nil, metav1.ListMeta{}, fmt.Errorf("client: read list: %w", err)
	}
	return items, meta, nil
}

func (c *REST) readJSONList(r io.Reader) (items []runtime.Object, meta metav1.ListMeta, err error) {
	d := json.NewDecoder(r)
	if err := expectDelim(d, '{'); err != nil {
		return nil, meta, err
	}
	var head metav1.TypeMeta
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, meta, err
		}
		switch key {
		case "kind":
			err = d.Decode(&head.Kind)
		case "apiVersion":
			err = d.Decode(&head.APIVersion)
		case "metadata":
			err = d.Decode(&meta)
		case "items":
			items, err = c.readItems(d, &head)
		default:
			var skipped json.RawMessage
			err = d.Decode(&skipped)
		}
		if err != nil {
			return nil, meta, fmt.Errorf("%v: %w", key, err)
		}
	}
	if err := expectDelim(d, '}'); err != nil {
		return nil, meta, err
	}
	if head.Kind == "Status" {
		return nil, meta, errors.New("the server answered with a Status, want a list")
	}
	return items, meta, nil
}

// readItems reads the array of items. Items need not say their kind if the list
// said its own before them.
func (c *REST) readItems(d *json.Decoder, head *metav1.TypeMeta) ([]runtime.Object, error) {
	open, err := d.Token()
	if err != nil || open == nil { // null: no items
		return nil, err
	}
	if open != json.Delim('[') {
		return nil, fmt.Errorf("found %v, want an array", open)
	}
	var items []runtime.Object
	kind := schema.FromAPIVersionAndKind(head.APIVersion, strings.TrimSuffix(head.Kind, "List"))
	for d.More() {
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, err
		}
		obj, err := c.decodeJSON(raw, kind)
		if err != nil {
			return nil, err
		}
		items = append(items, obj)
	}
	_, err = d.Token() // the closing bracket
	return items, err
}

func expectDelim(d *json.Decoder, want json.Delim) error {
	got, err := d.Token()
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("found %v, want %v", got, want)
	}
	return nil
}

// mediaType returns the media type of an answer without parameters.
func mediaType(resp *http.Response) string {
	m, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return m
}
