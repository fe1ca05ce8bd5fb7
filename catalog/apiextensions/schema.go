package apiextensions

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	apiservervalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func openAPITypes() []string {
	return []string{"array", "boolean", "integer", "number", "object", "string"}
}

// validation checks the schema of a version, or the one that all versions have. Status says that the version has the
// status subresource.
func (r rules) validation(v *apiextensions.CustomResourceValidation, status bool, at *field.Path) (errs field.ErrorList) {
	if v == nil {
		return nil
	}
	if root := v.OpenAPIV3Schema; root != nil {
		if errs = tooLarge(root, at.Child("openAPIV3Schema")); len(errs) > 0 {
			return errs
		}
		errs = r.root(root, status, at)
	}
	if len(errs) == 0 {
		if _, _, err := apiservervalidation.NewSchemaValidator(v.OpenAPIV3Schema); err != nil {
			errs = append(errs, field.Invalid(at, "", fmt.Sprintf("error building validator: %v", err)))
		}
	}
	return errs
}

func (r rules) root(root *schema, status bool, parent *field.Path) (errs field.ErrorList) {
	at := parent.Child("openAPIV3Schema")
	if status {
		errs = append(errs, checkRootFields(root, parent)...)
	}
	if root.Nullable {
		errs = append(errs, field.Forbidden(parent.Child("openAPIV3Schema.nullable"), "nullable cannot be true at the root"))
	}
	n := node{rules: r, schema: root, at: at, root: true}
	var unconverted field.ErrorList // shown if nothing else explains it
	if r.structural {
		structural, err := structuralschema.NewStructural(root)
		if err != nil {
			unconverted = field.ErrorList{field.Invalid(at, "", err.Error())}
		} else if faults := checkStructural(structural, r.pruned, at); len(faults) > 0 {
			errs = append(errs, faults...)
		} else {
			n.scope = newScope(root)
		}
	}
	faults, celFaults := n.check()
	errs = append(append(errs, faults...), celFaults...)
	if len(errs) == 0 {
		errs = unconverted
	}
	return append(errs, n.scope.totalFaults(at)...)
}

func checkStructural(s *structuralschema.Structural, pruned bool, at *field.Path) field.ErrorList {
	if errs := structuralschema.ValidateStructural(at, s); len(errs) > 0 {
		return errs
	}
	errs, err := defaulting.ValidateDefaults(context.Background(), at, s, true, pruned)
	if err != nil {
		return field.ErrorList{field.Invalid(at, "", err.Error())}
	}
	return errs
}

// checkRootFields checks that nothing is lost when the schema of the status is taken out of root to check a status alone.
func checkRootFields(root *schema, parent *field.Path) field.ErrorList {
	allowed := []string{
		"Description", "Type", "Format", "Title", "Maximum", "ExclusiveMaximum", "Minimum", "ExclusiveMinimum", "MaxLength", "MinLength", "Pattern",
		"MaxItems", "MinItems", "UniqueItems", "MultipleOf", "Required", "Items", "Properties", "ExternalDocs", "Example", "XPreserveUnknownFields", "XValidations",
	}
	v := reflect.ValueOf(root).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		switch {
		case v.Field(i).IsZero():
		case name == "Type" && root.Type != "object":
			return field.ErrorList{field.Invalid(parent.Child("openAPIV3Schema.type"), root.Type,
				`only "object" is allowed as the type at the root of the schema if the status subresource is enabled`)}
		case !slices.Contains(allowed, name):
			return field.ErrorList{field.Invalid(parent.Child("openAPIV3Schema"), *root,
				fmt.Sprintf(`only %v fields are allowed at the root of the schema if the status subresource is enabled`, allowed))}
		}
	}
	return nil
}

// A relation is how a schema is part of another: the field that has it, and its name or index there.
type relation struct {
	field string
	name  string // of a property, definition or dependency
	index int    // in a list of schemas; -1 if there is none
}

func (r relation) path(at *field.Path) *field.Path {
	at = at.Child(r.field)
	switch {
	case r.name != "":
		return at.Key(r.name)
	case r.index >= 0:
		return at.Index(r.index)
	}
	return at
}

