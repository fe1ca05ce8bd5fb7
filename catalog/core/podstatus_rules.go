package core

import (
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateStatusDetails checks the status of a pod about its resource claims, and of the users and devices of
// its containers.
func validateStatusDetails(p *corev1.Pod, at *field.Path) field.ErrorList {
	s := &p.Status
	errs := validateClaimStatuses(s.ResourceClaimStatuses, p.Spec.ResourceClaims, at.Child("resourceClaimStatuses"))
	if s.ExtendedResourceClaimStatus != nil {
		errs = append(errs, validateExtendedStatus(s.ExtendedResourceClaimStatus, &p.Spec, at.Child("extendedResourceClaimStatus"))...)
	}
	for _, list := range []struct {
		name       string
		statuses   []corev1.ContainerStatus
		containers []corev1.Container
	}{
		{"containerStatuses", s.ContainerStatuses, p.Spec.Containers},
		{"initContainerStatuses", s.InitContainerStatuses, p.Spec.InitContainers},
		{"ephemeralContainerStatuses", s.EphemeralContainerStatuses, nil},
	} {
		for i := range list.statuses {
			c := &list.statuses[i]
			user := c.User != nil && c.User.Linux != nil && (p.Spec.OS != nil || !plainUser(c.User.Linux))
			if !user && len(c.AllocatedResourcesStatus) == 0 {
				continue // as nearly all: they need no path
			}
			at := at.Child(list.name).Index(i)
			if user {
				errs = append(errs, validateUser(c.User.Linux, p.Spec.OS, at.Child("user", "linux"))...)
			}
			switch {
			case len(c.AllocatedResourcesStatus) == 0:
			case list.name == "ephemeralContainerStatuses":
				errs = append(errs, field.Forbidden(at.Child("allocatedResourcesStatus"), "must not be specified in container status"))
			default:
				errs = append(errs, validateAllocated(c, list.containers, s.ExtendedResourceClaimStatus, at.Child("allocatedResourcesStatus"))...)
			}
		}
	}
	return errs
}

// validateClaimStatuses checks that each status belongs to a claim of the pod, and none twice.
func validateClaimStatuses(statuses []corev1.PodResourceClaimStatus, claims []corev1.PodResourceClaim, at *field.Path) (errs field.ErrorList) {
	if len(statuses) == 0 {
		return nil
	}
	known, seen := map[string]bool{}, map[string]bool{}
	for i := range claims {
		known[claims[i].Name] = true
	}
	for i, s := range statuses {
		at := at.Index(i)
		if !known[s.Name] {
			errs = append(errs, field.Invalid(at.Child("name"), s.Name, "must match the name of an entry in `spec.resourceClaims`"))
		}
		if seen[s.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), s.Name))
		}
		seen[s.Name] = true
		if s.ResourceClaimName != nil {
			errs = append(errs, faults(validation.IsDNS1123Subdomain(*s.ResourceClaimName), at.Child("resourceClaimName"), *s.ResourceClaimName)...)
		}
	}
	return errs
}

// validateExtendedStatus checks the claim that stands for the extended resources of a pod.
func validateExtendedStatus(s *corev1.PodExtendedResourceClaimStatus, spec *corev1.PodSpec, at *field.Path) (errs field.ErrorList) {
	containers := map[string]*corev1.Container{}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			containers[list[i].Name] = &list[i]
		}
	}
	mappings := at.Child("requestMappings")
	if len(s.RequestMappings) == 0 {
		errs = append(errs, field.Required(mappings, "at least one request mapping is required"))
	}
	seen := map[corev1.ContainerExtendedResourceRequest]bool{}
	for i, m := range s.RequestMappings {
		entry := mappings.Index(i)
		if c := containers[m.ContainerName]; c == nil {
			errs = append(errs, field.Invalid(entry.Child("containerName"), m.ContainerName, "must match the name of an entry in spec.initContainers.name or spec.containers.name"))
		} else if _, ok := c.Resources.Requests[corev1.ResourceName(m.ResourceName)]; !ok {
			errs = append(errs, field.Invalid(entry.Child("resourceName"), m.ResourceName, "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests"))
		}
		errs = append(errs, faults(validation.IsDNS1123Label(m.RequestName), at.Child("requestName"), m.RequestName)...)
		if seen[m] {
			errs = append(errs, field.Duplicate(entry.Child("containerName"), m.ContainerName), field.Duplicate(entry.Child("resourceName"), m.ResourceName),
				field.Duplicate(entry.Child("requestName"), m.RequestName))
		}
		seen[m] = true
	}
	if s.ResourceClaimName == "" {
		return append(errs, field.Required(at.Child("resourceClaimName"), ""))
	}
	return append(errs, faults(validation.IsDNS1123Subdomain(s.ResourceClaimName), at.Child("resourceClaimName"), s.ResourceClaimName)...)
}

