package custom

import (
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sampan-io/sampan/catalog"
)

// coerce does for u what decoding does for a Go type: it drops unknown fields and checks the metadata, its own and that
// of embedded objects. See [catalog.Kind.Coerce].
func (v *version) coerce(u *unstructured.Unstructured, c catalog.Coercion) (unknown []string, err error) {
	kind, hasKind, err := unstructured.NestedString(u.Object, "kind")
	if err != nil {
		return nil, err
	}
	apiVersion, hasVersion, err := unstructured.NestedString(u.Object, "apiVersion")
	if err != nil {
		return nil, err
	}
	meta, unknown, err := readMeta(u, c.Strict, c.Stored)
	if err != nil {
		return nil, err
	}
	s := v.source.get()
	if !v.keepsUnknown {
		unknown = append(unknown, pruning.PruneWithOptions(u.Object, s.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: c.Strict})...)
		switch {
		case !c.Applied:
			defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, s.structural)
		case v.hub != nil:
			if err := v.refuseNulls(u, s.structural, c.Sub); err != nil {
				return nil, err
			}
		default:
			dropTypeless(u.Object, s.structural)
		}
	}
	if s.embedded {
		fault, more := objectmeta.CoerceWithOptions(nil, u.Object, s.structural, false, objectmeta.CoerceOptions{DropInvalidFields: c.Stored, ReturnUnknownFieldPaths: c.Strict})
		if fault != nil {
			return nil, fault
		}
		unknown = append(unknown, more...)
	}
	if hasKind {
		u.SetKind(kind)
	}
	if hasVersion {
		u.SetAPIVersion(apiVersion)
	}
	if err := meta.restore(u, c.Stored); err != nil {
		return nil, err
	}
	return unknown, nil
}

// A metadata is that of an object before unknown fields were dropped from the object: as a map that has nothing to be
// dropped, or decoded.
type metadata struct {
	plain   map[string]any
	decoded *metav1.ObjectMeta
}

func readMeta(u *unstructured.Unstructured, strict, stored bool) (m metadata, unknown []string, err error) {
	if plain, ok := u.Object["metadata"].(map[string]any); ok && plainMeta(plain) {
		return metadata{plain: plain}, nil, nil
	}
	m.decoded, _, unknown, err = objectmeta.GetObjectMetaWithOptions(u.Object, objectmeta.ObjectMetaOptions{DropMalformedFields: stored, ReturnUnknownFieldPaths: strict})
	return m, unknown, err
}

// restore gives u the metadata. Objects that very old servers stored have no generation.
func (m metadata) restore(u *unstructured.Unstructured, stored bool) error {
	if m.plain != nil {
		u.Object["metadata"] = m.plain
		return nil
	}
	if m.decoded == nil {
		return nil
	}
	if stored && m.decoded.Generation == 0 {
		m.decoded.Generation = 1
	}
	return objectmeta.SetObjectMeta(u.Object, m.decoded)
}

// plainMeta reports whether decoding and encoding metadata would change nothing, as for nearly all objects; false says
// nothing.
func plainMeta(meta map[string]any) bool {
	for name, value := range meta {
		ok := false
		switch name {
		case "name", "namespace", "uid", "resourceVersion", "generateName":
			ok = isText(value)
		case "generation":
			n, isNumber := value.(int64)
			ok = isNumber && n != 0
		case "creationTimestamp":
			ok = isTime(value)
		case "labels", "annotations":
			ok = all(value, func(_ string, v any) bool { _, is := v.(string); return is })
		case "managedFields":
			entries, is := value.([]any)
			ok = is && len(entries) > 0
			for _, entry := range entries {
				ok = ok && all(entry, plainManager)
			}
		}
		if !ok {
			return false
		}
	}
	return meta["generation"] != nil || meta["uid"] == nil // otherwise it is stored without one: see restore
}

func plainManager(name string, value any) bool {
	switch name {
	case "manager", "operation", "apiVersion", "fieldsType", "subresource":
		return isText(value)
	case "time":
		return isTime(value)
	case "fieldsV1":
		return all(value, func(_ string, v any) bool { _, is := v.(map[string]any); return is })
	}
	return false
}

func isText(value any) bool {
	s, ok := value.(string)
	return ok && s != ""
}

// isTime reports whether value is a time as it is always encoded: "2026-01-01T00:00:00Z".
func isTime(value any) bool {
	s, ok := value.(string)
	const form = "0000-00-00T00:00:00Z"
	if !ok || len(s) != len(form) {
		return false
	}
	for i := range len(s) {
		if digit := s[i] >= '0' && s[i] <= '9'; digit != (form[i] == '0') || !digit && s[i] != form[i] {
			return false
		}
	}
	at := metav1.Time{}
	return at.UnmarshalQueryParameter(s) == nil && at.Year() > 1
}

// all reports whether yes is true of all entries of a map that is not empty.
func all(value any, yes func(string, any) bool) bool {
	m, ok := value.(map[string]any)
	for name, v := range m {
		ok = ok && yes(name, v)
	}
	return ok && len(m) > 0
}
