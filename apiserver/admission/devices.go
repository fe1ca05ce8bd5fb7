package admission

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/catalog"
)

// An Authorizer decides what a user may do.
type Authorizer interface {
	Authorize(ctx context.Context, a rbac.Attributes) rbac.Decision
}

// DeviceAccess checks the access that claims ask for, and the rights of users who write the status of claims: administrative access is for
// namespaces with a label, allocations and reservations are for users who may write resourceclaims/binding, and the status of
// devices is for users who may write resourceclaims/driver by the name of the driver. Upstream's strategies check the same.
type DeviceAccess struct {
	objects Reader
	may     Authorizer
}

// NewDeviceAccess returns the plug-in.
func NewDeviceAccess(objects Reader, may Authorizer) DeviceAccess { return DeviceAccess{objects, may} }

// Name implements [Plugin].
func (DeviceAccess) Name() string { return "DeviceAccess" }

// Validate implements [Validator].
func (p DeviceAccess) Validate(ctx context.Context, a *Attributes) error {
	var errs field.ErrorList
	switch obj := a.Object.(type) {
	case *resourcev1.ResourceClaim:
		old, _ := a.Old.(*resourcev1.ResourceClaim)
		switch {
		case a.Operation == Create && a.Subresource == "":
			errs = p.requests(ctx, a, obj.Spec.Devices.Requests)
		case a.Operation == Update && a.Subresource == "status" && old != nil:
			errs = p.status(ctx, a, &obj.Status, &old.Status)
		}
	case *resourcev1.ResourceClaimTemplate:
		if a.Operation == Create {
			errs = p.requests(ctx, a, obj.Spec.Spec.Devices.Requests)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	name := a.Name
	if name == "" {
		name = a.Object.GetName()
	}
	return catalog.Invalid(a.Kind.GroupVersionKind.GroupKind(), name, errs)
}

// requests refuses administrative access where the namespace does not permit it.
func (p DeviceAccess) requests(ctx context.Context, a *Attributes, all []resourcev1.DeviceRequest) field.ErrorList {
	for i := range all {
		if e := all[i].Exactly; e != nil && e.AdminAccess != nil && *e.AdminAccess {
			return p.admin(ctx, a, field.NewPath("spec", "devices", "requests").Index(i).Child("adminAccess"))
		}
	}
	return nil
}

func (p DeviceAccess) admin(ctx context.Context, a *Attributes, at *field.Path) field.ErrorList {
	obj, err := p.objects.Get(ctx, core("namespaces"), "", a.Namespace)
	if err != nil {
		return field.ErrorList{field.InternalError(at, fmt.Errorf("could not retrieve namespace to verify admin access: %w", err))}
	}
	if space, ok := obj.(*corev1.Namespace); ok && space.Labels[resourcev1.DRAAdminNamespaceLabelKey] == "true" {
		return nil
	}
	return field.ErrorList{field.Forbidden(at, fmt.Sprintf("admin access to devices requires the `%s: true` label on the containing namespace", resourcev1.DRAAdminNamespaceLabelKey))}
}

// adminResult returns the index of the first device that is allocated with administrative access, or -1.
func adminResult(s *resourcev1.ResourceClaimStatus) int {
	if s.Allocation == nil {
		return -1
	}
	return slices.IndexFunc(s.Allocation.Devices.Results, func(r resourcev1.DeviceRequestAllocationResult) bool {
		return r.AdminAccess != nil && *r.AdminAccess
	})
}

func (p DeviceAccess) status(ctx context.Context, a *Attributes, s, old *resourcev1.ResourceClaimStatus) (errs field.ErrorList) {
	at := field.NewPath("status")
	if i := adminResult(s); i >= 0 && adminResult(old) < 0 {
		errs = append(errs, p.admin(ctx, a, at.Child("allocation", "devices", "results").Index(i).Child("adminAccess"))...)
	}
	same := equality.Semantic.DeepEqual
	if !same(s.Allocation, old.Allocation) || !same(s.ReservedFor, old.ReservedFor) {
		if err := p.allowed(ctx, a, rbac.Attributes{Verb: "update", Subresource: resourcev1.SubresourceBinding}); err != nil {
			errs = append(errs, field.Forbidden(at.Child("allocation"), fmt.Sprintf(
				`changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="update" permission: %s`, err)))
		}
	}
	if s.Allocation == nil {
		return errs
	}
	verbs := []string{resourcev1.VerbPrefixArbitraryNode + "update"}
	if node := onlyNode(s.Allocation); node != "" && slices.Equal(a.User.Extra["authentication.kubernetes.io/node-name"], []string{node}) {
		verbs = []string{resourcev1.VerbPrefixAssociatedNode + "update", resourcev1.VerbPrefixArbitraryNode + "update"}
	}
	for _, driver := range writtenDrivers(s, old) {
		var err error
		for _, verb := range verbs {
			right := rbac.Attributes{Verb: verb, Subresource: resourcev1.SubresourceDriver, Namespace: a.Namespace, Name: driver}
			refusal := p.allowed(ctx, a, right)
			if refusal == nil {
				err = nil
				break
			}
			if err == nil {
				err = refusal
			}
		}
		if err != nil {
			errs = append(errs, field.Forbidden(at.Child("devices"), fmt.Sprintf(
				`changing status.devices requires resource="resourceclaims/driver", verb="%s" permission: %s`, verbs, err)))
		}
	}
	return errs
}

// allowed returns nil if the user has a right about claims. Whether an update was a patch is not known here: the right to
// update counts.
func (p DeviceAccess) allowed(ctx context.Context, a *Attributes, right rbac.Attributes) error {
	right.User, right.Group, right.Version, right.Resource = a.User, a.Kind.Group, a.Kind.Version, a.Kind.Resource
	if d := p.may.Authorize(ctx, right); !d.Allowed {
		return rbac.Forbidden(right, d)
	}
	return nil
}

// onlyNode returns the node to which an allocation is bound by name, or "".
func onlyNode(a *resourcev1.AllocationResult) string {
	if a.NodeSelector == nil || len(a.NodeSelector.NodeSelectorTerms) != 1 {
		return ""
	}
	t := &a.NodeSelector.NodeSelectorTerms[0]
	if len(t.MatchExpressions) > 0 || len(t.MatchFields) != 1 {
		return ""
	}
	if f := &t.MatchFields[0]; f.Key == metav1.ObjectNameField && f.Operator == corev1.NodeSelectorOpIn && len(f.Values) == 1 {
		return f.Values[0]
	}
	return ""
}

// writtenDrivers returns the drivers for whose devices the status is new, different or gone, in order.
func writtenDrivers(s, old *resourcev1.ResourceClaimStatus) []string {
	type key struct{ driver, pool, device, share string }
	keyed := func(s *resourcev1.ResourceClaimStatus) map[key]*resourcev1.AllocatedDeviceStatus {
		all := map[key]*resourcev1.AllocatedDeviceStatus{}
		for i := range s.Devices {
			d := &s.Devices[i]
			k := key{driver: d.Driver, pool: d.Pool, device: d.Device}
			if d.ShareID != nil {
				k.share = *d.ShareID
			}
			all[k] = d
		}
		return all
	}
	was, is, drivers := keyed(old), keyed(s), map[string]bool{}
	for k, d := range is {
		if before := was[k]; before == nil || !equality.Semantic.DeepEqual(before, d) {
			drivers[k.driver] = true
		}
	}
	for k := range was {
		if is[k] == nil {
			drivers[k.driver] = true
		}
	}
	return slices.Sorted(maps.Keys(drivers))
}
