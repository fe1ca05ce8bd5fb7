package codec

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
// kind. A body that names no kind is taken for one. The warnings are what
// validation found if it is Warn. The error is a 400 status.
func Decode(e Encoding, body []byte, obj runtime.Object, want schema.GroupVersionKind, v Validation) (warnings []string, err error) {
	got, faults, err := unmarshal(e, body, obj, v)
	if got.Kind == "" {
		got.Kind = want.Kind
	}
	if got.Version == "" {
		got.Group, got.Version = want.Group, want.Version
	}
	switch {
	case err != nil:
		return nil, cannotBeHandled(got, want, err)
	case got.Kind != want.Kind:
		return nil, cannotBeHandled(got, want, errors.New("this path takes a "+want.Kind))
	case got.GroupVersion() != want.GroupVersion():
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

// DecodeDeleteOptions reads the body of a DELETE. Kubernetes accepts DeleteOptions in
// every group and version. The error is a 400 status.
func DecodeDeleteOptions(e Encoding, body []byte, opts *metav1.DeleteOptions) error {
	want := metav1.SchemeGroupVersion.WithKind("DeleteOptions")
	got, _, err := unmarshal(e, body, opts, Ignore)
	switch {
	case err != nil:
		return cannotBeHandled(want, want, err)
	case got.Kind != "" && got.Kind != want.Kind:
		return cannotBeHandled(got, want, errors.New("a DELETE takes DeleteOptions"))
	}
	return nil
}

func cannotBeHandled(got, want schema.GroupVersionKind, err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", got.Kind, got.GroupVersion(), want.Kind, err))
}

// unmarshal reads body into obj. It returns the kind that the body names and, unless
// v is Ignore, which fields are unknown or there twice.
func unmarshal(e Encoding, body []byte, obj runtime.Object, v Validation) (got schema.GroupVersionKind, faults []error, err error) {
	switch e {
	case Protobuf:
		return unmarshalProtobuf(body, obj)
	case YAML:
		if v != Ignore {
			if _, err := yaml.YAMLToJSONStrict(body); err != nil {
				if doubles := yamlDoubles(err); len(doubles) > 0 {
					faults = doubles
				}
			}
		}
		if body, err = yaml.YAMLToJSON(body); err != nil {
			return got, nil, err
		}
	case JSON:
	}
	if typedjson.Unmarshal(body, obj) {
		return obj.GetObjectKind().GroupVersionKind(), faults, nil
	}
	reflect.ValueOf(obj).Elem().SetZero() // read it anew, to say what is wrong
	var more []error
	if v == Ignore {
		err = kjson.UnmarshalCaseSensitivePreserveInts(body, obj)
	} else {
		more, err = kjson.UnmarshalStrict(body, obj)
	}
	got = obj.GetObjectKind().GroupVersionKind()
	return got, append(faults, more...), err
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
	got = schema.FromAPIVersionAndKind(envelope.APIVersion, envelope.Kind)
	switch {
	case envelope.ContentEncoding != "":
		return got, nil, fmt.Errorf("content encoding %q in a protobuf envelope is not supported", envelope.ContentEncoding)
	case envelope.ContentType != "" && envelope.ContentType != TypeProtobuf:
		return got, nil, fmt.Errorf("content type %q in a protobuf envelope is not supported", envelope.ContentType)
	}
	return got, nil, m.Unmarshal(envelope.Raw)
}
