package clusterip

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Manager is the value of the label networkingv1.LabelManagedBy on the IPAddresses of Services.
const Manager = "ipallocator.k8s.io"

// AddressOf returns the IPAddress of an address of a Service.
func AddressOf(svc *corev1.Service, ip netip.Addr) *networkingv1.IPAddress {
	family := corev1.IPv4Protocol
	if ip.Is6() {
		family = corev1.IPv6Protocol
	}
	return &networkingv1.IPAddress{
		TypeMeta: metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "IPAddress"},
		ObjectMeta: metav1.ObjectMeta{Name: ip.String(), Labels: map[string]string{
			networkingv1.LabelIPAddressFamily: string(family), networkingv1.LabelManagedBy: Manager,
		}},
		Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{
			Resource: "services", Namespace: svc.Namespace, Name: svc.Name,
		}},
	}
}

// Allocated reports whether an IPAddress says by its label that it belongs to a Service.
func Allocated(a *networkingv1.IPAddress) bool {
	return a.Labels[networkingv1.LabelManagedBy] == Manager
}

// Refers reports whether an IPAddress names a Service as its parent.
func Refers(a *networkingv1.IPAddress, svc *corev1.Service) bool {
	p := a.Spec.ParentRef
	return p != nil && p.Group == "" && p.Resource == "services" && p.Namespace == svc.Namespace && p.Name == svc.Name
}

// Sole is how catalog.Kind.Sole names a cluster IP.
func Sole(ip netip.Addr) string { return "clusterIP=" + ip.String() }
