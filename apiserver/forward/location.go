package forward

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// podLocation returns the URL of a target in a pod.
func podLocation(pod *corev1.Pod, t Target) (*url.URL, error) {
	port := t.Port
	if port == "" {
		for i := range pod.Spec.Containers {
			if ports := pod.Spec.Containers[i].Ports; len(ports) > 0 {
				port = strconv.Itoa(int(ports[0].ContainerPort))
				break
			}
		}
	}
	if len(pod.Status.PodIPs) == 0 {
		return nil, errNotAllowed
	}
	address, err := netip.ParseAddr(pod.Status.PodIPs[0].IP)
	if err != nil || !allowed(address) {
		return nil, errNotAllowed
	}
	host := address.String()
	if address.Is6() {
		host = "[" + host + "]"
	}
	if port != "" {
		if !isPort(port) {
			return nil, unreachable(fmt.Errorf("dial tcp: lookup tcp/%s: unknown port", port), false)
		}
		host += ":" + port
	}
	return locate(t, host), nil
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// serviceLocation returns the URL of a target in a ready pod of a service, a random one of the family that the service
// prefers if there is any.
func (f *Forwarder) serviceLocation(ctx context.Context, svc *corev1.Service, t Target) (*url.URL, error) {
	port := t.Port
	if n, err := strconv.ParseInt(port, 10, 64); err == nil {
		i := slices.IndexFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool { return int64(p.Port) == n })
		if i < 0 {
			return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", n, svc.Name))
		}
		port = svc.Spec.Ports[i].Name
	}
	objects, err := f.opts.Objects.List(ctx, discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), svc.Namespace, nil)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	var preferred, others []candidate
	for _, o := range objects {
		slice, ok := o.(*discoveryv1.EndpointSlice)
		if !ok || slice.Labels[discoveryv1.LabelServiceName] != svc.Name {
			continue
		}
		found := candidates(slice, port)
		if len(svc.Spec.IPFamilies) == 0 || string(slice.AddressType) == string(svc.Spec.IPFamilies[0]) {
			preferred = append(preferred, found...)
		} else {
			others = append(others, found...)
		}
	}
	for _, list := range [][]candidate{preferred, others} {
		rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		for _, c := range list {
			if f.isPod(ctx, svc.Namespace, c.endpoint) {
				return locate(t, net.JoinHostPort(c.endpoint.Addresses[0], strconv.Itoa(int(c.port)))), nil
			}
		}
	}
	return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", svc.Name))
}

// A candidate is a ready endpoint with the port that is wanted.
type candidate struct {
	endpoint *discoveryv1.Endpoint
	port     int32
}

func candidates(slice *discoveryv1.EndpointSlice, port string) (found []candidate) {
	for _, p := range slice.Ports {
		if p.Name == nil || *p.Name != port || p.Port == nil {
			continue
		}
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if len(e.Addresses) > 0 && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				found = append(found, candidate{e, *p.Port})
			}
		}
	}
	return found
}

// isPod reports whether an endpoint is a pod of the namespace, with an address that is allowed: users can write slices
// with any address.
func (f *Forwarder) isPod(ctx context.Context, namespace string, e *discoveryv1.Endpoint) bool {
	address, err := netip.ParseAddr(e.Addresses[0])
	if ref := e.TargetRef; err != nil || !allowed(address) || ref == nil || ref.Namespace != namespace {
		return false
	}
	o, err := f.opts.Objects.Get(ctx, corev1.SchemeGroupVersion.WithResource("pods"), namespace, e.TargetRef.Name)
	if err != nil {
		return false
	}
	pod, ok := o.(*corev1.Pod)
	return ok && slices.ContainsFunc(pod.Status.PodIPs, func(ip corev1.PodIP) bool { return ip.IP == e.Addresses[0] })
}

// nodeLocation returns the URL of a target on a node, and the transport to it.
func (f *Forwarder) nodeLocation(ctx context.Context, node *corev1.Node, t Target) (*url.URL, http.RoundTripper, error) {
	k, err := f.opts.Kubelet(node)
	if err != nil {
		return nil, nil, err
	}
	toKubelet := t.Port == "" || t.Port == k.Port
	if !toKubelet && !isPort(t.Port) {
		return nil, nil, unreachable(fmt.Errorf("dial tcp: lookup tcp/%s: unknown port", t.Port), false)
	}
	if !toKubelet || !k.Verified {
		if err := checkHost(ctx, k.Host); err != nil {
			return nil, nil, apierrors.NewBadRequest(err.Error())
		}
	}
	if toKubelet {
		t.Scheme = "https"
		return locate(t, net.JoinHostPort(k.Host, k.Port)), k.Transport, nil
	}
	return locate(t, net.JoinHostPort(k.Host, t.Port)), f.transport, nil
}

// checkHost returns an error if a host has an address that is not allowed.
func checkHost(ctx context.Context, host string) error {
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return err
	}
	for _, a := range addresses {
		if !allowed(a) {
			return errors.New("address not allowed")
		}
	}
	return nil
}
