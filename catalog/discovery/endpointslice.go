package discovery

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
)

// Limits of one slice.
const (
	maxEndpoints = 1000
	maxPorts     = 20000
	maxAddresses = 100
	maxTopology  = 16
	maxHints     = 8
)

// Kinds returns the kinds of discovery.k8s.io.
func Kinds() []*catalog.Kind { return []*catalog.Kind{endpointSlices()} }

func endpointSlices() *catalog.Kind {
	doc := discoveryv1.EndpointSlice{}.SwaggerDoc()
	return &catalog.Kind{
		GroupVersionKind: discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"),
		Resource:         "endpointslices",
		Warn:             catalog.WarnChange(warnings),
		Singular:         "endpointslice",
		Namespaced:       true,
		New:              func() catalog.Object { return &discoveryv1.EndpointSlice{} },
		NewList:          func() runtime.Object { return &discoveryv1.EndpointSliceList{} },
		Default:          catalog.Default(defaultSlice),
		Generation:       true,
		Counted:          catalog.Object.GetLabels,
		Prepare:          catalog.Prepare(dropTopology),
		Validate:         catalog.Validate(validateSlice),
		Columns: []catalog.Column{
			catalog.Text("AddressType", doc["addressType"], func(s *discoveryv1.EndpointSlice) string { return string(s.AddressType) }),
			catalog.Text("Ports", doc["ports"], formatPorts),
			catalog.Text("Endpoints", doc["endpoints"], formatEndpoints),
			catalog.Age(),
		},
	}
}

// dropTopology drops the deprecated topology of endpoints that are written, as v1 says. The name of a node that was only there becomes
// that of the endpoint, so that clients that write back an object lose nothing.
func dropTopology(s, old *discoveryv1.EndpointSlice) {
	if old != nil && equality.Semantic.DeepEqual(s.Endpoints, old.Endpoints) {
		return
	}
	nodes := map[string]bool{}
	if old != nil {
		for i := range old.Endpoints {
			nodes[old.Endpoints[i].DeprecatedTopology[corev1.LabelHostname]] = true
		}
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		node := e.DeprecatedTopology[corev1.LabelHostname]
		if e.NodeName == nil && node != "" && nodes[node] && len(validation.IsDNS1123Subdomain(node)) == 0 {
			e.NodeName = &node
		}
		e.DeprecatedTopology = nil
	}
}

// shown is how many ports or addresses a table names.
const shown = 3

func short(all []string) string {
	switch {
	case strings.Join(all, ",") == "":
		return catalog.Unset
	case len(all) > shown:
		return fmt.Sprintf("%s + %d more...", strings.Join(all[:shown], ","), len(all)-shown)
	}
	return strings.Join(all, ",")
}

func formatPorts(s *discoveryv1.EndpointSlice) string {
	var all []string
	for _, p := range s.Ports {
		switch {
		case p.Port != nil:
			all = append(all, fmt.Sprint(*p.Port))
		case p.Name != nil:
			all = append(all, *p.Name)
		default:
			all = append(all, "*")
		}
	}
	return short(all)
}

func formatEndpoints(s *discoveryv1.EndpointSlice) string {
	var all []string
	for _, e := range s.Endpoints {
		all = append(all, e.Addresses...)
	}
	return short(all)
}

func defaultSlice(s *discoveryv1.EndpointSlice) {
	for i := range s.Ports {
		p := &s.Ports[i]
		if p.Name == nil {
			p.Name = new("")
		}
		if p.Protocol == nil {
			p.Protocol = new(corev1.ProtocolTCP)
		}
	}
}

func validateSlice(s, old *discoveryv1.EndpointSlice) field.ErrorList {
	errs := validateAddressType(s)
	errs = append(errs, validateEndpoints(s, field.NewPath("endpoints"))...)
	errs = append(errs, validatePorts(s.Ports, field.NewPath("ports"))...)
	if old != nil {
		errs = append(errs, apivalidation.ValidateImmutableField(s.AddressType, old.AddressType, field.NewPath("addressType"))...)
	}
	return errs
}

func validateAddressType(s *discoveryv1.EndpointSlice) field.ErrorList {
	all := []discoveryv1.AddressType{discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}
	switch {
	case s.AddressType == "":
		return field.ErrorList{field.Required(field.NewPath("addressType"), "")}
	case !slices.Contains(all, s.AddressType):
		return field.ErrorList{field.NotSupported(field.NewPath("addressType"), s.AddressType, all)}
	}
	return nil
}

func validateEndpoints(s *discoveryv1.EndpointSlice, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(s.Endpoints) > maxEndpoints {
		return append(errs, field.TooMany(at, len(s.Endpoints), maxEndpoints))
	}
	for i, e := range s.Endpoints {
		at := at.Index(i)
		if len(e.Addresses) == 0 {
			errs = append(errs, field.Required(at.Child("addresses"), ""))
		} else if len(e.Addresses) > maxAddresses {
			errs = append(errs, field.TooMany(at.Child("addresses"), len(e.Addresses), maxAddresses))
		}
		for j, a := range e.Addresses {
			errs = append(errs, validateAddress(a, s.AddressType, at.Child("addresses").Index(j))...)
		}
		if e.NodeName != nil {
			errs = append(errs, faults(validation.IsDNS1123Subdomain(*e.NodeName), at.Child("nodeName"), *e.NodeName)...)
		}
		if e.Hostname != nil {
			errs = append(errs, faults(validation.IsDNS1123Label(*e.Hostname), at.Child("hostname"), *e.Hostname)...)
		}
		if len(e.DeprecatedTopology) > maxTopology {
			errs = append(errs, field.TooMany(at.Child("deprecatedTopology"), len(e.DeprecatedTopology), maxTopology))
		}
		errs = append(errs, metav1validation.ValidateLabels(e.DeprecatedTopology, at.Child("deprecatedTopology"))...)
		if e.Hints != nil {
			errs = append(errs, validateHints(e.Hints, at.Child("hints"))...)
		}
	}
	return errs
}

