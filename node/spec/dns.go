package spec

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A Resolver is the content of a resolver configuration (resolv.conf(5)).
type Resolver struct {
	Servers, Searches, Options []string
}

// ParseResolver reads a resolv.conf. Servers on the loopback network are left
// out: in a pod's network nobody listens there. Stub reports whether that left
// none although there were some.
func ParseResolver(text string) (r Resolver, stub bool) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		switch words[0] {
		case "nameserver":
			if a, err := netip.ParseAddr(words[1]); err == nil && a.Unmap().IsLoopback() {
				stub = true
				continue
			}
			r.Servers = append(r.Servers, words[1])
		case "search":
			r.Searches = words[1:] // the last one counts
		case "domain":
			r.Searches = words[1:2]
		case "options":
			r.Options = append(r.Options, words[1:]...)
		}
	}
	return r, stub && len(r.Servers) == 0
}

// Resolver limits that resolvers keep and Kubernetes enforces.
const (
	maxServers  = 3
	maxSearches = 32
)

// DNS returns the pod's resolver configuration, given the host's and the
// cluster's. Missing reports that the pod wants cluster DNS and there is none, so
// that it got the host's.
func DNS(pod *corev1.Pod, host Resolver, clusterServers []string, domain string) (c *cri.DNSConfig, missing bool) {
	policy := pod.Spec.DNSPolicy
	if policy == corev1.DNSClusterFirst && pod.Spec.HostNetwork {
		policy = corev1.DNSDefault
	}
	var r Resolver
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
	c.Servers = c.Servers[:min(len(c.Servers), maxServers)]
	c.Searches = c.Searches[:min(len(c.Searches), maxSearches)]
	return c, missing
}

func add(list, more []string) []string {
	for _, s := range more {
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}
