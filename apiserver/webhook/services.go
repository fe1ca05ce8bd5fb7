package webhook

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/catalog"
)

// Objects reads stored objects. One that does not exist is a NotFound status error.
type Objects interface {
	Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (catalog.Object, error)
	List(ctx context.Context, gvr schema.GroupVersionResource, namespace string, where fields.Set) ([]catalog.Object, error)
}

// Services resolves services by the stored Services and EndpointSlices, so that no proxy and no name server is needed.
type Services struct{ Objects Objects }

// Resolve implements [Resolver]: it returns a random ready endpoint, of the family that the service prefers if there is any.
func (s Services) Resolve(ctx context.Context, namespace, name string, port int32) (string, error) {
	obj, err := s.Objects.Get(ctx, corev1.SchemeGroupVersion.WithResource("services"), namespace, name)
	if err != nil {
		if apierrors.IsNotFound(err) {
			return "", apierrors.NewNotFound(corev1.Resource("service"), name)
		}
		return "", err
	}
	svc, ok := obj.(*corev1.Service)
	if !ok {
		return "", fmt.Errorf("services/%s is a %T", name, obj)
	}
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return net.JoinHostPort(svc.Spec.ExternalName, strconv.Itoa(int(port))), nil
	}
	i := slices.IndexFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port })
	if i < 0 {
		return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", port, name))
	}
	all, err := s.Objects.List(ctx, discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), namespace, nil)
	if err != nil {
		return "", err
	}
	var preferred, others []string
	for _, o := range all {
		slice, ok := o.(*discoveryv1.EndpointSlice)
		if !ok || slice.Labels[discoveryv1.LabelServiceName] != name {
			continue
		}
		found := endpoints(slice, svc.Spec.Ports[i].Name)
		if len(svc.Spec.IPFamilies) == 0 || string(slice.AddressType) == string(svc.Spec.IPFamilies[0]) {
			preferred = append(preferred, found...)
		} else {
			others = append(others, found...)
		}
	}
	if len(preferred) == 0 {
		preferred = others
	}
	if len(preferred) == 0 {
		return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", name))
	}
	return preferred[rand.IntN(len(preferred))], nil
}

// endpoints returns the addresses of a slice that serve a port. Users can write slices: the addresses of the machine's own
// loopback and links are not used.
func endpoints(slice *discoveryv1.EndpointSlice, port string) (found []string) {
	for _, p := range slice.Ports {
		if p.Name == nil || *p.Name != port || p.Port == nil {
			continue
		}
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if len(e.Addresses) == 0 || e.Conditions.Ready != nil && !*e.Conditions.Ready {
				continue
			}
			if a, err := netip.ParseAddr(e.Addresses[0]); err == nil && a.Unmap().IsGlobalUnicast() {
				found = append(found, net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*p.Port))))
			}
		}
	}
	return found
}
