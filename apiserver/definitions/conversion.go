package definitions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/custom"
)

// A Webhook calls the conversion webhook of one definition.
type Webhook interface {
	// Call posts a review in JSON, and returns the answer if it has at most so many bytes.
	Call(ctx context.Context, review []byte, most int64) ([]byte, error)
	Close()
}

// Bounds of one conversion.
const (
	conversionTimeout = 30 * time.Second // as upstream's client
	largestAnswer     = 64 << 20         // bytes: many lists, each of them smaller than a large list here
)

// checked converts only between versions that the definition has.
type checked struct {
	custom.Converter
	versions map[schema.GroupVersion]bool
}

func (c checked) Convert(ctx context.Context, objs []*unstructured.Unstructured, to schema.GroupVersion) ([]*unstructured.Unstructured, error) {
	if !c.versions[to] {
		return nil, fmt.Errorf("request to convert CR to an invalid group/version: %s", to)
	}
	for _, obj := range objs {
		if gv := obj.GroupVersionKind().GroupVersion(); !c.versions[gv] {
			return nil, fmt.Errorf("request to convert CR from an invalid group/version: %s", gv)
		}
	}
	return c.Converter.Convert(ctx, objs, to)
}

// byWebhook asks the webhook of a definition.
type byWebhook struct {
	hook    Webhook
	reviews []string // versions of ConversionReview that the webhook understands
}

// Convert implements [custom.Converter]: all objects of other versions go in one review.
func (c *byWebhook) Convert(ctx context.Context, objs []*unstructured.Unstructured, to schema.GroupVersion) ([]*unstructured.Unstructured, error) {
	out := make([]*unstructured.Unstructured, len(objs))
	var at []int
	var asked []map[string]any
	for i, obj := range objs {
		if obj.GetAPIVersion() == to.String() {
			out[i] = obj
			continue
		}
		at, asked = append(at, i), append(asked, obj.Object)
	}
	if len(asked) == 0 {
		return out, nil
	}
	gvk := objs[at[0]].GroupVersionKind()
	converted, err := c.ask(ctx, asked, to)
	if err != nil {
		return nil, fmt.Errorf("conversion webhook for %v failed: %w", gvk, err)
	}
	if len(converted) != len(asked) {
		return nil, fmt.Errorf("conversion webhook for %v returned %d objects, expected %d", gvk, len(converted), len(asked))
	}
	for n, i := range at {
		if out[i], err = restored(objs[i], converted[n], to); err != nil {
			if len(asked) == 1 {
				return nil, fmt.Errorf("conversion webhook for %v returned invalid object: %w", gvk, err)
			}
			return nil, fmt.Errorf("conversion webhook for %v returned invalid converted object at index %d: %w", gvk, n, err)
		}
	}
	return out, nil
}

// The parts of a ConversionReview, whose versions v1 and v1beta1 have the same fields.
type (
	review struct {
		metav1.TypeMeta `json:",inline"`
		Request         *reviewRequest  `json:"request,omitempty"`
		Response        *reviewResponse `json:"response,omitempty"`
	}

	reviewRequest struct {
		UID               types.UID        `json:"uid"`
		DesiredAPIVersion string           `json:"desiredAPIVersion"`
		Objects           []map[string]any `json:"objects"`
	}

	reviewResponse struct {
		UID              types.UID         `json:"uid"`
		ConvertedObjects []json.RawMessage `json:"convertedObjects"`
		Result           metav1.Status     `json:"result"`
	}
)

// ask calls the webhook.
func (c *byWebhook) ask(ctx context.Context, objs []map[string]any, to schema.GroupVersion) ([]json.RawMessage, error) {
	version := ""
	for _, v := range c.reviews {
		if v == "v1" || v == "v1beta1" {
			version = v
			break
		}
	}
	if version == "" {
		return nil, errors.New("no supported conversion review versions")
	}
	kind := metav1.TypeMeta{APIVersion: apiextensionsv1.GroupName + "/" + version, Kind: "ConversionReview"}
	uid := uuid.NewUUID()
	body, err := json.Marshal(review{TypeMeta: kind, Request: &reviewRequest{UID: uid, DesiredAPIVersion: to.String(), Objects: objs}})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, conversionTimeout)
	defer cancel()
	body, err = c.hook.Call(ctx, body, largestAnswer)
	if err != nil {
		return nil, err
	}
	var answer review
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, err
	}
	r := answer.Response
	switch {
	case version == "v1" && answer.TypeMeta != kind:
		return nil, fmt.Errorf("expected webhook response of %v, got %v", kind.GroupVersionKind(), answer.GroupVersionKind())
	case r == nil:
		return nil, errors.New("no response provided")
	case version == "v1" && r.UID != uid:
		return nil, fmt.Errorf("expected response.uid=%q, got %q", uid, r.UID)
	case r.Result.Status != metav1.StatusSuccess && r.Result.Message != "":
		return nil, errors.New(r.Result.Message)
	case r.Result.Status != metav1.StatusSuccess:
		return nil, fmt.Errorf("response.result.status was '%s', not 'Success'", r.Result.Status)
	}
	return r.ConvertedObjects, nil
}

