package custom

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// refuseNulls returns an error with status 422 if u, the configuration of a server-side apply through the subresource, or through
// none, has nulls of fields that have a type, no default, and may not be null. Conversion drops nulls, so the validation of another
// version than the stored one does not see them. Fields that the write does not change are left out.
func (v *version) refuseNulls(u *unstructured.Unstructured, s *structuralschema.Structural, sub string) error {
	var errs field.ErrorList
	for name, property := range s.Properties {
		if isStatus := name == "status"; v.hasStatus && isStatus != (sub == "status") {
			continue
		}
		if value, found := u.Object[name]; found && (value != nil || sub == "") {
			errs = append(errs, nulls(field.NewPath(name), value, &property)...)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	slices.SortFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
	return apierrors.NewInvalid(v.gvk.GroupKind(), u.GetName(), errs)
}

// nulls returns the faults of value, which has the schema s.
func nulls(at *field.Path, value any, s *structuralschema.Structural) (errs field.ErrorList) {
	if s == nil {
		return nil
	}
	switch value := value.(type) {
	case nil:
		kind := s.Type
		if s.XIntOrString {
			kind = "integer,string"
		}
		if kind != "" && !s.Nullable && s.Default.Object == nil {
			errs = append(errs, field.TypeInvalid(at, "null", fmt.Sprintf("%s in body must be of type %s: \"null\"", at, kind)))
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			errs = append(errs, nulls(at.Child(name), value[name], fieldSchema(s, name))...)
		}
	case []any:
		for i := range value {
			errs = append(errs, nulls(at.Index(i), value[i], s.Items)...)
		}
	}
	return errs
}

// dropTypeless drops nulls of fields whose schema has no type, no default, and does not allow null: validation would let them pass.
func dropTypeless(value any, s *structuralschema.Structural) {
	if s == nil {
		return
	}
	switch value := value.(type) {
	case map[string]any:
		for name, v := range value {
			p := fieldSchema(s, name)
			if v == nil && p != nil && p.Type == "" && !p.XIntOrString && !p.Nullable && p.Default.Object == nil {
				delete(value, name)
				continue
			}
			dropTypeless(v, p)
		}
	case []any:
		for i := range value {
			dropTypeless(value[i], s.Items)
		}
	}
}

// fieldSchema returns the schema of a field, or nil.
func fieldSchema(s *structuralschema.Structural, name string) *structuralschema.Structural {
	if p, ok := s.Properties[name]; ok {
		return &p
	}
	if s.AdditionalProperties != nil {
		return s.AdditionalProperties.Structural
	}
	return nil
}
