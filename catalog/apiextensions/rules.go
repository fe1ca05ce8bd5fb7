package apiextensions

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The rules check definitions in the internal version of Kubernetes, as its API server does: what all versions of a
// definition have in common is at the top of the spec there, and errors name it so.
type (
	internal = apiextensions.CustomResourceDefinition
	spec     = apiextensions.CustomResourceDefinitionSpec
	version  = apiextensions.CustomResourceDefinitionVersion
	schema   = apiextensions.JSONSchemaProps
)

func internalOf(d *definition) (*internal, error) {
	in := &internal{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(d, in, nil); err != nil {
		return nil, err
	}
	return in, nil
}

func validate(d, old *definition) field.ErrorList {
	now, err := internalOf(d)
	if err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec"), "", err.Error())}
	}
	var was *internal
	if old != nil {
		if was, err = internalOf(old); err != nil {
			was = &internal{} // cannot be: it was checked when it was stored
		}
	}
	errs := checkName(d, old)
	errs = append(errs, newRules(now, was).spec(&now.Spec)...)
	if was != nil {
		errs = append(errs, unchanged(now, was)...)
	}
	errs = append(errs, checkNames(&now.Status.AcceptedNames, field.NewPath("status", "acceptedNames"))...)
	errs = append(errs, checkStored(now)...)
	errs = append(errs, checkApproval(now, was)...)
	if keeps := now.Spec.PreserveUnknownFields; keeps != nil && *keeps && (was == nil || !isTrue(was.Spec.PreserveUnknownFields)) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "preserveUnknownFields"), keeps,
			"cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"))
	}
	return errs
}

func validateStatus(d, _ *definition) field.ErrorList {
	now, err := internalOf(d)
	if err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec"), "", err.Error())}
	}
	return checkNames(&now.Status.AcceptedNames, field.NewPath("status", "acceptedNames"))
}

func isTrue(b *bool) bool { return b != nil && *b }

// checkName checks that a new definition has the name of its resource.
func checkName(d, old *definition) (errs field.ErrorList) {
	const message = `must be spec.names.plural+"."+spec.group`
	if old != nil {
		return nil
	}
	want := d.Spec.Names.Plural + "." + d.Spec.Group
	if prefix := d.GenerateName; prefix != "" && prefix != want {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "generateName"), prefix, message))
	}
	if d.Name != want {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), d.Name, message))
	}
	return errs
}

// unchanged checks the fields on which the stored objects depend.
func unchanged(now, was *internal) (errs field.ErrorList) {
	at := field.NewPath("spec")
	is := func(now, was any, at *field.Path) {
		errs = append(errs, apivalidation.ValidateImmutableField(now, was, at)...)
	}
	if apiextensions.IsCRDConditionTrue(was, apiextensions.Established) {
		is(now.Spec.Scope, was.Spec.Scope, at.Child("scope"))
		is(now.Spec.Names.Kind, was.Spec.Names.Kind, at.Child("names", "kind"))
	}
	is(now.Spec.Group, was.Spec.Group, at.Child("group"))
	is(now.Spec.Names.Plural, was.Spec.Names.Plural, at.Child("names", "plural"))
	return errs
}

// checkStored checks that the versions in which objects may be stored are still there.
func checkStored(d *internal) (errs field.ErrorList) {
	at, stored := field.NewPath("status", "storedVersions"), d.Status.StoredVersions
	if len(stored) == 0 {
		return field.ErrorList{field.Invalid(at, stored, "must have at least one stored version")}
	}
	names := map[string]bool{}
	for _, v := range d.Spec.Versions {
		names[v.Name] = true
		if v.Storage && !slices.Contains(stored, v.Name) {
			errs = append(errs, field.Invalid(at, stored, "must have the storage version "+v.Name))
		}
	}
	for i, name := range stored {
		if !names[name] {
			names[name] = true
			errs = append(errs, field.Invalid(at.Index(i), name, fmt.Sprintf("missing from spec.versions; %[1]s was previously a storage version, "+
				"and must remain in spec.versions until a storage migration ensures no data remains persisted in %[1]s and removes %[1]s from status.storedVersions", name)))
		}
	}
	return errs
}

// checkApproval checks that a resource of a group of Kubernetes itself names its approval (KEP-1111). A definition that
// was stored without that stays valid.
func checkApproval(now, was *internal) field.ErrorList {
	if !apihelpers.IsProtectedCommunityGroup(now.Spec.Group) {
		return nil
	}
	state, reason := apihelpers.GetAPIApprovalState(now.Annotations)
	if was != nil {
		if before, _ := apihelpers.GetAPIApprovalState(was.Annotations); before == state {
			return nil
		}
	}
	at := field.NewPath("metadata", "annotations").Key(apiextensionsv1.KubeAPIApprovedAnnotation)
	switch state {
	case apihelpers.APIApproved, apihelpers.APIApprovalBypassed:
		return nil
	case apihelpers.APIApprovalMissing:
		return field.ErrorList{field.Required(at, reason)}
	}
	return field.ErrorList{field.Invalid(at, now.Annotations[apiextensionsv1.KubeAPIApprovedAnnotation], reason)}
}

