package networking

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/declared"
	"github.com/sampan-io/sampan/internal/clusterip"
)

var readWrite = []string{"get", "patch", "update"}

// Kinds returns the kinds of networking.k8s.io.
func Kinds() []*catalog.Kind {
	return []*catalog.Kind{ingressClasses(), ingresses(), ipAddresses(), networkPolicies(), serviceCIDRs()}
}

func networkPolicies() *catalog.Kind {
	doc := networkingv1.NetworkPolicySpec{}.SwaggerDoc()
	return &catalog.Kind{
		GroupVersionKind: networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"),
		Resource:         "networkpolicies",
		Singular:         "networkpolicy",
		ShortNames:       []string{"netpol"},
		Namespaced:       true,
		New:              func() catalog.Object { return &networkingv1.NetworkPolicy{} },
		NewList:          func() runtime.Object { return &networkingv1.NetworkPolicyList{} },
		Default:          catalog.Default(defaultPolicy),
		Validate:         declared.With(catalog.Validate(validatePolicy), ""),
		Warn:             catalog.WarnChange(policyWarnings),
		Generation:       true,
		Columns: []catalog.Column{
			catalog.Text("Pod-Selector", doc["podSelector"], func(p *networkingv1.NetworkPolicy) string {
				return metav1.FormatLabelSelector(&p.Spec.PodSelector)
			}),
			catalog.Age(),
		},
	}
}

func ingresses() *catalog.Kind {
	return &catalog.Kind{
		GroupVersionKind: networkingv1.SchemeGroupVersion.WithKind("Ingress"),
		Resource:         "ingresses",
		Singular:         "ingress",
		ShortNames:       []string{"ing"},
		Namespaced:       true,
		New:              func() catalog.Object { return &networkingv1.Ingress{} },
		NewList:          func() runtime.Object { return &networkingv1.IngressList{} },
		Prepare: catalog.Prepare(func(i, old *networkingv1.Ingress) {
			i.Status = networkingv1.IngressStatus{}
			if old != nil {
				i.Status = old.Status
			}
		}),
		Validate:   catalog.Validate(validateIngress),
		Warn:       catalog.WarnChange(ingressWarnings),
		Generation: true,
		Columns: []catalog.Column{
			catalog.Text("Class", "The name of the IngressClass resource that should be used for additional configuration", func(i *networkingv1.Ingress) string {
				if i.Spec.IngressClassName == nil {
					return catalog.None
				}
				return *i.Spec.IngressClassName
			}),
			catalog.Text("Hosts", "Hosts that incoming requests are matched against before the ingress rule", hosts),
			catalog.Text("Address", "Address is a list containing ingress points for the load-balancer", addresses),
			catalog.Text("Ports", "Ports of TLS configurations that open", func(i *networkingv1.Ingress) string {
				if len(i.Spec.TLS) > 0 {
					return "80, 443"
				}
				return "80"
			}),
			catalog.Age(),
		},
		Subresources: []catalog.Subresource{{
			Name:  "status",
			Verbs: readWrite,
			Shape: catalog.Part{
				Prepare:  catalog.Prepare(func(i, old *networkingv1.Ingress) { i.Spec = old.Spec }),
				Validate: catalog.Validate(validateIngressStatus),
				Warn:     catalog.Warn(ingressStatusWarnings),
			},
		}},
	}
}

// mostHosts is how many hosts of an ingress a table shows.
const mostHosts = 3

func hosts(i *networkingv1.Ingress) string {
	var shown []string
	more := ""
	for _, r := range i.Spec.Rules {
		if len(shown) == mostHosts {
			more = fmt.Sprintf(" + %d more...", len(i.Spec.Rules)-mostHosts)
			break
		}
		if r.Host != "" {
			shown = append(shown, r.Host)
		}
	}
	if len(shown) == 0 {
		return "*"
	}
	return strings.Join(shown, ",") + more
}

func addresses(i *networkingv1.Ingress) string {
	all := map[string]bool{}
	for _, in := range i.Status.LoadBalancer.Ingress {
		switch {
		case in.IP != "":
			all[in.IP] = true
		case in.Hostname != "":
			all[in.Hostname] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(all)), ",")
}

