package apply

import (
	"errors"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// conflicting finds the manager in the message of a cause, such as `conflict with "sampan" with subresource "scale" using apps/v1`.
var conflicting = regexp.MustCompile(`^conflict with ("(?:[^"\\]|\\.)*")`)

// byHand reports whether all managers of a conflict of self are commands with which people changed the object: other verbs of sampan, and
// those of kubectl. As with a three-way merge, a file that is applied later has the say over them. Controllers, and clients that apply
// files themselves, keep their fields.
func byHand(err error, self string, live *unstructured.Unstructured) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	appliers := map[string]bool{}
	for _, e := range live.GetManagedFields() {
		if e.Operation == metav1.ManagedFieldsOperationApply {
			appliers[e.Manager] = true
		}
	}
	found := false
	for _, cause := range status.Status().Details.Causes {
		if cause.Type != metav1.CauseTypeFieldManagerConflict {
			continue
		}
		m := conflicting.FindStringSubmatch(cause.Message)
		if m == nil {
			return false
		}
		name := strings.Trim(m[1], `"`)
		switch {
		case name == self: // our own applies do not conflict, so it is an update
		case (name == ServerSideManager || name == "kubectl" || strings.HasPrefix(name, "kubectl-")) && !appliers[name]:
		default:
			return false
		}
		found = true
	}
	return found
}
