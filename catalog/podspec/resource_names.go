package podspec

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Resources by their use in a quota: it adds up amounts, or counts objects.
var (
	computeResources = []corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
		corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory,
	}
	storageResources = []corev1.ResourceName{
		corev1.ResourceEphemeralStorage, corev1.ResourceRequestsEphemeralStorage, corev1.ResourceLimitsEphemeralStorage, corev1.ResourceRequestsStorage,
	}
	countedResources = []corev1.ResourceName{
		corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices, corev1.ResourceReplicationControllers,
		corev1.ResourceSecrets, corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims,
		corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers,
	}
)

// IsCompute reports whether a resource is CPU or memory, or requests or limits of them.
func IsCompute(name corev1.ResourceName) bool { return slices.Contains(computeResources, name) }

// IsCounted reports whether a quota of a resource limits a number of objects.
func IsCounted(name corev1.ResourceName) bool { return slices.Contains(countedResources, name) }

// IsOfQuota reports whether quotas know a resource by a name without a domain.
func IsOfQuota(name corev1.ResourceName) bool {
	return IsCompute(name) || IsCounted(name) || slices.Contains(storageResources, name) ||
		isHugePages(name) || strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix)
}

// ValidateAnyResourceName checks the name of a resource of containers, claims or quotas.
func ValidateAnyResourceName(name corev1.ResourceName, at *field.Path) (errs field.ErrorList) {
	for _, fault := range validation.IsQualifiedName(string(name)) {
		errs = append(errs, field.Invalid(at, string(name), fault))
	}
	if len(errs) == 0 && !strings.Contains(string(name), "/") && name != corev1.ResourceStorage && !IsOfQuota(name) {
		errs = append(errs, field.Invalid(at, string(name), "must be a standard resource type or fully qualified"))
	}
	return errs
}

// ValidateContainerResourceName checks the name of a resource of containers.
func ValidateContainerResourceName(name corev1.ResourceName, at *field.Path) field.ErrorList {
	if name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage {
		return nil // nearly all of them
	}
	errs := ValidateAnyResourceName(name, at)
	switch {
	case !strings.Contains(string(name), "/"):
		if !isHugePages(name) {
			errs = append(errs, field.Invalid(at, string(name), "must be a standard resource for containers"))
		}
	case !isNative(name) && !IsExtended(name):
		errs = append(errs, field.Invalid(at, string(name), "doesn't follow extended resource name standard"))
	}
	return errs
}
