package admission_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/resource"
)

// grants are rights as "verb subresource namespace name".
type grants []string

func (g grants) Authorize(_ context.Context, a rbac.Attributes) rbac.Decision {
	for _, one := range g {
		if one == strings.Join([]string{a.Verb, a.Subresource, a.Namespace, a.Name}, " ") {
			return rbac.Decision{Allowed: true}
		}
	}
	return rbac.Decision{}
}

// kindOf returns a kind of the group.
func kindOf(resource string, kinds []*catalog.Kind) *catalog.Kind {
	for _, k := range kinds {
		if k.Resource == resource {
			return k
		}
	}
	return nil
}

func TestDeviceAccess(t *testing.T) {
	const (
		binding = "update binding  "
		driver  = "arbitrary-node:update driver ship gpu.example.com"
		local   = "associated-node:update driver ship gpu.example.com"
	)
	request := resourcev1.DeviceRequest{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "c", AdminAccess: new(true)}}
	free := &resourcev1.ResourceClaim{ObjectMeta: meta("ship", "c")}
	had := free.DeepCopy()
	had.Status.Allocation = &resourcev1.AllocationResult{
		Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{Request: "r", Driver: "gpu.example.com", Pool: "p", Device: "d"}}},
		NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}}},
		}}},
	}
	reserved := had.DeepCopy()
	reserved.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: types.UID("p")}}
	admin := had.DeepCopy()
	admin.Status.Allocation.Devices.Results[0].AdminAccess = new(true)
	reported := had.DeepCopy()
	reported.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: "gpu.example.com", Pool: "p", Device: "d"}}
	asks := free.DeepCopy()
	asks.Spec.Devices.Requests = []resourcev1.DeviceRequest{request}
	elsewhere := asks.DeepCopy()
	elsewhere.Namespace = "bridge"
	template := &resourcev1.ResourceClaimTemplate{ObjectMeta: meta("ship", "t")}
	template.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{request}

	const (
		unlabelled = "Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace"
		noBinding  = `status.allocation: Forbidden: changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="update" permission: resourceclaims.resource.k8s.io is forbidden: User "jim" cannot update resource "resourceclaims/binding" in API group "resource.k8s.io" at the cluster scope`
		noDriver   = `status.devices: Forbidden: changing status.devices requires resource="resourceclaims/driver", verb="[arbitrary-node:update]" permission: resourceclaims.resource.k8s.io "gpu.example.com" is forbidden: User "jim" cannot arbitrary-node:update resource "resourceclaims/driver" in API group "resource.k8s.io" in the namespace "ship"`
	)
	tests := []struct {
		name     string
		may      grants
		obj, old catalog.Object
		node     string // of the user's token
		want     string
	}{
		{"admin access", nil, asks, nil, "", "spec.devices.requests[0].adminAccess: " + unlabelled},
		{"admin access in a template", nil, template, nil, "", "spec.devices.requests[0].adminAccess: " + unlabelled},
		{"admin access in a namespace for that", nil, elsewhere, nil, "", ""},
		{"metadata", nil, free, free, "", ""},
		{"an allocation", grants{binding}, had, free, "", ""},
		{"an allocation by anyone", grants{driver}, had, free, "", noBinding},
		{"a reservation by anyone", nil, reserved, had, "", noBinding},
		{"a deallocation by anyone", nil, free, reserved, "", noBinding},
		{"an allocation with admin access", grants{binding}, admin, free, "", "status.allocation.devices.results[0].adminAccess: " + unlabelled},
		{"one that has it already", nil, admin, admin, "", ""},
		{"devices by their driver", grants{driver}, reported, had, "", ""},
		{"devices by anyone", grants{binding}, reported, had, "", noDriver},
		{"devices by a driver on the node", grants{local}, reported, had, "n1", ""},
		{"devices by a driver on another node", grants{local}, had, reported, "n2", noDriver},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bridge := &corev1.Namespace{ObjectMeta: meta("", "bridge")}
			bridge.Labels = map[string]string{"resource.kubernetes.io/admin-access": "true"}
			spaces := newMemory(map[string]catalog.Object{"namespaces//ship": &corev1.Namespace{ObjectMeta: meta("", "ship")}, "namespaces//bridge": bridge})
			kind := "resourceclaims"
			if tt.obj == catalog.Object(template) {
				kind = "resourceclaimtemplates"
			}
			a := &admission.Attributes{
				Operation: admission.Create, Kind: kindOf(kind, resource.Kinds()), Namespace: tt.obj.GetNamespace(), Name: tt.obj.GetName(),
				User: &auth.User{Name: "jim"}, Object: tt.obj, Old: tt.old,
			}
			if tt.node != "" {
				a.User.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {tt.node}}
			}
			if tt.old != nil {
				a.Operation, a.Subresource = admission.Update, "status"
			}
			err := admission.NewDeviceAccess(spaces, tt.may).Validate(t.Context(), a)
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if want := a.Kind.Kind + `.resource.k8s.io "` + tt.obj.GetName() + `" is invalid: ` + tt.want; err == nil || err.Error() != want {
				t.Errorf("err = %v\nwant %s", err, want)
			}
		})
	}
}