// spec checks the spec of a definition.
func (r rules) spec(s *spec) (errs field.ErrorList) {
	at := field.NewPath("spec")
	switch faults := validation.IsDNS1123Subdomain(s.Group); {
	case s.Group == "":
		errs = append(errs, field.Required(at.Child("group"), ""))
	case len(faults) > 0:
		errs = append(errs, field.Invalid(at.Child("group"), s.Group, strings.Join(faults, ",")))
	case !strings.Contains(s.Group, "."):
		errs = append(errs, field.Invalid(at.Child("group"), s.Group, "should be a domain with at least one dot"))
	}
	errs = append(errs, oneOf(at.Child("scope"), s.Scope, apiextensions.ClusterScoped, apiextensions.NamespaceScoped)...)

	prunes := !keepsUnknown(s)
	errs = append(errs, r.schemaThere(s, prunes)...)
	if hasDefaults(s) && (s.PreserveUnknownFields == nil || *s.PreserveUnknownFields) {
		errs = append(errs, field.Invalid(at.Child("preserveUnknownFields"), true, "must be false in order to use defaults in the schema"))
	}
	r.structural = r.structural || prunes || hasDefaults(s) || anySchema(s, hasExtensions)

	errs = append(errs, r.versions(s, at)...)
	errs = append(errs, requiredNames(&s.Names, at.Child("names"))...)
	errs = append(errs, checkNames(&s.Names, at.Child("names"))...)

	errs = append(errs, r.of(s.Version).validation(s.Validation, anyStatus(s), at.Child("validation"))...)
	errs = append(errs, checkSubresources(s.Subresources, at.Child("subresources"))...)
	errs = append(errs, checkColumns(s.AdditionalPrinterColumns, at.Child("additionalPrinterColumns"))...)
	if len(s.SelectableFields) > 0 {
		if s.Validation == nil || s.Validation.OpenAPIV3Schema == nil {
			errs = append(errs, field.Invalid(at.Child("selectableFields"), "", "may only be set when validations.schema is included"))
		} else {
			errs = append(errs, r.selectable(s.SelectableFields, s.Validation, at, "")...)
		}
	}
	if c := s.Conversion; c != nil && c.Strategy != apiextensions.NoneConverter && (s.PreserveUnknownFields == nil || *s.PreserveUnknownFields) {
		errs = append(errs, field.Invalid(at.Child("conversion", "strategy"), c.Strategy, "must be None if spec.preserveUnknownFields is true"))
	}
	return append(errs, r.conversion(s.Conversion, at.Child("conversion"))...)
}

func keepsUnknown(s *spec) bool { return s.PreserveUnknownFields != nil && *s.PreserveUnknownFields }

// schemaThere checks that each version has a schema.
func (r rules) schemaThere(s *spec, prunes bool) (errs field.ErrorList) {
	if s.Validation != nil && s.Validation.OpenAPIV3Schema != nil || !r.schema && !prunes {
		return nil
	}
	for i, v := range s.Versions {
		at := field.NewPath("spec", "versions").Index(i).Child("schema", "openAPIV3Schema")
		switch {
		case v.Schema != nil && v.Schema.OpenAPIV3Schema != nil:
		case r.schema:
			errs = append(errs, field.Required(at, ""))
		case v.Served:
			errs = append(errs, field.Required(at, "because otherwise all fields are pruned"))
		}
	}
	return errs
}

// versions checks the versions, and how they go together.
func (r rules) versions(s *spec, at *field.Path) (errs field.ErrorList) {
	all, stored, names := at.Child("versions"), 0, sets.New[string]()
	for i := range s.Versions {
		v := &s.Versions[i]
		names.Insert(v.Name)
		if v.Storage {
			stored++
		}
		if faults := validation.IsDNS1035Label(v.Name); len(faults) > 0 {
			errs = append(errs, field.Invalid(all.Index(i).Child("name"), v.Name, strings.Join(faults, ",")))
		}
		status := hasStatus(v.Subresources)
		if !slices.ContainsFunc(s.Versions, func(v version) bool { return v.Subresources != nil }) {
			status = hasStatus(s.Subresources)
		}
		errs = append(errs, r.version(v, status, all.Index(i))...)
	}
	if len(names) != len(s.Versions) {
		errs = append(errs, field.Invalid(all, s.Versions, "must contain unique version names"))
	}
	if stored != 1 {
		errs = append(errs, field.Invalid(all, s.Versions, "must have exactly one version marked as storage version"))
	}
	if faults := validation.IsDNS1035Label(s.Version); s.Version != "" && len(faults) > 0 {
		errs = append(errs, field.Invalid(at.Child("version"), s.Version, strings.Join(faults, ",")))
	}
	return errs
}

