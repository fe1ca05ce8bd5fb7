// Package resource describes the kinds of the group resource.k8s.io, version v1, for devices that pods
// share: DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice and DeviceTaintRule.
//
// A driver lists its devices in slices, a claim asks for some of them, and an allocation in the status
// of the claim says which it gets. No driver and no allocation is part of this program.
//
// The rules that Kubernetes declares are not here: [declared.With] adds them. Selectors
// in CEL are parsed, but their types are not checked: that needs Kubernetes' library of functions.
package resource
