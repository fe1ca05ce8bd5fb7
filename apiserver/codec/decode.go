package codec

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protowire"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/internal/typedjson"
)

// A Validation says what happens to fields in a body that are unknown or there
// twice.
type Validation uint8

// The validations that the fieldValidation parameter names. Warn is the zero value
// and what counts when a request does not say.
const (
	Warn Validation = iota
	Strict
	Ignore
)

// ValidationOf returns the validation that a fieldValidation parameter names. Other
// texts than Kubernetes' three and the empty one mean Warn; callers check them before.
func ValidationOf(parameter string) Validation {
	switch parameter {
	case metav1.FieldValidationStrict:
		return Strict
	case metav1.FieldValidationIgnore:
		return Ignore
	}
	return Warn
}

// Decode reads a body into obj, which is new and of the kind want, and sets its
// kind. A body that names no kind is taken for one; it may also name one of the other
// versions, whose fields are the same. The warnings are what validation found if it is
// Warn. The error is a 400 status, or the cause of ctx if that is over: large bodies are not decoded further than a step of it
// for clients that have gone.
func Decode(ctx context.Context, e Encoding, body []byte, obj runtime.Object, want schema.GroupVersionKind, v Validation, others ...schema.GroupVersion) (warnings []string, err error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return e.decodeBody(ctx, body, u, want, v)
	}
	got, faults, err := unmarshal(ctx, e, body, obj, v)
	if got.Kind == "" {
		got.Kind = want.Kind
	}
	if got.Version == "" && (got.Group == "" || got.Group == want.Group) {
		got.Group, got.Version = want.Group, want.Version
	}
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, cannotBeHandled(got, want, err)
	case got.Kind != want.Kind:
		return nil, cannotBeHandled(got, want, errors.New("this path takes a "+want.Kind))
	case got.GroupVersion() != want.GroupVersion() && !slices.Contains(others, got.GroupVersion()):
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", got.GroupVersion(), want.GroupVersion()))
	case len(faults) > 0 && v == Strict:
		return nil, cannotBeHandled(got, want, runtime.NewStrictDecodingError(faults))
	}
	for _, f := range faults {
		warnings = append(warnings, f.Error())
	}
	obj.GetObjectKind().SetGroupVersionKind(want)
	return warnings, nil
}

// Normalize gives an object that did not come through [Decode] the form that it has after it
// did (E4). The error is a 400 status.
func Normalize(obj runtime.Object) error {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		content, err := normalized(u)
		if err != nil {
			return cannotBeHandled(u.GroupVersionKind(), u.GroupVersionKind(), err)
		}
		u.Object = content
		return nil
	}
	if err := typedjson.Normalize(obj); err != nil {
		gvk := obj.GetObjectKind().GroupVersionKind()
		return cannotBeHandled(gvk, gvk, err)
	}
	return nil
}

// DecodeDeleteOptions reads the body of a DELETE. Kubernetes accepts DeleteOptions in
// every group and version. The error is a 400 status, or the cause of ctx if that is over.
func DecodeDeleteOptions(ctx context.Context, e Encoding, body []byte, opts *metav1.DeleteOptions) error {
	want := metav1.SchemeGroupVersion.WithKind("DeleteOptions")
	got, _, err := unmarshal(ctx, e, body, opts, Ignore)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return cannotBeHandled(want, want, err)
	case got.Kind != "" && got.Kind != want.Kind:
		return cannotBeHandled(got, want, errors.New("a DELETE takes DeleteOptions"))
	}
	return nil
}

func cannotBeHandled(got, want schema.GroupVersionKind, err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", got.Kind, got.Version, want.Kind, err))
}

