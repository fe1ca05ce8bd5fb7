package webhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	kjson "sigs.k8s.io/json"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/admission/condition"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/catalog"
)

// The versions of AdmissionReview that are spoken. Their fields are the same.
const (
	reviewGroup = "admission.k8s.io"
	versionV1   = "v1"
	versionBeta = "v1beta1"
)

// reviews makes the reviews of one request. The parts in JSON are made once for each version of the request's resource, until its
// object changes. It is for one goroutine; what it made may be read by several.
type reviews struct {
	request  *condition.Request
	mutating bool
	parts    map[*catalog.Kind]*parts
	options  []byte
}

type parts struct {
	object, old []byte // JSON, or nil
}

func newReviews(a *admission.Attributes, authorizer condition.Authorizer, mutating bool) *reviews {
	return &reviews{request: condition.NewRequest(a, authorizer), mutating: mutating, parts: map[*catalog.Kind]*parts{}}
}

// changed says that the object of the request changed.
func (r *reviews) changed() {
	r.request.Changed()
	clear(r.parts)
}

// in returns the JSON of the objects in a version.
func (r *reviews) in(served *catalog.Kind) (*parts, error) {
	if p := r.parts[served]; p != nil {
		return p, nil
	}
	obj, old, err := r.request.Objects(served)
	if err != nil {
		return nil, err
	}
	a := r.request.Attributes()
	p := &parts{}
	if obj != nil {
		if r.mutating && a.Operation == admission.Create && a.Subresource == "" {
			obj = unfinished(obj, a.Generated)
		}
		if p.object, err = encode(obj, a.BodyKind(served)); err != nil {
			return nil, err
		}
	}
	if old != nil {
		if p.old, err = encode(old, served.GroupVersionKind); err != nil {
			return nil, err
		}
	}
	r.parts[served] = p
	return p, nil
}

// unfinished returns a new object without what the server fills in: mutating webhooks see the object before that.
func unfinished(obj runtime.Object, generated bool) runtime.Object {
	var shown catalog.Object
	switch obj := obj.(type) {
	case *unstructured.Unstructured:
		shown = obj.DeepCopy()
		for _, name := range []string{"uid", "creationTimestamp", "generation"} {
			unstructured.RemoveNestedField(shown.(*unstructured.Unstructured).Object, "metadata", name)
		}
	case catalog.Object:
		shown = shallow(obj)
		shown.SetUID("")
		shown.SetCreationTimestamp(metav1.Time{})
		shown.SetGeneration(0)
	default:
		return obj
	}
	if generated {
		shown.SetName("")
	}
	return shown
}

// shallow copies the struct that obj points to.
func shallow(obj catalog.Object) catalog.Object {
	from := reflect.ValueOf(obj).Elem()
	to := reflect.New(from.Type())
	to.Elem().Set(from)
	return to.Interface().(catalog.Object)
}

// encode returns the JSON of an object of a kind, which its fields may lack.
func encode(obj runtime.Object, kind schema.GroupVersionKind) ([]byte, error) {
	if got := obj.GetObjectKind().GroupVersionKind(); got.Empty() || got.Kind == "" {
		obj = obj.DeepCopyObject()
		obj.GetObjectKind().SetGroupVersionKind(kind)
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return json.Marshal(u.Object)
	}
	return codec.Encode(codec.Media{}, obj)
}

// decode returns the object that a patched JSON text is: of a version of the request's resource, or the body of a subresource.
func decode(ctx context.Context, text []byte, a *admission.Attributes, served *catalog.Kind) (runtime.Object, error) {
	kind := a.BodyKind(served)
	if !isObject(text) {
		return nil, errors.New("the patch leaves no object")
	}
	if sub := served.Subresource(a.Subresource); sub != nil && sub.Body() != nil {
		obj := sub.Body().New()
		_, err := codec.Decode(ctx, codec.JSON, text, obj, kind, codec.Ignore, sub.Body().Versions...)
		return obj, err
	}
	obj := served.New()
	if u, ok := obj.(*unstructured.Unstructured); ok {
		var content map[string]any
		if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &content); err != nil {
			return nil, err
		}
		u.Object = content
		if got := u.GroupVersionKind(); got != kind {
			return nil, fmt.Errorf("the patch makes the object a %s", got)
		}
		if _, ok := content["metadata"].(map[string]any); !ok {
			return nil, errors.New("the patch leaves an object without metadata")
		}
		return u, nil
	}
	_, err := codec.Decode(ctx, codec.JSON, text, obj, kind, codec.Ignore)
	return obj, err
}

