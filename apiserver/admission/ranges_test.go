package admission_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	servicesGVR  = corev1.SchemeGroupVersion.WithResource("services")
	addressesGVR = networkingv1.SchemeGroupVersion.WithResource("ipaddresses")
	rangesGVR    = networkingv1.SchemeGroupVersion.WithResource("servicecidrs")
)

// newService creates a service with the address, or with any if it is empty.
func (s *served) newService(name, ip string) (*corev1.Service, error) {
	svc := service(name, "ports=80/TCP")
	svc.UID, svc.Spec.ClusterIP = "", ip
	o, err := s.admin.Create(s.Context(), servicesGVR, "ship", "", svc, metav1.CreateOptions{}, "")
	made, _ := o.(*corev1.Service)
	return made, err
}

func (s *served) address(ip string) *networkingv1.IPAddress {
	o, err := s.admin.Get(s.Context(), addressesGVR, "", ip, "")
	if err != nil {
		return nil
	}
	return o.(*networkingv1.IPAddress)
}

func (s *served) newAddress(ip string, parent *networkingv1.ParentReference) error {
	_, err := s.admin.Create(s.Context(), addressesGVR, "", "", &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Name: ip}, Spec: networkingv1.IPAddressSpec{ParentRef: parent},
	}, metav1.CreateOptions{}, "")
	return err
}

func (s *served) remove(gvr schema.GroupVersionResource, namespace, name string) {
	s.Helper()
	if err := s.admin.Delete(s.Context(), gvr, namespace, name, metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
}

// ready creates a ServiceCIDR if it does not exist, and sets its condition Ready.
func (s *served) ready(name string, status metav1.ConditionStatus, cidrs ...string) {
	s.Helper()
	o, err := s.admin.Get(s.Context(), rangesGVR, "", name, "")
	if apierrors.IsNotFound(err) {
		o, err = s.admin.Create(s.Context(), rangesGVR, "", "", &networkingv1.ServiceCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{"example.com/hold"}}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: cidrs},
		}, metav1.CreateOptions{}, "")
	}
	if err != nil {
		s.Fatal(err)
	}
	c := o.(*networkingv1.ServiceCIDR).DeepCopy()
	c.Status.Conditions = []metav1.Condition{{Type: networkingv1.ServiceCIDRConditionReady, Status: status, LastTransitionTime: metav1.Now()}}
	if _, err := s.admin.Update(s.Context(), rangesGVR, "", name, c, metav1.UpdateOptions{}, "status"); err != nil {
		s.Fatal(err)
	}
}

func TestServiceHasIPAddressAtOnce(t *testing.T) {
	s := serve(t)
	svc, err := s.newService("web", "")
	if err != nil {
		t.Fatal(err)
	}
	ip := svc.Spec.ClusterIP
	a := s.address(ip)
	if a == nil || *a.Spec.ParentRef != (networkingv1.ParentReference{Resource: "services", Namespace: "ship", Name: "web"}) ||
		a.Labels[networkingv1.LabelManagedBy] != "ipallocator.k8s.io" || a.Labels[networkingv1.LabelIPAddressFamily] != "IPv4" {
		t.Errorf("the IPAddress of the service is %+v", a)
	}
	// The address is free as soon as the service is deleted, whatever has become of its IPAddress.
	s.remove(servicesGVR, "ship", "web")
	if _, err := s.newService("heir", ip); err != nil {
		t.Fatal(err)
	}
	if a := s.address(ip); a == nil || a.Spec.ParentRef.Name != "heir" {
		t.Errorf("the IPAddress of the next service is %+v", a)
	}
	// A service keeps its address even if a user deletes the IPAddress.
	s.remove(addressesGVR, "", ip)
	if err := s.newAddress(ip, &networkingv1.ParentReference{Resource: "gateways", Name: "g"}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("an IPAddress of something else for the address of a service: %v, want AlreadyExists", err)
	}
	if err := s.newAddress(ip, &networkingv1.ParentReference{Resource: "services", Namespace: "ship", Name: "heir"}); err != nil {
		t.Errorf("the IPAddress of the service itself: %v", err)
	}
}

func TestIPAddressOfOthersIsTaken(t *testing.T) {
	s := serve(t)
	if err := s.newAddress("10.0.0.9", &networkingv1.ParentReference{Group: "example.com", Resource: "gateways", Name: "g"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.newService("web", "10.0.0.9"); err == nil || !strings.Contains(err.Error(), "failed to allocate IP 10.0.0.9: provided IP is already allocated") {
		t.Errorf("an address of something else: %v", err)
	}
	s.remove(addressesGVR, "", "10.0.0.9")
	if _, err := s.newService("web", "10.0.0.9"); err != nil {
		t.Error(err)
	}
}

func TestServiceCIDRsGiveAddresses(t *testing.T) {
	s := serve(t)
	mismatch := "the provided network does not match the current range"
	refused := func(ip, want string) {
		t.Helper()
		if _, err := s.newService("bad", ip); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("address %q: %v, want %q", ip, err, want)
		}
	}
	given := func(name, ip string) {
		t.Helper()
		if svc, err := s.newService(name, ip); err != nil || svc.Spec.ClusterIP != ip {
			t.Errorf("address %q: %v", ip, err)
		}
	}
	s.ready("more", metav1.ConditionFalse, "203.0.113.0/29")
	refused("203.0.113.3", mismatch)
	s.ready("more", metav1.ConditionTrue)
	given("a", "203.0.113.3")
	refused("203.0.113.3", "provided IP is already allocated")
	refused("203.0.113.7", "The range of valid IPs is 203.0.113.0/29")
	given("b", "10.0.0.3")

	// Without the default range every address is from the other one, until it has no more.
	s.ready("kubernetes", metav1.ConditionTrue, "10.0.0.0/24")
	given("c", "10.0.0.4")
	s.remove(rangesGVR, "", "kubernetes")
	refused("10.0.0.5", mismatch)
	for _, name := range []string{"d", "e", "f", "g", "h"} {
		svc, err := s.newService(name, "")
		if err != nil || !strings.HasPrefix(svc.Spec.ClusterIP, "203.0.113.") {
			t.Fatalf("service %s: %v, %v", name, svc, err)
		}
	}
	if _, err := s.newService("i", ""); !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), `failed to allocate a serviceIP for Service "i": range is full`) {
		t.Errorf("beyond the range: %v", err)
	}
	s.remove(rangesGVR, "", "more")
	refused("203.0.113.3", mismatch)
}
