package admissionregistration

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// staticSuffix ends the names of objects that other servers read from files.
const staticSuffix = ".static.k8s.io"

// validateStaticSuffix refuses new objects with a reserved name.
func validateStaticSuffix(name string) field.ErrorList {
	if !strings.HasSuffix(name, staticSuffix) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), name, reservedName())}
}

// warnStaticSuffix warns of stored objects with a reserved name.
func warnStaticSuffix(name string) []string {
	if !strings.HasSuffix(name, staticSuffix) {
		return nil
	}
	return []string{"metadata.name: " + reservedName()}
}

func reservedName() string {
	return fmt.Sprintf("names ending with %q are reserved for static manifest-based configurations and cannot be managed via the API", staticSuffix)
}

// oneOf returns an error if v is not among the values, which are in the order of the alphabet.
func oneOf[S ~string](at *field.Path, v S, values ...S) field.ErrorList {
	if slices.Contains(values, v) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, v, values)}
}

// validateOperations checks the operations and the resources of a rule.
func validateOperations(r *admissionregistrationv1.RuleWithOperations, at *field.Path) (errs field.ErrorList) {
	if len(r.Operations) == 0 {
		errs = append(errs, field.Required(at.Child("operations"), ""))
	}
	if len(r.Operations) > 1 && slices.Contains(r.Operations, admissionregistrationv1.OperationAll) {
		errs = append(errs, field.Invalid(at.Child("operations"), r.Operations, "if '*' is present, must not specify other operations"))
	}
	for i, op := range r.Operations {
		errs = append(errs, oneOf(at.Child("operations").Index(i), op, admissionregistrationv1.OperationAll, admissionregistrationv1.Connect,
			admissionregistrationv1.Create, admissionregistrationv1.Delete, admissionregistrationv1.Update)...)
	}
	errs = append(errs, validateNames(r.APIGroups, at.Child("apiGroups"), "API groups")...)
	errs = append(errs, validateNames(r.APIVersions, at.Child("apiVersions"), "API versions")...)
	for i, v := range r.APIVersions {
		if v == "" {
			errs = append(errs, field.Required(at.Child("apiVersions").Index(i), ""))
		}
	}
	errs = append(errs, validateResources(r.Resources, at.Child("resources"))...)
	if r.Scope != nil {
		errs = append(errs, oneOf(at.Child("scope"), *r.Scope,
			admissionregistrationv1.AllScopes, admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope)...)
	}
	return errs
}

// validateNames checks a list that has names or the wildcard alone.
func validateNames(names []string, at *field.Path, what string) (errs field.ErrorList) {
	if len(names) == 0 {
		errs = append(errs, field.Required(at, ""))
	}
	if len(names) > 1 && slices.Contains(names, "*") {
		errs = append(errs, field.Invalid(at, names, "if '*' is present, must not specify other "+what))
	}
	return errs
}

// validateResources checks resources and subresources: wildcards must not stand beside names they include.
func validateResources(resources []string, at *field.Path) (errs field.ErrorList) {
	if len(resources) == 0 {
		errs = append(errs, field.Required(at, ""))
	}
	allOf, everywhere := map[string]bool{}, map[string]bool{} // resources with "/*", and subresources with "*/"
	single, plain := false, false                             // "*", and whether the last resource without a subresource is another
	for i, pattern := range resources {
		resource, sub, hasSub := strings.Cut(pattern, "/")
		switch {
		case pattern == "":
			errs = append(errs, field.Required(at.Index(i), ""))
			continue
		case !hasSub:
			single = single || pattern == "*"
			plain = pattern != "*"
			continue
		}
		if allOf[resource] {
			errs = append(errs, field.Invalid(at.Index(i), pattern, fmt.Sprintf("if '%s/*' is present, must not specify %s", resource, pattern)))
		}
		if everywhere[sub] {
			errs = append(errs, field.Invalid(at.Index(i), pattern, fmt.Sprintf("if '*/%s' is present, must not specify %s", sub, pattern)))
		}
		if sub == "*" {
			allOf[resource] = true
		}
		if resource == "*" {
			everywhere[sub] = true
		}
	}
	if len(resources) > 1 && slices.Contains(resources, "*/*") {
		errs = append(errs, field.Invalid(at, resources, "if '*/*' is present, must not specify other resources"))
	}
	if single && plain {
		errs = append(errs, field.Invalid(at, resources, "if '*' is present, must not specify other resources without subresources"))
	}
	return errs
}