// restored checks an object that a webhook converted. Of its metadata only labels and annotations count.
func restored(from *unstructured.Unstructured, text []byte, to schema.GroupVersion) (*unstructured.Unstructured, error) {
	var content map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &content); err != nil {
		return nil, err
	}
	obj := &unstructured.Unstructured{Object: content}
	if gv := obj.GroupVersionKind().GroupVersion(); gv != to {
		return nil, fmt.Errorf("invalid groupVersion (expected %v, received %v)", to, gv)
	}
	if obj.GetKind() != from.GetKind() {
		return nil, fmt.Errorf("invalid kind (expected %v, received %v)", from.GetKind(), obj.GetKind())
	}
	meta, found := content["metadata"]
	if !found {
		return nil, errors.New("missing metadata in converted object")
	}
	fields, ok := meta.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("invalid metadata of type %T in converted object", meta)
	}
	switch {
	case obj.GetName() != from.GetName():
		return nil, fmt.Errorf("must have the same name: %v != %v", from.GetName(), obj.GetName())
	case obj.GetNamespace() != from.GetNamespace():
		return nil, fmt.Errorf("must have the same namespace: %v != %v", from.GetNamespace(), obj.GetNamespace())
	case obj.GetUID() != from.GetUID():
		return nil, fmt.Errorf("must have the same UID: %v != %v", from.GetUID(), obj.GetUID())
	}
	kept := map[string]any{}
	if old, ok := from.Object["metadata"].(map[string]any); ok {
		for name, value := range old {
			kept[name] = value
		}
	}
	for _, name := range []string{"labels", "annotations"} {
		texts, err := textsOf(fields[name], name)
		if err != nil {
			return nil, err
		}
		delete(kept, name)
		if len(texts) > 0 {
			kept[name] = texts
		}
	}
	content["metadata"] = kept
	if errs := metavalidation.ValidateLabels(obj.GetLabels(), field.NewPath("metadata", "labels")); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	if errs := apivalidation.ValidateAnnotations(obj.GetAnnotations(), field.NewPath("metadata", "annotation")); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return obj, nil
}

// textsOf returns labels or annotations.
func textsOf(value any, name string) (map[string]any, error) {
	if value == nil {
		return nil, nil
	}
	all, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("invalid metadata.%s of type %T in converted object", name, value)
	}
	for key, text := range all {
		if _, ok := text.(string); !ok {
			return nil, fmt.Errorf("metadata.%s[%s] must be a string, but is %T in converted object", name, key, text)
		}
	}
	return all, nil
}

// noConverter is for a webhook whose configuration cannot be used.
type noConverter struct{ err error }

// Convert implements [custom.Converter].
func (c noConverter) Convert(_ context.Context, objs []*unstructured.Unstructured, to schema.GroupVersion) ([]*unstructured.Unstructured, error) {
	for _, obj := range objs {
		if obj.GetAPIVersion() != to.String() {
			return nil, fmt.Errorf("conversion webhook for %v failed: %w", obj.GroupVersionKind(), c.err)
		}
	}
	return objs, nil
}

func untyped(objs []catalog.Object) ([]*unstructured.Unstructured, error) {
	out := make([]*unstructured.Unstructured, len(objs))
	for i, obj := range objs {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return nil, fmt.Errorf("cannot convert a %T", obj)
		}
		out[i] = u
	}
	return out, nil
}

// conversion makes a [catalog.Kind.Convert].
func conversion(c custom.Converter) func(context.Context, []catalog.Object, schema.GroupVersion) ([]catalog.Object, error) {
	return func(ctx context.Context, objs []catalog.Object, to schema.GroupVersion) ([]catalog.Object, error) {
		in, err := untyped(objs)
		if err != nil {
			return nil, err
		}
		converted, err := c.Convert(ctx, in, to)
		if err != nil {
			return nil, err
		}
		out := make([]catalog.Object, len(converted))
		for i, obj := range converted {
			out[i] = obj
		}
		return out, nil
	}
}
