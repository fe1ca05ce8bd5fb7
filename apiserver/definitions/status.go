package definitions

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

type (
	definition = apiextensionsv1.CustomResourceDefinition
	condition  = apiextensionsv1.CustomResourceDefinitionCondition
	names      = apiextensionsv1.CustomResourceDefinitionNames
)

// taken has the names that a group uses already: those of resources and those of kinds.
type taken struct{ resources, kinds map[string]bool }

func newTaken() taken { return taken{map[string]bool{}, map[string]bool{}} }

func (t taken) add(n *names) {
	for _, name := range append([]string{n.Plural, n.Singular}, n.ShortNames...) {
		t.resources[name] = true
	}
	t.kinds[n.Kind], t.kinds[n.ListKind] = true, true
}

// accept returns the names under which a definition is served, given its names so far and those of others, and the condition
// NamesAccepted. A name that is taken stays as it was before.
func accept(want, have *names, others taken) (names, condition) {
	accepted := *have
	c := condition{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue, Reason: "NoConflicts", Message: "no conflicts found"}
	refuse := func(reason, message string) {
		c.Status, c.Reason, c.Message = apiextensionsv1.ConditionFalse, reason, message
	}
	one := func(want, have string, others map[string]bool, to *string, reason string) {
		if want != have && others[want] {
			refuse(reason, inUse(want))
			return
		}
		*to = want
	}
	one(want.Plural, have.Plural, others.resources, &accepted.Plural, "PluralConflict")
	one(want.Singular, have.Singular, others.resources, &accepted.Singular, "SingularConflict")
	var conflicts []string
	for _, name := range want.ShortNames {
		if others.resources[name] && !slices.Contains(have.ShortNames, name) && !slices.Contains(conflicts, inUse(name)) {
			conflicts = append(conflicts, inUse(name))
		}
	}
	switch {
	case len(conflicts) > 1: // as a list of errors is written
		refuse("ShortNamesConflict", "["+strings.Join(conflicts, ", ")+"]")
	case len(conflicts) == 1:
		refuse("ShortNamesConflict", conflicts[0])
	default:
		accepted.ShortNames = want.ShortNames
	}
	one(want.Kind, have.Kind, others.kinds, &accepted.Kind, "KindConflict")
	one(want.ListKind, have.ListKind, others.kinds, &accepted.ListKind, "ListKindConflict")
	accepted.Categories = want.Categories
	return accepted, c
}

func inUse(name string) string { return fmt.Sprintf("%q is already in use", name) }

// approval returns the condition KubernetesAPIApprovalPolicyConformant, or nil if the group is not one of Kubernetes.
func approval(d *definition) *condition {
	if !apihelpers.IsProtectedCommunityGroup(d.Spec.Group) {
		return nil
	}
	state, message := apihelpers.GetAPIApprovalState(d.Annotations)
	c := &condition{Type: apiextensionsv1.KubernetesAPIApprovalPolicyConformant, Status: apiextensionsv1.ConditionFalse, Message: message}
	switch state {
	case apihelpers.APIApprovalInvalid:
		c.Reason = "InvalidAnnotation"
	case apihelpers.APIApprovalMissing:
		c.Reason = "MissingAnnotation"
	case apihelpers.APIApproved:
		c.Status, c.Reason = apiextensionsv1.ConditionTrue, "ApprovedAnnotation"
	case apihelpers.APIApprovalBypassed:
		c.Reason = "UnapprovedAnnotation"
	default:
		c.Status, c.Reason = apiextensionsv1.ConditionUnknown, "UnknownAnnotation"
	}
	return c
}

// structural returns the condition NonStructuralSchema, or nil if all schemas are structural.
func structural(d *definition) *condition {
	var errs field.ErrorList
	if d.Spec.PreserveUnknownFields {
		errs = append(errs, field.Invalid(field.NewPath("spec", "preserveUnknownFields"), true, "must be false"))
	}
	for i := range d.Spec.Versions {
		v := &d.Spec.Versions[i]
		s, err := schemaOf(v)
		if err != nil {
			return &condition{
				Type: apiextensionsv1.NonStructuralSchema, Status: apiextensionsv1.ConditionUnknown, Reason: "StructuralError",
				Message: fmt.Sprintf("failed to check validation schema for version %s: %v", v.Name, err),
			}
		}
		if s != nil {
			errs = append(errs, structuralschema.ValidateStructural(field.NewPath("spec", "versions").Index(i).Child("schema", "openAPIV3Schema"), s)...)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return &condition{
		Type: apiextensionsv1.NonStructuralSchema, Status: apiextensionsv1.ConditionTrue, Reason: "Violations", Message: errs.ToAggregate().Error(),
	}
}

// schemaOf returns the structural schema of a version, or nil if it has none.
func schemaOf(v *apiextensionsv1.CustomResourceDefinitionVersion) (*structuralschema.Structural, error) {
	if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
		return nil, nil // there is none
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, &internal, nil); err != nil {
		return nil, err
	}
	return structuralschema.NewStructural(&internal)
}

// terminating returns the condition Terminating.
func terminating(still bool, reason, message string) condition {
	c := condition{Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionFalse, Reason: reason, Message: message}
	if still {
		c.Status = apiextensionsv1.ConditionTrue
	}
	return c
}

// set puts a condition into the status of d, if it says something else than before. It reports whether it did.
func set(d *definition, c *condition) bool {
	if old := apihelpers.FindCRDCondition(d, c.Type); old != nil && old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message {
		return false
	}
	apihelpers.SetCRDCondition(d, *c)
	return true
}

func established(d *definition) bool {
	return apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established)
}