func validateAddress(a string, t discoveryv1.AddressType, at *field.Path) field.ErrorList {
	if t == discoveryv1.AddressTypeFQDN {
		return validation.IsFullyQualifiedDomainName(at, a)
	}
	errs := validation.IsValidIPForLegacyField(at, a, true, nil)
	ip, err := netip.ParseAddr(a)
	if err != nil {
		return errs
	}
	switch {
	case t == discoveryv1.AddressTypeIPv4 && !ip.Is4():
		errs = append(errs, field.Invalid(at, a, "must be an IPv4 address"))
	case t == discoveryv1.AddressTypeIPv6 && !ip.Is6():
		errs = append(errs, field.Invalid(at, a, "must be an IPv6 address"))
	}
	// Such an address is another machine on every node.
	for _, no := range []struct {
		is   bool
		what string
	}{
		{ip.IsUnspecified(), fmt.Sprintf("may not be unspecified (%v)", a)},
		{ip.IsLoopback(), "may not be in the loopback range (127.0.0.0/8, ::1/128)"},
		{ip.IsLinkLocalUnicast(), "may not be in the link-local range (169.254.0.0/16, fe80::/10)"},
		{ip.IsLinkLocalMulticast(), "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"},
	} {
		if no.is {
			errs = append(errs, field.Invalid(at, a, no.what))
		}
	}
	return errs
}

func validateHints(h *discoveryv1.EndpointHints, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	check := func(name string, all []string, rule func(string) []string) {
		at := at.Child(name)
		if len(all) > maxHints {
			errs = append(errs, field.TooMany(at, len(all), maxHints))
			return
		}
		seen := map[string]bool{}
		for i, n := range all {
			if seen[n] {
				errs = append(errs, field.Duplicate(at.Index(i).Child("name"), n))
			}
			seen[n] = true
			errs = append(errs, faults(rule(n), at.Index(i).Child("name"), n)...)
		}
	}
	var zones, nodes []string
	for _, z := range h.ForZones {
		zones = append(zones, z.Name)
	}
	for _, n := range h.ForNodes {
		nodes = append(nodes, n.Name)
	}
	check("forZones", zones, validation.IsValidLabelValue)
	check("forNodes", nodes, validation.IsDNS1123Subdomain)
	return errs
}

func validatePorts(ports []discoveryv1.EndpointPort, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(ports) > maxPorts {
		return append(errs, field.TooMany(at, len(ports), maxPorts))
	}
	names := map[string]bool{}
	all := []corev1.Protocol{corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP}
	for i, p := range ports {
		at := at.Index(i)
		if p.Name != nil {
			if *p.Name != "" {
				errs = append(errs, faults(validation.IsDNS1123Label(*p.Name), at.Child("name"), *p.Name)...)
			}
			if names[*p.Name] {
				errs = append(errs, field.Duplicate(at.Child("name"), *p.Name))
			}
			names[*p.Name] = true
		}
		if p.Protocol == nil {
			errs = append(errs, field.Required(at.Child("protocol"), ""))
		} else if !slices.Contains(all, *p.Protocol) {
			errs = append(errs, field.NotSupported(at.Child("protocol"), *p.Protocol, all))
		}
		if p.Port != nil {
			errs = append(errs, faults(validation.IsValidPortNum(int(*p.Port)), at.Child("port"), *p.Port)...)
		}
		if p.AppProtocol != nil {
			errs = append(errs, faults(validation.IsQualifiedName(*p.AppProtocol), at.Child("appProtocol"), *p.AppProtocol)...)
		}
	}
	return errs
}

func faults(sentences []string, at *field.Path, value any) field.ErrorList {
	var errs field.ErrorList
	for _, s := range sentences {
		errs = append(errs, field.Invalid(at, value, s))
	}
	return errs
}

// warnings warns of outdated types, and of addresses that some readers misunderstand. Controllers write right ones.
func warnings(s, old *discoveryv1.EndpointSlice) (all []string) {
	if s.AddressType == discoveryv1.AddressTypeFQDN {
		if old == nil {
			all = append(all, "spec.addressType: FQDN endpoints are deprecated")
		}
		return all
	}
	switch s.Labels[discoveryv1.LabelManagedBy] {
	case "endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io":
		return all
	}
	for i := range s.Endpoints {
		for j, a := range s.Endpoints[i].Addresses {
			all = append(all, validation.GetWarningsForIP(field.NewPath("endpoints").Index(i).Child("addresses").Index(j), a)...)
		}
	}
	return all
}