func ingressClasses() *catalog.Kind {
	name := catalog.NameColumn()
	named := catalog.Text("Name", name.Description, func(c *networkingv1.IngressClass) string {
		if c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
			return c.Name + " (default)"
		}
		return c.Name
	})
	named.Format = name.Format
	return &catalog.Kind{
		GroupVersionKind: networkingv1.SchemeGroupVersion.WithKind("IngressClass"),
		Resource:         "ingressclasses",
		Singular:         "ingressclass",
		New:              func() catalog.Object { return &networkingv1.IngressClass{} },
		NewList:          func() runtime.Object { return &networkingv1.IngressClassList{} },
		Default: catalog.Default(func(c *networkingv1.IngressClass) {
			if p := c.Spec.Parameters; p != nil && p.Scope == nil {
				p.Scope = new(networkingv1.IngressClassParametersReferenceScopeCluster)
			}
		}),
		Validate:   declared.With(catalog.Validate(validateIngressClass), ""),
		Generation: true,
		Columns: []catalog.Column{
			named,
			catalog.Text("Controller", "Controller that is responsible for handling this class", func(c *networkingv1.IngressClass) string { return c.Spec.Controller }),
			catalog.Text("Parameters", "A reference to a resource with additional parameters", func(c *networkingv1.IngressClass) string {
				p := c.Spec.Parameters
				switch {
				case p == nil:
					return catalog.None
				case p.APIGroup == nil:
					return p.Kind + "/" + p.Name
				}
				return p.Kind + "." + *p.APIGroup + "/" + p.Name
			}),
			catalog.Age(),
		},
	}
}

func serviceCIDRs() *catalog.Kind {
	doc := networkingv1.ServiceCIDRSpec{}.SwaggerDoc()
	return &catalog.Kind{
		GroupVersionKind: networkingv1.SchemeGroupVersion.WithKind("ServiceCIDR"),
		Resource:         "servicecidrs",
		Singular:         "servicecidr",
		New:              func() catalog.Object { return &networkingv1.ServiceCIDR{} },
		NewList:          func() runtime.Object { return &networkingv1.ServiceCIDRList{} },
		Prepare: catalog.Prepare(func(c, old *networkingv1.ServiceCIDR) {
			c.Status = networkingv1.ServiceCIDRStatus{}
			if old != nil {
				c.Status = old.Status
			}
		}),
		Validate: catalog.Validate(validateServiceCIDR),
		Columns: []catalog.Column{
			catalog.Text("CIDRs", doc["cidrs"], func(c *networkingv1.ServiceCIDR) string { return strings.Join(c.Spec.CIDRs, ",") }),
			catalog.Age(),
		},
		Subresources: []catalog.Subresource{{
			Name:  "status",
			Verbs: readWrite,
			Shape: catalog.Part{
				Prepare: catalog.Prepare(func(c, old *networkingv1.ServiceCIDR) {
					c.Spec = old.Spec
					metav1.ResetObjectMetaForStatus(&c.ObjectMeta, &old.ObjectMeta)
				}),
				Keeps: []string{"metadata"},
			},
		}},
	}
}

func ipAddresses() *catalog.Kind {
	doc := networkingv1.IPAddressSpec{}.SwaggerDoc()
	return &catalog.Kind{
		GroupVersionKind: networkingv1.SchemeGroupVersion.WithKind("IPAddress"),
		Resource:         "ipaddresses",
		Singular:         "ipaddress",
		ShortNames:       []string{"ip"},
		New:              func() catalog.Object { return &networkingv1.IPAddress{} },
		NewList:          func() runtime.Object { return &networkingv1.IPAddressList{} },
		Validate:         declared.With(catalog.Validate(validateAddress), ""),
		ValidateName: func(name string, _ bool) (faults []string) {
			for _, err := range validation.IsValidIP(nil, name) {
				faults = append(faults, err.Detail)
			}
			return faults
		},
		Columns: []catalog.Column{
			catalog.Text("ParentRef", doc["parentRef"], func(a *networkingv1.IPAddress) string {
				p := a.Spec.ParentRef
				if p == nil {
					return catalog.None
				}
				parts := []string{strings.ToLower(schema.GroupResource{Group: p.Group, Resource: p.Resource}.String()), p.Namespace, p.Name}
				if p.Namespace == "" {
					parts = slices.Delete(parts, 1, 2)
				}
				return strings.Join(parts, "/")
			}),
		},
		Storing: catalog.Storing{Sole: soleOfAddress},
	}
}

// soleOfAddress returns the address that an IPAddress takes from Services. That of a Service takes none: the Service
// has it.
func soleOfAddress(obj catalog.Object) []string {
	a := obj.(*networkingv1.IPAddress)
	p := a.Spec.ParentRef
	ip, err := netip.ParseAddr(a.Name)
	if err != nil || clusterip.Allocated(a) || p != nil && p.Group == "" && p.Resource == "services" {
		return nil
	}
	return []string{clusterip.Sole(ip)}
}
