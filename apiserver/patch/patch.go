package patch

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	goruntime "runtime"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// Bounds on one patch, as Kubernetes has them.
const (
	maxOperations = 10_000  // of a JSON patch
	maxCopied     = 3 << 20 // bytes that its copy operations may make
)

// Bounds against patches that take minutes. An operation of a JSON patch takes a time that grows with the object, because the
// library may copy all of it. A strategic merge patch takes one that grows with the square of the lengths of lists.
const (
	maxOperationBytes = 512 << 20 // operations of a JSON patch times the bytes of the object; 10,000 for one of 52 KiB
	maxMerged         = 2_000     // items of a list together with those of the patch for it, if it is the only one
)

// Types returns the patch types that are served. [Apply] does not implement the last one,
// server-side apply, which needs more than the two texts.
func Types() []types.PatchType {
	return []types.PatchType{types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType, types.ApplyYAMLPatchType}
}

// TypeOf returns the patch type that a Content-Type header names, which must be one of those. The error is a 415
// status.
func TypeOf(contentType string, of []types.PatchType) (types.PatchType, error) {
	name, _, _ := strings.Cut(contentType, ";")
	t := types.PatchType(strings.ToLower(strings.TrimSpace(name)))
	var known []string
	for _, k := range of {
		if t == k {
			return k, nil
		}
		known = append(known, string(k))
	}
	message := "the body of the request was in an unknown format - accepted media types include: " + strings.Join(known, ", ")
	return "", &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType,
		Reason: metav1.StatusReasonUnsupportedMediaType, Message: message,
	}}
}

// Apply returns the JSON of an object after the patch. The schema is a pointer to a
// struct of the object's type; only strategic merge patches look at it.
func Apply(t types.PatchType, patch, original []byte, schema any) ([]byte, error) {
	switch t {
	case types.JSONPatchType:
		return applyOperations(patch, original)
	case types.MergePatchType:
		return applyMerge(patch, original)
	case types.StrategicMergePatchType:
		return applyStrategic(patch, original, schema)
	default:
		return nil, apierrors.NewInternalError(fmt.Errorf("patch type %q cannot be applied to a text", t))
	}
}

func applyOperations(patch, original []byte) ([]byte, error) {
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	if len(operations) > maxOperations {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", maxOperations, len(operations)))
	}
	if most := maxOperationBytes / max(len(original), 1); len(operations) > most {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("The allowed maximum operations in a JSON patch of an object of %d bytes is %d, got %d", len(original), most, len(operations)))
	}
	patched, err := apply(operations, original)
	if err != nil {
		return nil, unprocessable(err)
	}
	return patched, nil
}

// apply applies operations with the library, which dereferences nil if a value that is null has to be compared or
// changed: a test of a list with null in it, an addition to a copy of null.
func apply(operations jsonpatch.Patch, original []byte) (patched []byte, err error) {
	defer func() {
		switch fault := recover().(type) {
		case nil:
		case goruntime.Error:
			patched, err = nil, errors.New("an operation compares or changes a part of a value that is null")
		default:
			panic(fault)
		}
	}()
	for _, o := range operations {
		if path, err := o.Path(); err != nil || path != "" {
			continue
		}
		if _, found := o["value"]; !found && (o.Kind() == "replace" || o.Kind() == "test") {
			return nil, fmt.Errorf("%s operation of the whole document has no value", o.Kind())
		}
	}
	return operations.Apply(original)
}

func init() { // the library has the bound in a variable, and the program one bound for all patches
	jsonpatch.AccumulatedCopySizeLimit = maxCopied
}

// ApplyOperations is [Apply] for a JSON patch that does not come from a client: its errors are no API status errors.
func ApplyOperations(operations jsonpatch.Patch, original []byte) ([]byte, error) {
	if len(operations) > maxOperations {
		return nil, fmt.Errorf("the allowed maximum operations in a JSON patch is %d, got %d", maxOperations, len(operations))
	}
	return apply(operations, original)
}

// isObject reports whether the JSON text b is an object if it is valid at all.
func isObject(b []byte) bool {
	return strings.HasPrefix(strings.TrimLeft(string(b), " \t\r\n"), "{")
}

func applyStrategic(patch, original []byte, schema any) ([]byte, error) {
	if string(bytes.TrimSpace(patch)) == "null" {
		return original, nil // as upstream
	}
	if !isObject(patch) {
		return nil, apierrors.NewBadRequest("error decoding patch: a strategic merge patch is a JSON object")
	}
	if len(patch)+len(original) > maxMerged*2 && mergedItems(patch, original) > maxMerged*maxMerged {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("lists of more than %d items cannot be merged by a strategic merge patch; use a JSON merge patch", maxMerged))
	}
	patched, err := strategicpatch.StrategicMergePatch(original, patch, schema)
	switch {
	case err == nil:
		return patched, nil
	case isAny(err, mergepatch.ErrBadJSONDoc, mergepatch.ErrUnsupportedStrategicMergePatchFormat,
		mergepatch.ErrBadPatchFormatForPrimitiveList, mergepatch.ErrBadPatchFormatForRetainKeys, mergepatch.ErrBadPatchFormatForSetElementOrderList):
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return nil, unprocessable(err)
}

// mergedItems returns the sum of the squares of the lengths of the lists that a strategic merge patch is about. Documents that
// cannot be read have none.
func mergedItems(patch, original []byte) int {
	changes, err := decodeObject(patch)
	if err != nil {
		return 0
	}
	object, err := decodeObject(original)
	if err != nil {
		return 0
	}
	return mergedItemsIn(changes, object)
}

func mergedItemsIn(patch, value any) (sum int) {
	switch p := patch.(type) {
	case map[string]any:
		object, _ := value.(map[string]any)
		for name, change := range p {
			if strings.HasPrefix(name, "$") { // $setElementOrder/NAME and $deleteFromPrimitiveList/NAME
				_, name, _ = strings.Cut(name, "/")
			}
			sum += mergedItemsIn(change, object[name])
		}
	case []any:
		list, _ := value.([]any)
		sum = (len(p) + len(list)) * (len(p) + len(list))
		for _, item := range p {
			sum += mergedItemsIn(item, nil)
		}
	}
	return sum
}

func isAny(err error, targets ...error) bool {
	for _, t := range targets {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}

// unprocessable is the answer to a patch that is well formed and does not fit the
// object: a test that fails, a path that is not there.
func unprocessable(err error) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity,
		Reason: metav1.StatusReasonInvalid, Message: "the server rejected our request due to an error in our request: " + err.Error(),
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Message: err.Error()}}},
	}}
}
