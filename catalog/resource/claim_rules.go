package resource

import (
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog/podspec"
)

func validateClaim(c, old *resourcev1.ResourceClaim) field.ErrorList {
	if old != nil { // a declared rule refuses changes
		return nil
	}
	return validateDevices(&c.Spec.Devices, field.NewPath("spec", "devices"))
}

func validateTemplate(t, old *resourcev1.ResourceClaimTemplate) field.ErrorList {
	at := field.NewPath("spec")
	if old != nil {
		return apivalidation.ValidateImmutableField(t.Spec, old.Spec, at)
	}
	errs := podspec.ValidateTemplateMeta(&t.Spec.ObjectMeta, at.Child("metadata"))
	return append(errs, validateDevices(&t.Spec.Spec.Devices, at.Child("spec", "devices"))...)
}

func validateDevices(c *resourcev1.DeviceClaim, at *field.Path) field.ErrorList {
	known := namesOf(c)
	errs := each(c.Requests, resourcev1.DeviceRequestsMaxSize, at.Child("requests"), validateRequest)
	errs = append(errs, each(c.Constraints, resourcev1.DeviceConstraintsMaxSize, at.Child("constraints"), func(c *resourcev1.DeviceConstraint, at *field.Path) field.ErrorList {
		errs := known.validate(c.Requests, at.Child("requests"))
		if c.MatchAttribute == nil && c.DistinctAttribute == nil {
			errs = append(errs, field.Required(at, `exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set`))
		}
		return errs
	})...)
	return append(errs, each(c.Config, resourcev1.DeviceConfigMaxSize, at.Child("config"), func(c *resourcev1.DeviceClaimConfiguration, at *field.Path) field.ErrorList {
		return append(known.validate(c.Requests, at.Child("requests")), validateConfig(&c.DeviceConfiguration, false, at)...)
	})...)
}

func validateRequest(r *resourcev1.DeviceRequest, at *field.Path) field.ErrorList {
	errs := faults(at.Child("name"), r.Name, validation.IsDNS1123Label(r.Name))
	switch first := len(r.FirstAvailable) > 0; {
	case !first && r.Exactly == nil:
		return append(errs, field.Required(at, "exactly one of `exactly` or `firstAvailable` is required"))
	case first && r.Exactly != nil:
		return append(errs, field.Invalid(at, nil, "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"))
	case first:
		return append(errs, each(r.FirstAvailable, resourcev1.FirstAvailableDeviceRequestMaxSize, at.Child("firstAvailable"), func(s *resourcev1.DeviceSubRequest, at *field.Path) field.ErrorList {
			errs := faults(at.Child("name"), s.Name, validation.IsDNS1123Label(s.Name))
			return append(errs, validateWish(s.Selectors, s.AllocationMode, s.Count, s.Tolerations, at)...)
		})...)
	}
	e, at := r.Exactly, at.Child("exactly")
	if class := at.Child("deviceClassName"); e.DeviceClassName == "" {
		errs = append(errs, field.Required(class, ""))
	} else {
		errs = append(errs, faults(class, e.DeviceClassName, validation.IsDNS1123Subdomain(e.DeviceClassName))...)
	}
	return append(errs, validateWish(e.Selectors, e.AllocationMode, e.Count, e.Tolerations, at)...)
}

func validateWish(
	selectors []resourcev1.DeviceSelector, mode resourcev1.DeviceAllocationMode, count int64, tolerations []resourcev1.DeviceToleration, at *field.Path,
) field.ErrorList {
	errs := validateSelectors(selectors, false, at.Child("selectors"))
	switch {
	case mode == resourcev1.DeviceAllocationModeAll && count != 0:
		errs = append(errs, field.Invalid(at.Child("count"), count, "must not be specified when allocationMode is 'All'"))
	case mode == resourcev1.DeviceAllocationModeExactCount && count <= 0:
		errs = append(errs, field.Invalid(at.Child("count"), count, "must be greater than zero"))
	}
	return append(errs, validateTolerations(tolerations, at.Child("tolerations"))...)
}

// names has the requests of a claim, "request" or "request/subrequest".
type names map[string]bool

func namesOf(c *resourcev1.DeviceClaim) names {
	known := names{}
	for _, r := range c.Requests {
		known[r.Name] = true
		for _, s := range r.FirstAvailable {
			known[r.Name+"/"+s.Name] = true
		}
	}
	return known
}

// validate checks a list of requests.
func (known names) validate(all []string, at *field.Path) field.ErrorList {
	return each(all, resourcev1.DeviceRequestsMaxSize, at, func(name *string, at *field.Path) field.ErrorList { return known.validateOne(*name, at) })
}

func (known names) validateOne(name string, at *field.Path) (errs field.ErrorList) {
	const wanted = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
	parts := strings.Split(name, "/")
	if len(parts) > 2 {
		return field.ErrorList{field.Invalid(at, name, wanted)}
	}
	for _, p := range parts {
		errs = append(errs, faults(at, p, validation.IsDNS1123Label(p))...)
	}
	if !known[name] {
		errs = append(errs, field.Invalid(at, name, wanted))
	}
	return errs
}

