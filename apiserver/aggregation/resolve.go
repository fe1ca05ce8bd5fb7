package aggregation

import (
	"fmt"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	registrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// A located is where the servers of an APIService are: their addresses with ports, those of the preferred family first. Reason
// and message, in upstream's words, say why there are none.
type located struct {
	addresses       []string
	reason, message string
}

// locate finds the servers of an APIService. svc is nil if there is no such Service; slices are those of the Service.
func locate(ref *registrationv1.ServiceReference, svc *corev1.Service, all []*discoveryv1.EndpointSlice) located {
	fail := func(reason, format string, args ...any) located {
		return located{reason: reason, message: fmt.Sprintf(format, args...)}
	}
	if svc == nil {
		return fail("ServiceNotFound", "service/%s in %q is not present", ref.Name, ref.Namespace)
	}
	port := *ref.Port
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return located{addresses: []string{net.JoinHostPort(svc.Spec.ExternalName, strconv.Itoa(int(port)))}}
	}
	i := slices.IndexFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port })
	if i < 0 {
		return fail("ServicePortError", "service/%s in %q is not listening on port %d", ref.Name, ref.Namespace, port)
	}
	if len(all) == 0 {
		return fail("EndpointsNotFound", "cannot find endpointslices for service/%s in %q", ref.Name, ref.Namespace)
	}
	name := svc.Spec.Ports[i].Name
	var preferred, others []string
	for _, s := range all {
		found := addresses(s, name)
		if len(svc.Spec.IPFamilies) == 0 || string(s.AddressType) == string(svc.Spec.IPFamilies[0]) {
			preferred = append(preferred, found...)
		} else {
			others = append(others, found...)
		}
	}
	if len(preferred)+len(others) == 0 {
		return fail("MissingEndpoints", "endpointslices for service/%s in %q have no addresses with port name %q", ref.Name, ref.Namespace, name)
	}
	if len(preferred) == 0 {
		preferred = others
	}
	slices.Sort(preferred)
	return located{addresses: slices.Compact(preferred)}
}

// addresses returns the ready addresses of a slice with the port of that name.
func addresses(s *discoveryv1.EndpointSlice, port string) (found []string) {
	for _, p := range s.Ports {
		if p.Name == nil || *p.Name != port || p.Port == nil {
			continue
		}
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			if len(e.Addresses) > 0 && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				found = append(found, net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*p.Port))))
			}
		}
	}
	return found
}