func (r rules) version(v *version, status bool, at *field.Path) (errs field.ErrorList) {
	for _, fault := range deprecationFaults(v) {
		errs = append(errs, field.Invalid(at.Child("deprecationWarning"), v.DeprecationWarning, fault))
	}
	errs = append(errs, r.of(v.Name).validation(v.Schema, status, at.Child("schema"))...)
	errs = append(errs, checkSubresources(v.Subresources, at.Child("subresources"))...)
	errs = append(errs, checkColumns(v.AdditionalPrinterColumns, at.Child("additionalPrinterColumns"))...)
	if len(v.SelectableFields) > 0 {
		if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			errs = append(errs, field.Invalid(at.Child("selectableFields"), "", "may only be set when `version.schema.openAPIV3Schema` is not included"))
		} else {
			errs = append(errs, r.selectable(v.SelectableFields, v.Schema, at, v.Name)...)
		}
	}
	return errs
}

func deprecationFaults(v *version) (faults []string) {
	if v.DeprecationWarning == nil {
		return nil
	}
	if !v.Deprecated {
		return []string{"can only be set for deprecated versions"}
	}
	text := *v.DeprecationWarning
	if len(text) > 256 {
		faults = append(faults, "must be <= 256 characters long")
	}
	if text == "" {
		faults = append(faults, "must not be an empty string")
	}
	if i := strings.IndexFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }); i >= 0 {
		faults = append(faults, fmt.Sprintf("must only contain printable UTF-8 characters; non-printable character found at index %d", i))
	}
	if !utf8.ValidString(text) {
		faults = append(faults, "must only contain printable UTF-8 characters")
	}
	return faults
}

func hasStatus(s *apiextensions.CustomResourceSubresources) bool { return s != nil && s.Status != nil }

func anyStatus(s *spec) bool {
	return hasStatus(s.Subresources) || slices.ContainsFunc(s.Versions, func(v version) bool { return hasStatus(v.Subresources) })
}

// oneOf checks that value, which must be there, is one of accepted.
func oneOf[T ~string](at *field.Path, value T, accepted ...T) field.ErrorList {
	switch {
	case value == "":
		return field.ErrorList{field.Required(at, "")}
	case !slices.Contains(accepted, value):
		return field.ErrorList{field.NotSupported(at, value, accepted)}
	}
	return nil
}

func requiredNames(names *apiextensions.CustomResourceDefinitionNames, at *field.Path) (errs field.ErrorList) {
	for _, f := range []struct{ name, value string }{
		{"plural", names.Plural}, {"singular", names.Singular}, {"kind", names.Kind}, {"listKind", names.ListKind},
	} {
		if f.value == "" {
			errs = append(errs, field.Required(at.Child(f.name), ""))
		}
	}
	return errs
}

// checkNames checks the names that are there.
func checkNames(names *apiextensions.CustomResourceDefinitionNames, at *field.Path) (errs field.ErrorList) {
	label := func(at *field.Path, name, checked, prefix string) {
		if faults := validation.IsDNS1035Label(checked); len(faults) > 0 {
			errs = append(errs, field.Invalid(at, name, prefix+strings.Join(faults, ",")))
		}
	}
	const mixed = "may have mixed case, but should otherwise match: "
	for _, f := range []struct{ name, value, prefix string }{
		{"plural", names.Plural, ""}, {"singular", names.Singular, ""}, {"kind", names.Kind, mixed}, {"listKind", names.ListKind, mixed},
	} {
		checked := f.value
		if f.prefix != "" {
			checked = strings.ToLower(checked)
		}
		if f.value != "" {
			label(at.Child(f.name), f.value, checked, f.prefix)
		}
	}
	for i, name := range names.ShortNames {
		label(at.Child("shortNames").Index(i), name, name, "")
	}
	if names.Kind != "" && names.Kind == names.ListKind {
		errs = append(errs, field.Invalid(at.Child("listKind"), names.ListKind, "kind and listKind may not be the same"))
	}
	for i, name := range names.Categories {
		label(at.Child("categories").Index(i), name, name, "")
	}
	return errs
}