// children visits the schemas directly in s, in a fixed order.
func children(s *schema, visit func(relation, *schema)) {
	one := func(field string, child *schema) {
		if child != nil {
			visit(relation{field, "", -1}, child)
		}
	}
	list := func(field string, all []schema) {
		for i := range all {
			visit(relation{field, "", i}, &all[i])
		}
	}
	named := func(field string, all map[string]schema) {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			child := all[name]
			visit(relation{field, name, -1}, &child)
		}
	}
	if s.AdditionalProperties != nil {
		one("additionalProperties", s.AdditionalProperties.Schema)
	}
	named("properties", s.Properties)
	one("not", s.Not)
	list("allOf", s.AllOf)
	list("oneOf", s.OneOf)
	list("anyOf", s.AnyOf)
	named("definitions", s.Definitions)
	if s.Items != nil {
		one("items", s.Items.Schema)
		list("items", s.Items.JSONSchemas)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Dependencies)) {
		if child := s.Dependencies[name].Schema; child != nil {
			visit(relation{"dependencies", name, -1}, child)
		}
	}
	named("patternProperties", s.PatternProperties)
	if s.AdditionalItems != nil {
		one("additionalItems", s.AdditionalItems.Schema)
	}
}

// A node is a schema on the way down from the root of a version.
type node struct {
	rules
	*schema
	at   *field.Path
	root bool

	meta         bool        // within apiVersion, kind or metadata of an object
	noDefaults   string      // why there may be no defaults; empty if there may
	uncorrelated *field.Path // the nearest to the root of those whose parts cannot be found again in the old object; nil if all can
	scope        *scope      // nil where no rules are compiled
}

// check returns the faults of the schema and those in it, and with their CEL rules, which are not compiled in
// schemas that are wrong.
func (n node) check() (errs, celErrs field.ErrorList) {
	errs = n.standard()
	if n.UniqueItems {
		errs = append(errs, field.Forbidden(n.at.Child("uniqueItems"), "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"))
	}
	if more := n.AdditionalProperties; more != nil && len(n.Properties) != 0 && (!more.Allows || more.Schema != nil) {
		errs = append(errs, field.Forbidden(n.at.Child("additionalProperties"), "additionalProperties and properties are mutual exclusive"))
	}
	children(n.schema, func(r relation, child *schema) {
		if r.field == "patternProperties" || r.field == "additionalItems" {
			return // they are refused
		}
		faults, celFaults := n.child(r, child).check()
		errs, celErrs = append(errs, faults...), append(celErrs, celFaults...)
	})
	errs = append(errs, n.extensions()...)
	for i, v := range n.XValidations {
		errs = append(errs, n.rule(v, n.at.Child("x-kubernetes-validations").Index(i))...)
	}
	if len(errs) == 0 && n.scope != nil && len(n.XValidations) > 0 {
		celErrs = append(celErrs, n.compile()...)
	}
	return errs, celErrs
}

func (n node) child(r relation, child *schema) node {
	c := node{rules: n.rules, schema: child, at: r.path(n.at), meta: n.meta, noDefaults: n.noDefaults, uncorrelated: n.uncorrelated}
	correlated := true
	switch r.field {
	case "additionalProperties":
		if n.meta {
			c.noDefaults = "must not be set inside additionalProperties applying to object metadata"
		}
		c.scope = n.scope.child(n.schema, child, r)
	case "properties":
		correlated = cel.MapIsCorrelatable(n.XMapType)
		if (n.root || n.XEmbeddedResource) && (r.name == "metadata" || r.name == "kind" || r.name == "apiVersion") {
			c.meta = true
			if n.root {
				c.noDefaults = "must not be set in top-level " + r.name
			}
		}
		c.scope = n.scope.child(n.schema, child, r)
	case "items":
		correlated = n.XListType != nil && *n.XListType == "map"
		c.scope = n.scope.child(n.schema, child, r)
	}
	if !correlated && c.uncorrelated == nil {
		c.uncorrelated = n.at
	}
	return c
}

