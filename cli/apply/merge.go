package apply

import (
	"encoding/json"
	"errors"
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/sampan-io/sampan/client"
)

// LastApplied is the annotation that keeps the last applied object.
const LastApplied = corev1.LastAppliedConfigAnnotation

// A Patch turns the live object into the wanted one.
type Patch struct {
	Type types.PatchType
	Body []byte
}

// Empty reports whether the patch changes nothing.
func (p Patch) Empty() bool { return string(p.Body) == "{}" }

// Merge returns the patch that brings live to modified and removes what original had
// and modified has no more; what others wrote into live stays. All three are JSON;
// original is nil if it is not known. Lists of built-in kinds are merged by their keys,
// those of other kinds are replaced.
func Merge(kind schema.GroupVersionKind, original, modified, live []byte) (Patch, error) {
	typed, err := client.Scheme().New(kind)
	if runtime.IsNotRegisteredError(err) {
		same := []mergepatch.PreconditionFunc{
			mergepatch.RequireKeyUnchanged("apiVersion"), mergepatch.RequireKeyUnchanged("kind"), mergepatch.RequireMetadataKeyUnchanged("name"),
		}
		body, err := jsonmergepatch.CreateThreeWayJSONMergePatch(original, modified, live, same...)
		if mergepatch.IsPreconditionFailed(err) {
			err = errors.New("at least one of apiVersion, kind and name was changed")
		}
		return Patch{types.MergePatchType, body}, err
	}
	if err != nil {
		return Patch{}, err
	}
	meta, err := strategicpatch.NewPatchMetaFromStruct(typed)
	if err != nil {
		return Patch{}, err
	}
	const overwrite = true // the new configuration wins over changes by others
	body, err := strategicpatch.CreateThreeWayMergePatch(original, modified, live, meta, overwrite)
	return Patch{types.StrategicMergePatchType, body}, err
}

// applied returns what live will be after the patch, as far as a client can know.
func (p Patch) applied(kind schema.GroupVersionKind, live []byte) ([]byte, error) {
	if p.Type == types.MergePatchType {
		return jsonpatch.MergePatch(live, p.Body)
	}
	typed, err := client.Scheme().New(kind)
	if err != nil {
		return nil, err
	}
	return strategicpatch.StrategicMergePatch(live, p.Body, typed)
}

// modified returns an object as JSON with the annotation of the object it was made
// from, byte for byte as kubectl writes it.
func modified(obj *unstructured.Unstructured) ([]byte, error) {
	annotated, err := Annotated(obj)
	if err != nil {
		return nil, err
	}
	return encode(annotated)
}

// Annotated returns a copy of an object with the annotation of the object it was made
// from.
func Annotated(obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	obj = obj.DeepCopy()
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	delete(annotations, LastApplied)
	set := func() error {
		return unstructured.SetNestedStringMap(obj.Object, annotations, "metadata", "annotations") // SetAnnotations drops an empty map
	}
	if err := set(); err != nil {
		return nil, err
	}
	text, err := encode(obj)
	if err != nil {
		return nil, err
	}
	annotations[LastApplied] = string(text)
	return obj, set()
}

// encode returns the JSON of an object, with a line break behind it.
func encode(obj *unstructured.Unstructured) ([]byte, error) {
	text, err := json.Marshal(obj.Object)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", obj.GetName(), err)
	}
	return append(text, '\n'), nil
}

// withoutNulls removes fields that are null: in a patch they remove a field, in a new
// object they are nothing.
func withoutNulls(v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, e := range v {
			if e == nil {
				delete(v, key)
				continue
			}
			withoutNulls(e)
		}
	case []any:
		for _, e := range v {
			withoutNulls(e)
		}
	}
}