// A deviceID names an allocated device, or a share of one.
type deviceID struct{ Driver, Pool, Device, ShareID string }

// allocated returns the devices that a claim has.
func allocated(s *resourcev1.ResourceClaimStatus) map[deviceID]bool {
	all := map[deviceID]bool{}
	if s.Allocation == nil {
		return all
	}
	for _, r := range s.Allocation.Devices.Results {
		id := deviceID{Driver: r.Driver, Pool: r.Pool, Device: r.Device}
		if r.ShareID != nil {
			id.ShareID = string(*r.ShareID)
		}
		all[id] = true
	}
	return all
}

func statusID(d *resourcev1.AllocatedDeviceStatus) deviceID {
	id := deviceID{Driver: d.Driver, Pool: d.Pool, Device: d.Device}
	if d.ShareID != nil {
		id.ShareID = *d.ShareID
	}
	return id
}

func validateStatus(c, old *resourcev1.ResourceClaim) field.ErrorList {
	at := field.NewPath("status")
	s, was := &c.Status, &old.Status
	reserved := at.Child("reservedFor")
	errs := each(s.ReservedFor, resourcev1.ResourceClaimReservedForMaxSize, reserved, func(r *resourcev1.ResourceClaimConsumerReference, at *field.Path) (errs field.ErrorList) {
		for _, f := range []struct{ name, value string }{{"resource", r.Resource}, {"name", r.Name}, {"uid", string(r.UID)}} {
			if f.value == "" {
				errs = append(errs, field.Required(at.Child(f.name), ""))
			}
		}
		return errs
	})
	has := allocated(s)
	for i := range s.Devices {
		errs = append(errs, validateDeviceStatus(&s.Devices[i], has, at.Child("devices").Index(i))...)
	}
	switch {
	case len(s.ReservedFor) == 0:
	case s.Allocation == nil:
		errs = append(errs, field.Forbidden(reserved, "may not be specified when `allocated` is not set"))
	case c.DeletionTimestamp != nil:
		for _, r := range s.ReservedFor {
			if !slices.Contains(was.ReservedFor, r) {
				errs = append(errs, field.Forbidden(reserved, "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"))
				break
			}
		}
	}
	// An allocation does not change, and is not checked again.
	switch at := at.Child("allocation"); {
	case s.Allocation == nil:
	case was.Allocation != nil:
		errs = append(errs, apivalidation.ValidateImmutableField(s.Allocation, was.Allocation, at)...)
	default:
		errs = append(errs, validateAllocation(s.Allocation, namesOf(&c.Spec.Devices), at)...)
	}
	return errs
}

func validateAllocation(a *resourcev1.AllocationResult, known names, at *field.Path) field.ErrorList {
	devices := at.Child("devices")
	errs := each(a.Devices.Results, resourcev1.AllocationResultsMaxSize, devices.Child("results"), func(r *resourcev1.DeviceRequestAllocationResult, at *field.Path) field.ErrorList {
		errs := known.validateOne(r.Request, at.Child("request"))
		errs = append(errs, faults(at.Child("device"), r.Device, validation.IsDNS1123Label(r.Device))...)
		errs = append(errs, validateBinding(r.BindingConditions, r.BindingFailureConditions, at)...)
		return append(errs, validateTolerations(r.Tolerations, at.Child("tolerations"))...)
	})
	// Those of the class and those of the claim.
	const most = 2 * resourcev1.DeviceConfigMaxSize
	errs = append(errs, each(a.Devices.Config, most, devices.Child("config"), func(c *resourcev1.DeviceAllocationConfiguration, at *field.Path) field.ErrorList {
		return append(known.validate(c.Requests, at.Child("requests")), validateConfig(&c.DeviceConfiguration, false, at)...)
	})...)
	if a.NodeSelector != nil {
		errs = append(errs, podspec.ValidateNodeSelector(a.NodeSelector, at.Child("nodeSelector"))...)
	}
	return errs
}

func validateDeviceStatus(d *resourcev1.AllocatedDeviceStatus, has map[deviceID]bool, at *field.Path) field.ErrorList {
	errs := validateDriver(d.Driver, at.Child("driver"))
	errs = append(errs, validatePool(d.Pool, at.Child("pool"))...)
	errs = append(errs, faults(at.Child("device"), d.Device, validation.IsDNS1123Label(d.Device))...)
	if id := statusID(d); !has[id] {
		errs = append(errs, field.Invalid(at, id, "must be an allocated device in the claim"))
	}
	errs = append(errs, validateConditions(d.Conditions, resourcev1.AllocatedDeviceStatusMaxConditions, at.Child("conditions"))...)
	if d.Data != nil && len(d.Data.Raw) > 0 {
		errs = append(errs, validateRaw(d.Data, resourcev1.AllocatedDeviceStatusDataMaxLength, at.Child("data"))...)
	}
	if n := d.NetworkData; n != nil {
		errs = append(errs, each(n.IPs, resourcev1.NetworkDeviceDataMaxIPs, at.Child("networkData", "ips"), func(ip *string, at *field.Path) field.ErrorList {
			return validation.IsValidInterfaceAddress(at, *ip)
		})...)
	}
	return errs
}
