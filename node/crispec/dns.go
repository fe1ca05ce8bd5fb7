package crispec

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/internal/resolvconf"
)

// Limits of resolvers, which Kubernetes applies.
const (
	maxServers     = 3
	maxSearches    = 32
	maxSearch      = 253  // characters of a search path: resolvers may crash on longer ones
	maxSearchChars = 2048 // characters of the list, with a space between any two
)

// DNS returns the pod's resolver configuration, given the host's and the
// cluster's. Missing reports that the pod wants cluster DNS and there is none, so
// that it got the host's. Omitted lists for users the entries beyond the limits of a
// resolver.
func DNS(pod *corev1.Pod, host resolvconf.Config, clusterServers []string, domain string) (c *cri.DNSConfig, missing bool, omitted []string) {
	policy := pod.Spec.DNSPolicy
	if policy == corev1.DNSClusterFirst && pod.Spec.HostNetwork {
		policy = corev1.DNSDefault
	}
	var r resolvconf.Config
	switch {
	case policy == corev1.DNSNone:
	case policy == corev1.DNSDefault:
		r = host
	case len(clusterServers) == 0:
		r, missing = host, true
	default:
		r.Servers = clusterServers
		if domain != "" {
			r.Searches = []string{pod.Namespace + ".svc." + domain, "svc." + domain, domain}
		}
		r.Searches = append(r.Searches, host.Searches...)
		r.Options = []string{"ndots:5"}
	}
	c = &cri.DNSConfig{Servers: slices.Clone(r.Servers), Searches: slices.Clone(r.Searches), Options: slices.Clone(r.Options)}
	if own := pod.Spec.DNSConfig; own != nil {
		c.Servers = add(c.Servers, own.Nameservers)
		c.Searches = add(c.Searches, own.Searches)
		for _, o := range own.Options {
			c.Options = slices.DeleteFunc(c.Options, func(old string) bool {
				name, _, _ := strings.Cut(old, ":")
				return name == o.Name
			})
			text := o.Name
			if o.Value != nil && *o.Value != "" {
				text += ":" + *o.Value
			}
			c.Options = append(c.Options, text)
		}
	}
	if len(c.Servers) > maxServers {
		c.Servers = c.Servers[:maxServers]
		omitted = append(omitted, "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: "+strings.Join(c.Servers, " "))
	}
	if fit := fitting(c.Searches); len(fit) < len(c.Searches) {
		c.Searches = fit
		omitted = append(omitted, "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: "+strings.Join(fit, " "))
	}
	return c, missing, omitted
}

// fitting returns the search paths within the limits of a resolver.
func fitting(searches []string) (fit []string) {
	chars := -1
	for _, s := range searches[:min(len(searches), maxSearches)] {
		if len(s) > maxSearch {
			continue
		}
		if chars += 1 + len(s); chars > maxSearchChars {
			break
		}
		fit = append(fit, s)
	}
	return fit
}

func add(list, more []string) []string {
	for _, s := range more {
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}