// standard refuses keywords of JSON Schema that Kubernetes lacks.
func (n node) standard() (errs field.ErrorList) {
	forbid := func(found bool, name, message string) {
		if found {
			errs = append(errs, field.Forbidden(n.at.Child(name), message))
		}
	}
	if n.types && n.Type != "" && !slices.Contains(openAPITypes(), n.Type) {
		errs = append(errs, field.NotSupported(n.at.Child("type"), n.Type, openAPITypes()))
	}
	forbid(n.Default != nil && n.noDefaults != "", "default", n.noDefaults)
	forbid(n.ID != "", "id", "id is not supported")
	forbid(n.AdditionalItems != nil, "additionalItems", "additionalItems is not supported")
	forbid(len(n.PatternProperties) != 0, "patternProperties", "patternProperties is not supported")
	forbid(len(n.Definitions) != 0, "definitions", "definitions is not supported")
	forbid(n.Dependencies != nil, "dependencies", "dependencies is not supported")
	forbid(n.Ref != nil, "$ref", "$ref is not supported")
	forbid(n.Type == "null", "type", "type cannot be set to null, use nullable as an alternative")
	forbid(n.Items != nil && len(n.Items.JSONSchemas) != 0, "items", "items must be a schema object and not an array")
	forbid(n.meta && n.XEmbeddedResource, "x-kubernetes-embedded-resource", "must not be used inside of resource meta")
	return errs
}

// extensions checks the fields that Kubernetes added to JSON Schema, except rules.
func (n node) extensions() (errs field.ErrorList) {
	if n.XPreserveUnknownFields != nil && !*n.XPreserveUnknownFields {
		errs = append(errs, field.Invalid(n.at.Child("x-kubernetes-preserve-unknown-fields"), false, "must be true or undefined"))
	}
	typed := func(extension *string, name, want string, values ...string) {
		if extension == nil {
			return
		}
		if message := fmt.Sprintf("must be %s if %s is specified", want, name); n.Type == "" {
			errs = append(errs, field.Required(n.at.Child("type"), message))
		} else if n.Type != want {
			errs = append(errs, field.Invalid(n.at.Child("type"), n.Type, message))
		}
		if !slices.Contains(values, *extension) {
			errs = append(errs, field.NotSupported(n.at.Child(name), *extension, values))
		}
	}
	typed(n.XMapType, "x-kubernetes-map-type", "object", "atomic", "granular")
	typed(n.XListType, "x-kubernetes-list-type", "array", "atomic", "set", "map")
	if n.atomicSets && n.Type == "array" {
		errs = append(errs, checkSetItems(n.schema, n.at)...)
	}
	errs = append(errs, n.mapKeys()...)
	if n.listKeys {
		errs = append(errs, checkListItems(n.schema, n.at)...)
	}
	return errs
}

// checkSetItems checks that items of a set are compared as a whole.
func checkSetItems(s *schema, at *field.Path) field.ErrorList {
	const message = "must be atomic as item of a list with x-kubernetes-list-type=set"
	if s.XListType == nil || *s.XListType != "set" || s.Items == nil || s.Items.Schema == nil {
		return nil
	}
	item := s.Items.Schema
	switch {
	case item.Type == "array" && item.XListType != nil && *item.XListType != "atomic":
		return field.ErrorList{field.Invalid(at.Child("items").Child("x-kubernetes-list-type"), item.XListType, message)}
	case item.Type == "object" && (item.XMapType == nil || *item.XMapType != "atomic"):
		return field.ErrorList{field.Invalid(at.Child("items").Child("x-kubernetes-map-type"), item.XListType, message)}
	}
	return nil
}

// mapKeys checks the keys of a list that is a map.
func (n node) mapKeys() (errs field.ErrorList) {
	listType, keys, items := n.at.Child("x-kubernetes-list-type"), n.at.Child("x-kubernetes-list-map-keys"), n.at.Child("items")
	isMap := n.XListType != nil && *n.XListType == "map"
	if len(n.XListMapKeys) > 0 && !isMap {
		const message = "must be map if x-kubernetes-list-map-keys is non-empty"
		if n.XListType == nil {
			return field.ErrorList{field.Required(listType, message)}
		}
		return field.ErrorList{field.Invalid(listType, *n.XListType, message)}
	}
	if !isMap {
		return nil
	}
	if len(n.XListMapKeys) == 0 {
		errs = append(errs, field.Required(keys, "must not be empty if x-kubernetes-list-type is map"))
	}
	switch {
	case n.Items == nil:
		return append(errs, field.Required(items, "must have a schema if x-kubernetes-list-type is map"))
	case n.Items.Schema == nil:
		return append(errs, field.Invalid(items, n.Items, "must only have a single schema if x-kubernetes-list-type is map"))
	case n.Items.Schema.Type != "object":
		return append(errs, field.Invalid(items.Child("type"), n.Items.Schema.Type, "must be object if parent array's x-kubernetes-list-type is map"))
	}
	seen := map[string]bool{}
	for _, key := range n.XListMapKeys {
		property, found := n.Items.Schema.Properties[key]
		if !found {
			errs = append(errs, field.Invalid(keys, n.XListMapKeys, "entries must all be names of item properties"))
		} else if property.Type == "array" || property.Type == "object" {
			errs = append(errs, field.Invalid(items.Child("properties").Key(key).Child("type"), n.Items.Schema.Type,
				"must be a scalar type if parent array's x-kubernetes-list-type is map"))
		}
		if seen[key] {
			errs = append(errs, field.Invalid(keys, n.XListMapKeys, "must not contain duplicate entries"))
		}
		seen[key] = true
	}
	return errs
}

