package core

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The generated code calls these functions for fields with the tag +k8s:customValidation. Their
// names and arguments are the generator's.

// ValidateCustom_EvictionResponder_Name refuses names in domains that are reserved for Kubernetes:
// k8s.io, kubernetes.io and the domains below them.
func ValidateCustom_EvictionResponder_Name( //nolint:revive,staticcheck // the generator's name
	_ context.Context, _ operation.Operation, path *field.Path, value, _ *string,
) field.ErrorList {
	if value == nil {
		return nil
	}
	domain, _, _ := strings.Cut(*value, "/")
	domain = "." + strings.TrimRight(strings.ToLower(strings.TrimSpace(domain)), ".")
	if strings.HasSuffix(domain, ".k8s.io") || strings.HasSuffix(domain, ".kubernetes.io") {
		return field.ErrorList{field.Invalid(path, *value, "domain names *.k8s.io, *.kubernetes.io are reserved")}
	}
	return nil
}

// responderPriorities is the number of the lowest priorities, which are reserved for Kubernetes.
const responderPriorities = 1000

// ValidateCustom_EvictionResponder_Priority refuses the priorities that are reserved for Kubernetes.
func ValidateCustom_EvictionResponder_Priority( //nolint:revive,staticcheck // the generator's name
	_ context.Context, _ operation.Operation, path *field.Path, value, _ *int32,
) field.ErrorList {
	if value == nil || *value < 0 || *value >= responderPriorities {
		return nil
	}
	return field.ErrorList{field.Invalid(path, *value, "priorities 0-999 are reserved for responders with *.k8s.io suffix")}
}
