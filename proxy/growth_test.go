package proxy

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/internal/growthtest"
)

func growthService() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"}, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
			Ports: []corev1.ServicePort{{Name: "p", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: 30000}},
		},
	}
}

func growthSlice() *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new("p"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"}, NodeName: new("n"), Hostname: new("h"), Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}},
	}
}

// TestPlanCostsAreLinear plans Services of which they or their EndpointSlice have one list or map at its largest.
func TestPlanCostsAreLinear(t *testing.T) {
	plan := func(t *testing.T, grow func(svc *corev1.Service, slice *discoveryv1.EndpointSlice, n int)) {
		growthtest.Linear(t, 2000, func(n int) func() {
			svc, slice := growthService(), growthSlice()
			grow(svc, slice, n)
			return func() {
				here := Here{Node: "n", Addresses: []netip.Addr{netip.MustParseAddr("10.2.0.1")}, Loopback: true}
				p := NewPlan(svc, []*discoveryv1.EndpointSlice{slice}, here)
				NextPlan(p.Spent, svc, []*discoveryv1.EndpointSlice{slice}, here)
			}
		})
	}
	for _, f := range growthtest.Fields(reflect.TypeFor[corev1.Service]()) {
		t.Run("service "+f.Path, func(t *testing.T) {
			plan(t, func(svc *corev1.Service, _ *discoveryv1.EndpointSlice, n int) { f.Grow(svc, n, growthtest.Distinct) })
		})
	}
	for _, f := range growthtest.Fields(reflect.TypeFor[discoveryv1.EndpointSlice]()) {
		t.Run("slice "+f.Path, func(t *testing.T) {
			plan(t, func(_ *corev1.Service, slice *discoveryv1.EndpointSlice, n int) {
				f.Grow(slice, n, growthtest.Distinct)
				for i := range slice.Endpoints {
					slice.Endpoints[i].Addresses = []string{fmt.Sprintf("10.1.%d.%d", i>>8&255, i&255)}
				}
			})
		})
	}
	t.Run("ports of both", func(t *testing.T) {
		plan(t, func(svc *corev1.Service, slice *discoveryv1.EndpointSlice, n int) {
			svc.Spec.Ports, slice.Ports = nil, nil
			for i := range n {
				name := fmt.Sprint("p", i)
				svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, Port: int32(i + 1)})
				slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &name, Port: new(int32(i + 1))})
			}
		})
	})
}

// TestTooLargeServiceHasNoRules checks the budget of one Service.
func TestTooLargeServiceHasNoRules(t *testing.T) {
	svc, slice := growthService(), growthSlice()
	for i := range 10_000 {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Port: int32(i + 1)})
		svc.Spec.ExternalIPs = append(svc.Spec.ExternalIPs, fmt.Sprintf("192.0.%d.%d", i>>8, i&255))
	}
	p := NewPlan(svc, []*discoveryv1.EndpointSlice{slice}, Here{})
	if len(p.Rules) > 0 || len(p.Faults) != 1 || p.Faults[0].Reason != "ServiceTooLarge" {
		t.Errorf("%d rules, faults %v", len(p.Rules), p.Faults)
	}
	want := "10001 ports with 10002 addresses and 1 endpoints are more than 1000000 combinations; the service is not proxied"
	if p.Faults[0].Message != want {
		t.Errorf("message %q, want %q", p.Faults[0].Message, want)
	}
	svc.Spec.ExternalIPs = nil
	if p := NewPlan(svc, []*discoveryv1.EndpointSlice{slice}, Here{}); len(p.Rules) < 10_000 || len(p.Faults) > 0 {
		t.Errorf("%d rules, faults %v", len(p.Rules), p.Faults)
	}
}