// DecodeConfiguration reads a server-side apply configuration, in YAML or JSON: an object that has
// a part of its fields. Validation concerns only duplicate fields here; warnings and error are as
// those of [Decode].
func DecodeConfiguration(ctx context.Context, body []byte, v Validation) (config map[string]any, warnings []string, err error) {
	var faults []error
	if !json.Valid(body) {
		body, faults, err = fromYAML(ctx, body, v)
		switch {
		case ctx.Err() != nil:
			return nil, nil, context.Cause(ctx)
		case err != nil:
			return nil, nil, apierrors.NewBadRequest("error decoding patch: " + err.Error())
		}
	}
	if err := checkExtent(body, deepestUntyped, math.MaxInt); err != nil {
		return nil, nil, apierrors.NewBadRequest("error decoding patch: " + err.Error())
	}
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	more, err := kjson.UnmarshalStrict(body, &config)
	switch {
	case err != nil && !bytes.HasPrefix(body, []byte("{")):
		return nil, nil, apierrors.NewBadRequest("error decoding patch: an apply configuration must be an object with apiVersion, kind and metadata.name")
	case err != nil:
		return nil, nil, apierrors.NewBadRequest("error decoding patch: " + err.Error())
	case config == nil:
		return nil, nil, apierrors.NewBadRequest("error decoding patch: an apply configuration must be an object with apiVersion, kind and metadata.name, got an empty body")
	case v == Ignore:
		return config, nil, nil
	}
	if faults = append(faults, more...); len(faults) > 0 && v == Strict {
		return nil, nil, apierrors.NewBadRequest("error strict decoding patch: " + errors.Join(faults...).Error())
	}
	for _, f := range faults {
		warnings = append(warnings, f.Error())
	}
	return config, warnings, nil
}

// unmarshal reads body into obj. It returns the kind that the body names and, unless v is Ignore,
// the unknown and the duplicate fields.
func unmarshal(ctx context.Context, e Encoding, body []byte, obj runtime.Object, v Validation) (got schema.GroupVersionKind, faults []error, err error) {
	switch e {
	case Protobuf:
		return unmarshalProtobuf(body, obj)
	case YAML:
		if body, faults, err = fromYAML(ctx, body, v); err != nil {
			return got, nil, err
		}
	case JSON:
	}
	if err := checkExtent(body, deepest, mostObjects); err != nil {
		return got, nil, err
	}
	if err := checkQuantitiesJSON(ctx, body, obj); err != nil {
		return got, nil, err
	}
	if typedjson.Unmarshal(body, obj) {
		if got, err = kindOf(obj); err == nil {
			err = normalizeRaw(body, obj)
		}
		return got, faults, err
	}
	if ctx.Err() != nil {
		return got, nil, context.Cause(ctx)
	}
	reflect.ValueOf(obj).Elem().SetZero() // read it again to find the error message
	var more []error
	if v == Ignore {
		err = kjson.UnmarshalCaseSensitivePreserveInts(body, obj)
	} else {
		more, err = kjson.UnmarshalStrict(body, obj)
	}
	if err == nil {
		err = normalizeRaw(body, obj)
	}
	if err != nil {
		return obj.GetObjectKind().GroupVersionKind(), nil, err
	}
	got, err = kindOf(obj)
	return got, append(faults, more...), err
}

// normalizeRaw gives what obj, which was read from body, keeps as JSON (RawExtension, FieldsV1, values in schemas) the
// form in which it is stored, so that an object which is sent again does not differ from the stored one by spaces. A
// body without the characters that the form changes needs nothing.
func normalizeRaw(body []byte, obj runtime.Object) error {
	if _, untyped := obj.(*unstructured.Unstructured); untyped {
		return nil
	}
	if bytes.ContainsAny(body, " \n\t\r<>&") || bytes.Contains(body, []byte("\u2028")) || bytes.Contains(body, []byte("\u2029")) {
		return typedjson.Normalize(obj)
	}
	return nil
}

// deepest is how many levels of objects and lists a document of a kind with a Go type can have; definitions of custom
// resources by well-known projects have 40. Schemas in these are read once more at each level, so that decoding takes a
// time that grows with size times depth: without a limit minutes for a body of 3 MB.
const deepest = 100

