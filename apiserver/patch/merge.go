package patch

import (
	"bytes"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// applyMerge applies a JSON merge patch (RFC 7386). Members that are null in objects in lists are left out, as upstream. The
// library for JSON patches merges as well, but in a time that grows with the square of the number of members: minutes for a patch of
// 3 MB.
func applyMerge(patch, original []byte) ([]byte, error) {
	if !isObject(patch) {
		return nil, apierrors.NewBadRequest("error decoding patch: a merge patch of an object is a JSON object")
	}
	changes, err := decodeObject(patch)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	object, err := decodeObject(original)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return json.Marshal(merged(object, changes))
}

// decodeObject reads a JSON object. Numbers stay as they are written.
func decodeObject(text []byte) (map[string]any, error) {
	if !json.Valid(text) { // a decoder would ignore what follows the object
		return nil, json.Unmarshal(text, new(any))
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var object map[string]any
	err := d.Decode(&object)
	return object, err
}

// merged returns a value after a merge patch, which may use both.
func merged(value, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return pruned(patch)
	}
	object, ok := value.(map[string]any)
	if !ok {
		return pruned(patch)
	}
	for name, change := range changes {
		if change == nil {
			delete(object, name)
			continue
		}
		object[name] = merged(object[name], change)
	}
	return object
}

// pruned removes the members that are null from the objects in a value.
func pruned(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			if member == nil {
				delete(v, name)
				continue
			}
			v[name] = pruned(member)
		}
	case []any:
		for i, item := range v {
			v[i] = pruned(item)
		}
	}
	return value
}
