package core

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
)

func endpoints() *catalog.Kind {
	return &catalog.Kind{
		GroupVersionKind: gvk("Endpoints"),
		Resource:         "endpoints",
		Warn:             catalog.Warn(warnOfEndpoints),
		CreatedByUpdate:  true,
		Singular:         "endpoints",
		ShortNames:       []string{"ep"},
		Namespaced:       true,
		New:              func() catalog.Object { return &corev1.Endpoints{} },
		NewList:          func() runtime.Object { return &corev1.EndpointsList{} },
		Default:          catalog.Default(defaultEndpoints),
		Validate:         catalog.Validate(validateEndpoints),
		Columns: []catalog.Column{
			catalog.Text("Endpoints", corev1.Endpoints{}.SwaggerDoc()["subsets"], formatEndpoints),
			catalog.Age(),
		},
	}
}

func defaultEndpoints(e *corev1.Endpoints) {
	for i := range e.Subsets {
		for j := range e.Subsets[i].Ports {
			if p := &e.Subsets[i].Ports[j]; p.Protocol == "" {
				p.Protocol = corev1.ProtocolTCP
			}
		}
	}
}

// formatEndpoints lists the first three and counts the rest.
func formatEndpoints(e *corev1.Endpoints) string {
	const most = 3
	var all []string
	for _, s := range e.Subsets {
		if len(s.Ports) == 0 { // a headless service may have none
			for _, a := range s.Addresses {
				all = append(all, a.IP)
			}
		}
		for _, p := range s.Ports {
			for _, a := range s.Addresses {
				all = append(all, net.JoinHostPort(a.IP, strconv.Itoa(int(p.Port))))
			}
		}
	}
	if len(all) > most {
		return fmt.Sprintf("%s + %d more...", strings.Join(all[:most], ","), len(all)-most)
	}
	if len(e.Subsets) == 0 {
		return catalog.None
	}
	return strings.Join(all, ",")
}

func validateEndpoints(e, old *corev1.Endpoints) field.ErrorList {
	var errs field.ErrorList
	for i, s := range e.Subsets {
		at := field.NewPath("subsets").Index(i)
		if len(s.Addresses) == 0 && len(s.NotReadyAddresses) == 0 {
			errs = append(errs, field.Required(at, "must specify `addresses` or `notReadyAddresses`"))
		}
		for j, a := range s.Addresses {
			errs = append(errs, validateEndpoint(a, at.Child("addresses").Index(j))...)
		}
		for j, a := range s.NotReadyAddresses {
			errs = append(errs, validateEndpoint(a, at.Child("notReadyAddresses").Index(j))...)
		}
		for j, p := range s.Ports {
			at := at.Child("ports").Index(j)
			if p.Name == "" && len(s.Ports) > 1 {
				errs = append(errs, field.Required(at.Child("name"), ""))
			} else if p.Name != "" {
				errs = append(errs, faults(validation.IsDNS1123Label(p.Name), at.Child("name"), p.Name)...)
			}
			errs = append(errs, faults(validation.IsValidPortNum(int(p.Port)), at.Child("port"), p.Port)...)
			errs = append(errs, validateProtocol(p.Protocol, at.Child("protocol"))...)
			if p.AppProtocol != nil {
				errs = append(errs, faults(validation.IsQualifiedName(*p.AppProtocol), at.Child("appProtocol"), *p.AppProtocol)...)
			}
		}
	}
	return errs
}

func validateEndpoint(a corev1.EndpointAddress, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if bad := validation.IsValidIPForLegacyField(at.Child("ip"), a.IP, true, nil); len(bad) > 0 {
		errs = append(errs, bad...)
		errs = append(errs, field.Invalid(at.Child("ip"), a.IP, "must be a valid IP address"))
	} else {
		errs = append(errs, apiAddress(a.IP, at.Child("ip"))...)
	}
	if a.Hostname != "" {
		errs = append(errs, faults(validation.IsDNS1123Label(a.Hostname), at.Child("hostname"), a.Hostname)...)
	}
	if a.NodeName != nil {
		errs = append(errs, faults(validation.IsDNS1123Subdomain(*a.NodeName), at.Child("nodeName"), *a.NodeName)...)
	}
	return errs
}

// apiAddress refuses addresses that mean something else on every machine:
// forwarding to them would open what listens on a node for itself.
func apiAddress(ip string, at *field.Path) field.ErrorList {
	a, err := netip.ParseAddr(ip)
	if err != nil {
		return nil
	}
	var errs field.ErrorList
	if a.IsUnspecified() {
		errs = append(errs, field.Invalid(at, ip, fmt.Sprintf("may not be unspecified (%v)", ip)))
	}
	if a.IsLoopback() {
		errs = append(errs, field.Invalid(at, ip, "may not be in the loopback range (127.0.0.0/8, ::1/128)"))
	}
	if a.IsLinkLocalUnicast() {
		errs = append(errs, field.Invalid(at, ip, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"))
	}
	if a.IsLinkLocalMulticast() {
		errs = append(errs, field.Invalid(at, ip, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"))
	}
	return errs
}