// deepestUntyped is the same of custom resources, which can have trees in them, and of configurations that are applied. The
// time for the managed fields of an object grows with the square of its depth.
const deepestUntyped = 500

// mostObjects is how many objects and lists, or messages, a document of a kind with a Go type can have. "{}" in a list of
// containers becomes 700 bytes, and their validation, defaults and managed fields several times as much: without a limit a body of
// 3 MB takes gigabytes.
const mostObjects = 100_000

var errManyObjects = fmt.Errorf("the document has more than %d objects and lists", mostObjects)

// checkExtent returns an error if a JSON document is nested in more than so many levels, or has more than so many objects and lists.
func checkExtent(document []byte, levels, objects int) error {
	if bytes.Count(document, []byte("{"))+bytes.Count(document, []byte("[")) <= min(levels, objects) {
		return nil // as nearly all: the signs of texts are counted, too
	}
	level, text := 0, false
	for i := 0; i < len(document); i++ {
		switch c := document[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			if level++; level > levels {
				return fmt.Errorf("the document is nested more than %d levels deep", levels)
			}
			if objects--; objects < 0 {
				return errManyObjects
			}
		case c == '}' || c == ']':
			level--
		}
	}
	return nil
}

// kindOf returns the kind that an object names. It is an error if its apiVersion is not one.
func kindOf(obj runtime.Object) (schema.GroupVersionKind, error) {
	if t, ok := obj.GetObjectKind().(*metav1.TypeMeta); ok {
		return parseKind(t.APIVersion, t.Kind)
	}
	return obj.GetObjectKind().GroupVersionKind(), nil
}

func parseKind(apiVersion, kind string) (schema.GroupVersionKind, error) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	return gv.WithKind(kind), err
}

// fromYAML returns a YAML document as JSON and, unless v is Ignore, which keys are there
// twice. It returns the cause of ctx if that is over.
func fromYAML(ctx context.Context, body []byte, v Validation) (text []byte, doubles []error, err error) {
	if err := bounded(body); err != nil {
		return nil, nil, err
	}
	if v != Ignore {
		if _, err := yaml.YAMLToJSONStrict(body); err != nil {
			doubles = yamlDoubles(err)
		}
	}
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	text, err = yaml.YAMLToJSON(body)
	return text, doubles, err
}

// largestYAML is how many bytes a YAML document may have once its aliases are written out:
// as many as the largest body.
const largestYAML = 3 << 20

// bounded refuses a document that grows beyond measure by its aliases (&a, *a), before it
// is written out.
func bounded(body []byte) error {
	if bytes.IndexByte(body, '&') < 0 || bytes.IndexByte(body, '*') < 0 {
		return nil
	}
	var doc yamlv3.Node
	if err := yamlv3.Unmarshal(body, &doc); err != nil {
		return err
	}
	if writtenOut(&doc, map[*yamlv3.Node]int{}) > largestYAML {
		return fmt.Errorf("the YAML document has more than %d bytes once its aliases are written out", largestYAML)
	}
	return nil
}

// writtenOut returns about how many bytes a node has when its aliases are expanded, up to a little
// more than largestYAML. Known has the sizes of anchors; an anchor that contains itself has no end.
func writtenOut(n *yamlv3.Node, known map[*yamlv3.Node]int) int {
	if n.Kind == yamlv3.AliasNode {
		return writtenOut(n.Alias, known)
	}
	if size, found := known[n]; found {
		return size
	}
	if n.Anchor != "" {
		known[n] = largestYAML + 1 // until it is known
	}
	size := len(n.Value) + 2 // with a sign that ends it, and one between
	for _, c := range n.Content {
		if size += writtenOut(c, known); size > largestYAML {
			size = largestYAML + 1
			break
		}
	}
	if n.Anchor != "" {
		known[n] = size
	}
	return size
}