// checkListItems checks that each item of a set or map is there and has its keys.
func checkListItems(s *schema, at *field.Path) (errs field.ErrorList) {
	if s.XListType == nil || *s.XListType != "set" && *s.XListType != "map" || s.Items == nil || s.Items.Schema == nil {
		return nil
	}
	item, items := s.Items.Schema, at.Child("items")
	if item.Nullable {
		errs = append(errs, field.Forbidden(items.Child("nullable"), "cannot be nullable when x-kubernetes-list-type is "+*s.XListType))
	}
	if *s.XListType == "set" {
		return errs
	}
	for _, key := range s.XListMapKeys {
		property, found := item.Properties[key]
		if !found {
			continue
		}
		at := items.Child("properties").Key(key)
		if property.Default == nil && !slices.Contains(item.Required, key) {
			errs = append(errs, field.Required(at.Child("default"),
				"this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"))
		}
		if property.Nullable {
			errs = append(errs, field.Forbidden(at.Child("nullable"), "this property is in x-kubernetes-list-map-keys, so it cannot be nullable"))
		}
	}
	return errs
}

// rule checks all of a rule but its expressions.
func (n node) rule(v apiextensions.ValidationRule, at *field.Path) (errs field.ErrorList) {
	blank := func(s string) bool { return strings.TrimSpace(s) == "" }
	lines := func(s string) bool { return strings.ContainsAny(s, "\n\r") }
	switch {
	case blank(v.Rule):
		errs = append(errs, field.Required(at.Child("rule"), "rule is not specified"))
	case v.Message != "" && blank(v.Message):
		errs = append(errs, field.Invalid(at.Child("message"), v.Message, "must be non-empty if specified"))
	case lines(strings.TrimSpace(v.Message)):
		errs = append(errs, field.Invalid(at.Child("message"), v.Message, "must not contain line breaks"))
	case lines(strings.TrimSpace(v.Rule)) && v.Message == "":
		errs = append(errs, field.Required(at.Child("message"), "message must be specified if rule contains line breaks"))
	}
	if v.MessageExpression != "" && blank(v.MessageExpression) {
		errs = append(errs, field.Required(at.Child("messageExpression"), "messageExpression must be non-empty if specified"))
	}
	if reasons := []string{
		string(apiextensions.FieldValueDuplicate), string(apiextensions.FieldValueForbidden),
		string(apiextensions.FieldValueInvalid), string(apiextensions.FieldValueRequired),
	}; v.Reason != nil && !slices.Contains(reasons, string(*v.Reason)) {
		errs = append(errs, field.NotSupported(at.Child("reason"), *v.Reason, reasons))
	}
	if v.FieldPath == "" {
		return errs
	}
	if blank(v.FieldPath) {
		errs = append(errs, field.Invalid(at.Child("fieldPath"), v.FieldPath, "must be non-empty if specified"))
	}
	if lines(v.FieldPath) {
		errs = append(errs, field.Invalid(at.Child("fieldPath"), v.FieldPath, "must not contain line breaks"))
	}
	if structural, err := structuralschema.NewStructural(n.schema); err == nil {
		if _, _, err := cel.ValidFieldPath(v.FieldPath, structural); err != nil {
			errs = append(errs, field.Invalid(at.Child("fieldPath"), v.FieldPath, "must be a valid path"))
		}
	}
	return errs
}
