package clienttest

import (
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// applyPatch returns the original with the patch applied; like is of the type
// whose tags say how lists are merged.
func applyPatch(original, patch []byte, kind types.PatchType, like any) ([]byte, error) {
	switch kind {
	case types.JSONPatchType:
		p, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			return nil, err
		}
		return p.Apply(original)
	case types.MergePatchType:
		return jsonpatch.MergePatch(original, patch)
	case types.StrategicMergePatchType:
		return strategicpatch.StrategicMergePatch(original, patch, like)
	default:
		return nil, fmt.Errorf("patches of type %s are not served", kind)
	}
}