// yamlDoubles picks what the strict YAML reader says about keys that are there
// twice. Other errors come back from the plain reader.
func yamlDoubles(err error) (faults []error) {
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); strings.Contains(line, "already set in map") {
			faults = append(faults, errors.New(line))
		}
	}
	return faults
}

func unmarshalProtobuf(body []byte, obj runtime.Object) (got schema.GroupVersionKind, faults []error, err error) {
	m, ok := obj.(marshaler)
	if !ok {
		return got, nil, fmt.Errorf("%T has no protobuf encoding", obj)
	}
	if !bytes.HasPrefix(body, []byte(magic)) {
		return got, nil, errors.New(`the body does not begin with the Kubernetes protobuf prefix "k8s\x00"`)
	}
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(body[len(magic):]); err != nil {
		return got, nil, err
	}
	got, err = parseKind(envelope.APIVersion, envelope.Kind)
	switch {
	case err != nil:
		return got, nil, err
	case envelope.ContentEncoding != "":
		return got, nil, fmt.Errorf("content encoding %q in a protobuf envelope is not supported", envelope.ContentEncoding)
	case envelope.ContentType != "" && envelope.ContentType != TypeProtobuf:
		return got, nil, fmt.Errorf("content type %q in a protobuf envelope is not supported", envelope.ContentType)
	}
	if _, recursive := obj.(*apiextensionsv1.CustomResourceDefinition); recursive && deeperMessages(envelope.Raw, deepestMessage) {
		return got, nil, fmt.Errorf("the message is nested more than %d levels deep", deepestMessage)
	}
	if len(envelope.Raw) > 2*mostObjects && messages(envelope.Raw, mostObjects, deepestMessage) > mostObjects {
		return got, nil, errManyObjects
	}
	return got, nil, unmarshalMessage(envelope.Raw, m)
}

// messages returns how many messages a protobuf message has, itself included, up to a little more than limit; 0 if it is not one.
// Bytes and texts that could be messages count as such, and messages below so many levels do not.
func messages(message []byte, limit, levels int) int {
	count := 1
	for len(message) > 0 && count <= limit {
		num, typ, n := protowire.ConsumeTag(message)
		if n < 0 {
			return 0
		}
		message = message[n:]
		if typ == protowire.BytesType && levels > 0 {
			inner, n := protowire.ConsumeBytes(message)
			if n < 0 {
				return 0
			}
			count += messages(inner, limit-count, levels-1)
			message = message[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(num, typ, message); n < 0 {
			return 0
		}
		message = message[n:]
	}
	return count
}

// deepestMessage is how many levels of messages the protobuf of a type that contains itself can have: only schemas of custom
// resources do. A level of such a schema takes up to three. Decoding calls itself for each level, and a stack that
// overflows ends the process.
const deepestMessage = 400

// deeperMessages reports whether messages are nested in more levels than that. Bytes and texts that could be messages count as
// such. It looks at each field once.
func deeperMessages(message []byte, levels int) bool {
	for len(message) > 0 {
		num, typ, n := protowire.ConsumeTag(message)
		if n < 0 {
			return false // not a message
		}
		message = message[n:]
		if typ != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(num, typ, message); n < 0 {
				return false
			}
			message = message[n:]
			continue
		}
		inner, n := protowire.ConsumeBytes(message)
		if n < 0 {
			return false
		}
		if levels == 0 || deeperMessages(inner, levels-1) {
			return true
		}
		message = message[n:]
	}
	return false
}

// unmarshalMessage reads the protobuf message of an object and normalizes the object (E4).
func unmarshalMessage(message []byte, obj marshaler) error {
	if err := checkQuantitiesProtobuf(message, obj); err != nil {
		return err
	}
	if err := obj.Unmarshal(message); err != nil {
		return err
	}
	return typedjson.Normalize(obj)
}