// isObject reports whether a JSON text is an object if it is valid at all.
func isObject(text []byte) bool { return bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) }

// A call is a review that is sent.
type call struct {
	uid     types.UID
	version string // of AdmissionReview
	body    []byte
}

var errNoVersion = errors.New("webhook does not accept known AdmissionReview versions (v1, v1beta1)")

// review returns the review for a webhook that matched a version of the request's resource.
func (r *reviews) review(h *hook, served *catalog.Kind) (*call, error) {
	c := &call{uid: uuid.NewUUID()}
	for _, v := range h.AdmissionReviewVersions {
		if v == versionV1 || v == versionBeta {
			c.version = v
			break
		}
	}
	if c.version == "" {
		return nil, errNoVersion
	}
	p, err := r.in(served)
	if err != nil {
		return nil, err
	}
	a := r.request.Attributes()
	if r.options == nil && a.Options != nil {
		if r.options, err = json.Marshal(a.Options); err != nil {
			return nil, err
		}
	}
	request := *r.request.AdmissionRequest(served)
	request.UID = c.uid
	request.Object.Raw, request.OldObject.Raw = p.object, p.old
	request.Options = runtime.RawExtension{Raw: r.options}
	c.body, err = json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: reviewGroup + "/" + c.version, Kind: "AdmissionReview"}, Request: &request,
	})
	return c, err
}

// read returns the response in an answer, or its fault.
func (c *call) read(answer []byte, mutating bool) (*admissionv1.AdmissionResponse, error) {
	var review admissionv1.AdmissionReview
	err := kjson.UnmarshalCaseSensitivePreserveInts(answer, &review)
	if err == nil && !isObject(answer) {
		err = errors.New("the answer is not an object")
	}
	if err != nil {
		return nil, &unreadableError{err}
	}
	want := schema.GroupVersionKind{Group: reviewGroup, Version: c.version, Kind: "AdmissionReview"}
	response := review.Response
	switch {
	case response == nil:
		return nil, errors.New("webhook response was absent")
	case c.version == versionBeta: // neither the kind nor the uid were looked at in this version
		if !mutating {
			response.Patch = nil
		}
		if response.PatchType = nil; len(response.Patch) > 0 {
			jsonPatch := admissionv1.PatchTypeJSONPatch
			response.PatchType = &jsonPatch
		}
		return response, nil
	case response.UID != c.uid:
		return nil, fmt.Errorf("expected response.uid=%q, got %q", c.uid, response.UID)
	case review.GroupVersionKind() != want:
		return nil, fmt.Errorf("expected webhook response of %v, got %v", want, review.GroupVersionKind())
	case !mutating && len(response.Patch) > 0:
		return nil, errors.New("validating webhook may not return response.patch")
	case !mutating && response.PatchType != nil:
		return nil, errors.New("validating webhook may not return response.patchType")
	case len(response.Patch) > 0 && response.PatchType == nil:
		return nil, errors.New("webhook returned response.patch but not response.patchType")
	case len(response.Patch) == 0 && response.PatchType != nil:
		return nil, errors.New("webhook returned response.patchType but not response.patch")
	case response.PatchType != nil && *response.PatchType == "":
		return nil, fmt.Errorf("webhook returned invalid response.patchType of %q", *response.PatchType)
	}
	return response, nil
}

// An unreadableError is an answer that is not JSON of the right shape.
type unreadableError struct{ err error }

func (e *unreadableError) Error() string {
	return "couldn't get version/kind; json parse error: " + e.err.Error()
}
func (e *unreadableError) Unwrap() error { return e.err }