// plainUser reports whether all numbers of a user are in their range.
func plainUser(u *corev1.LinuxContainerUser) bool {
	odd := func(group int64) bool { return group < 0 || group > math.MaxInt32 }
	return u.UID >= 0 && u.UID <= math.MaxUint32 && !odd(u.GID) && !slices.ContainsFunc(u.SupplementalGroups, odd)
}

// validateUser checks the user as whom a runtime reports that a container runs.
func validateUser(u *corev1.LinuxContainerUser, os *corev1.PodOS, at *field.Path) (errs field.ErrorList) {
	if os != nil && os.Name == corev1.Windows {
		return field.ErrorList{field.Forbidden(at, "cannot be set for a windows pod")}
	}
	if u.UID < 0 || u.UID > math.MaxUint32 {
		errs = append(errs, field.Invalid(at.Child("uid"), u.UID, fmt.Sprintf("must be between 0 and %d, inclusive", int64(math.MaxUint32))))
	}
	errs = append(errs, faults(validation.IsValidGroupID(u.GID), at.Child("gid"), u.GID)...)
	for i, g := range u.SupplementalGroups {
		errs = append(errs, faults(validation.IsValidGroupID(g), at.Child("supplementalGroups").Index(i), g)...)
	}
	return errs
}

const claimPrefix = "claim:"

// validateAllocated checks the health of the devices of a container: each resource is one that the container asks for.
func validateAllocated(c *corev1.ContainerStatus, containers []corev1.Container, extended *corev1.PodExtendedResourceClaimStatus, at *field.Path) (errs field.ErrorList) {
	own := slices.IndexFunc(containers, func(o corev1.Container) bool { return o.Name == c.Name })
	health := []corev1.ResourceHealthStatus{corev1.ResourceHealthStatusHealthy, corev1.ResourceHealthStatusUnhealthy, corev1.ResourceHealthStatusUnknown}
	for i, r := range c.AllocatedResourcesStatus {
		at := at.Index(i)
		if own >= 0 {
			errs = append(errs, validateAskedFor(r.Name, &containers[own], extended, at.Child("name"))...)
		}
		seen := map[corev1.ResourceID]bool{}
		for k, d := range r.Resources {
			at := at.Child("resources").Index(k)
			if !slices.Contains(health, d.Health) {
				errs = append(errs, field.NotSupported(at.Child("health"), d.Health, health))
			}
			if d.Message != nil && *d.Message == "" {
				errs = append(errs, field.Required(at.Child("message"), "must be non-empty if specified"))
			} else if d.Message != nil && len(*d.Message) > corev1.ResourceHealthMessageMaxLength {
				errs = append(errs, field.TooLong(at.Child("message"), *d.Message, corev1.ResourceHealthMessageMaxLength))
			}
			if seen[d.ResourceID] {
				errs = append(errs, field.Duplicate(at.Child("resourceID"), d.ResourceID))
			}
			seen[d.ResourceID] = true
		}
	}
	return errs
}

func validateAskedFor(name corev1.ResourceName, c *corev1.Container, extended *corev1.PodExtendedResourceClaimStatus, at *field.Path) field.ErrorList {
	text, isClaim := strings.CutPrefix(string(name), claimPrefix)
	if !isClaim {
		if _, ok := c.Resources.Requests[name]; ok {
			return nil
		}
		return field.ErrorList{field.Invalid(at, name, "must match one of the container's resource requests")}
	}
	for _, claim := range c.Resources.Claims {
		if text == claim.Name && claim.Request == "" || text == claim.Name+"/"+claim.Request {
			return nil
		}
	}
	if extended != nil && slices.ContainsFunc(extended.RequestMappings, func(m corev1.ContainerExtendedResourceRequest) bool {
		return m.ContainerName == c.Name && text == extended.ResourceClaimName+"/"+m.RequestName
	}) {
		return nil
	}
	return field.ErrorList{field.Invalid(at, name, "must match one of the container's resource claims as 'claim:<claimName>/<requestName>' when container.resources.claims[*].request is set or 'claim:<claimName>' when it is empty")}
}

// validateStayEnded checks that containers that have ended stay so.
func validateStayEnded(now, was []corev1.ContainerStatus, at *field.Path) (errs field.ErrorList) {
	running := map[string]bool{}
	for i := range now {
		if now[i].State.Terminated == nil {
			running[now[i].Name] = true
		}
	}
	for i := range was {
		if was[i].State.Terminated != nil && running[was[i].Name] {
			errs = append(errs, field.Forbidden(at.Index(i).Child("state"), "may not be transitioned to non-terminated state"))
		}
	}
	return errs
}
