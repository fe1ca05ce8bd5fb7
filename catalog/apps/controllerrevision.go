package apps

import (
	"bytes"
	"encoding/json"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
)

func controllerRevisions() *catalog.Kind {
	doc := appsv1.ControllerRevision{}.SwaggerDoc()
	return &catalog.Kind{
		GroupVersionKind: gvk("ControllerRevision"),
		Resource:         "controllerrevisions",
		Singular:         "controllerrevision",
		Namespaced:       true,
		New:              func() catalog.Object { return &appsv1.ControllerRevision{} },
		NewList:          func() runtime.Object { return &appsv1.ControllerRevisionList{} },
		Validate:         catalog.Validate(validateRevision),
		Columns: []catalog.Column{
			catalog.Text("Controller", "Controller of the object", ownerOf),
			catalog.Number("Revision", doc["revision"], func(r *appsv1.ControllerRevision) int64 { return r.Revision }),
			catalog.Age(),
		},
	}
}

// ownerOf returns "statefulset.apps/web".
func ownerOf(r *appsv1.ControllerRevision) string {
	ref := metav1.GetControllerOfNoCopy(r)
	if ref == nil {
		return catalog.None
	}
	kind := strings.ToLower(ref.Kind)
	if group, _, ok := strings.Cut(ref.APIVersion, "/"); ok {
		kind += "." + group
	}
	return kind + "/" + ref.Name
}

func validateRevision(r, old *appsv1.ControllerRevision) (errs field.ErrorList) {
	at := field.NewPath("data")
	raw := bytes.TrimSpace(r.Data.Raw)
	var object map[string]json.RawMessage
	switch {
	case r.Data.Object == nil && (len(raw) == 0 || bytes.Equal(raw, []byte("null"))):
		errs = append(errs, field.Required(at, "data is mandatory"))
	case r.Data.Object == nil && json.Unmarshal(raw, &object) != nil:
		errs = append(errs, field.Invalid(at, string(raw), "data should be a JSON object"))
	}
	errs = append(errs, apivalidation.ValidateNonnegativeField(r.Revision, field.NewPath("revision"))...)
	if old != nil && !equality.Semantic.DeepEqual(r.Data, old.Data) {
		errs = append(errs, field.Invalid(at, string(raw), apivalidation.FieldImmutableErrorMsg))
	}
	return errs
}