func checkColumns(columns []apiextensions.CustomResourceColumnDefinition, all *field.Path) (errs field.ErrorList) {
	const types, formats = "boolean,date,integer,number,string", "byte,date,date-time,double,float,int32,int64,password"
	among := func(list, s string) bool { return slices.Contains(strings.Split(list, ","), s) }
	for i, c := range columns {
		at := all.Index(i)
		if c.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
		if c.Type == "" {
			errs = append(errs, field.Required(at.Child("type"), "must be one of "+types))
		} else if !among(types, c.Type) {
			errs = append(errs, field.Invalid(at.Child("type"), c.Type, "must be one of "+types))
		}
		if c.Format != "" && !among(formats, c.Format) {
			errs = append(errs, field.Invalid(at.Child("format"), c.Format, "must be one of "+formats))
		}
		if c.JSONPath == "" {
			errs = append(errs, field.Required(at.Child("JSONPath"), ""))
		} else {
			errs = append(errs, simplePath(c.JSONPath, at.Child("JSONPath"))...)
		}
		if branches(c.JSONPath) > maxBranches {
			errs = append(errs, field.Invalid(at.Child("JSONPath"), c.JSONPath, fmt.Sprintf("must have at most %d wildcards, filters, ranges and recursive descents", maxBranches)))
		}
	}
	return errs
}

// branches returns how often a path goes to many values at once.
func branches(path string) int {
	return strings.Count(path, "..") + strings.Count(path, "*") + strings.Count(path, "[?") + strings.Count(path, ":") + strings.Count(path, ",")
}

// simplePath checks a path of a column or a scale, which is not empty.
func simplePath(path string, at *field.Path) field.ErrorList {
	if path[0] != '.' {
		return field.ErrorList{field.Invalid(at, path, "must be a simple json path starting with .")}
	}
	return nil
}

func checkSubresources(s *apiextensions.CustomResourceSubresources, at *field.Path) (errs field.ErrorList) {
	if s == nil || s.Scale == nil {
		return nil
	}
	under := func(name, path string, value any, message string, roots ...string) {
		at := at.Child("scale." + name)
		if faults := simplePath(path, at); len(faults) > 0 {
			errs = append(errs, faults...)
		} else if !slices.ContainsFunc(roots, func(root string) bool { return strings.HasPrefix(path, root) }) {
			errs = append(errs, field.Invalid(at, value, message))
		}
	}
	if path := s.Scale.SpecReplicasPath; path == "" {
		errs = append(errs, field.Required(at.Child("scale.specReplicasPath"), ""))
	} else {
		under("specReplicasPath", path, path, "should be a json path under .spec", ".spec.")
	}
	if path := s.Scale.StatusReplicasPath; path == "" {
		errs = append(errs, field.Required(at.Child("scale.statusReplicasPath"), ""))
	} else {
		under("statusReplicasPath", path, path, "should be a json path under .status", ".status.")
	}
	if path := s.Scale.LabelSelectorPath; path != nil && *path != "" {
		under("labelSelectorPath", *path, path, "should be a json path under either .spec or .status", ".spec.", ".status.")
	}
	return errs
}

// maxSelectableFields is Kubernetes' limit for a version.
const maxSelectableFields = 8

// selectable checks the selectable fields at parent of a version, whose name is empty for the fields of all versions.
func (r rules) selectable(fields []apiextensions.SelectableField, v *apiextensions.CustomResourceValidation, parent *field.Path, name string) (errs field.ErrorList) {
	all := parent.Child("selectableFields")
	structural, err := structuralschema.NewStructural(v.OpenAPIV3Schema)
	if err != nil {
		return field.ErrorList{field.Invalid(parent.Child("schema.openAPIV3Schema"), "", err.Error())}
	}
	seen := sets.New[string]()
	for i, f := range fields {
		at := all.Index(i).Child("jsonPath")
		if f.JSONPath == "" {
			errs = append(errs, field.Required(at, ""))
			continue
		}
		path, found, err := cel.ValidFieldPath(f.JSONPath, structural, cel.WithFieldPathAllowArrayNotation(false))
		if err != nil {
			errs = append(errs, field.Invalid(at, f.JSONPath, fmt.Sprintf("is an invalid path: %v", err)))
			continue
		}
		if path.Root().String() == "metadata" {
			errs = append(errs, field.Invalid(at, f.JSONPath, "must not point to fields in metadata"))
		}
		if found == nil || found.Type != "string" && found.Type != "boolean" && found.Type != "integer" {
			errs = append(errs, field.Invalid(at, f.JSONPath,
				"must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed."))
		}
		if seen.Has(path.String()) {
			errs = append(errs, field.Duplicate(at, f.JSONPath))
		}
		seen.Insert(path.String())
	}
	if len(seen) > maxSelectableFields && !r.manyFields[name] {
		errs = append(errs, field.TooMany(all, len(seen), maxSelectableFields))
	}
	return errs
}
