package admission

import (
	"context"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// DeviceAdminAccess refuses claims with access to all devices in namespaces that do not have the label for it, in the words
// of the validation that upstream has in its place.
type DeviceAdminAccess struct{ reader Reader }

// NewDeviceAdminAccess returns the plug-in.
func NewDeviceAdminAccess(r Reader) DeviceAdminAccess { return DeviceAdminAccess{r} }

// Name implements [Plugin].
func (DeviceAdminAccess) Name() string { return "DeviceAdminAccess" }

// Validate implements [Validator].
func (p DeviceAdminAccess) Validate(ctx context.Context, a *Attributes) error {
	var at *field.Path
	switch obj := a.Object.(type) {
	case *resourcev1.ResourceClaim:
		switch {
		case a.Operation == Create && a.Subresource == "":
			at = requestedAdmin(obj.Spec.Devices.Requests)
		case a.Operation == Update && a.Subresource == "status":
			if old, ok := a.Old.(*resourcev1.ResourceClaim); ok && grantedAdmin(old) == nil {
				at = grantedAdmin(obj)
			}
		}
	case *resourcev1.ResourceClaimTemplate:
		if a.Operation == Create {
			at = requestedAdmin(obj.Spec.Spec.Devices.Requests)
		}
	}
	if at == nil {
		return nil
	}
	ns, err := p.reader.Get(ctx, core("namespaces"), "", a.Namespace)
	switch {
	case err != nil:
		err := fmt.Errorf("could not retrieve namespace to verify admin access: %w", err)
		return apierrors.NewInvalid(a.Kind.GroupKind(), a.Name, field.ErrorList{field.InternalError(at, err)})
	case ns.GetLabels()[resourcev1.DRAAdminNamespaceLabelKey] != "true":
		why := fmt.Sprintf("admin access to devices requires the `%s: true` label on the containing namespace", resourcev1.DRAAdminNamespaceLabelKey)
		return apierrors.NewInvalid(a.Kind.GroupKind(), a.Name, field.ErrorList{field.Forbidden(at, why)})
	}
	return nil
}

// requestedAdmin returns where requests ask for admin access, or nil.
func requestedAdmin(requests []resourcev1.DeviceRequest) *field.Path {
	for i, r := range requests {
		if r.Exactly != nil && r.Exactly.AdminAccess != nil && *r.Exactly.AdminAccess {
			return field.NewPath("spec", "devices", "requests").Index(i).Child("adminAccess")
		}
	}
	return nil
}

// grantedAdmin returns where a claim was given admin access, or nil.
func grantedAdmin(c *resourcev1.ResourceClaim) *field.Path {
	if c.Status.Allocation == nil {
		return nil
	}
	for i, r := range c.Status.Allocation.Devices.Results {
		if r.AdminAccess != nil && *r.AdminAccess {
			return field.NewPath("status", "allocation", "devices", "results").Index(i).Child("adminAccess")
		}
	}
	return nil
}
