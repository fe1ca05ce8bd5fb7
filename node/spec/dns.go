package spec

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/internal/resolvconf"
)

// Resolver limits that resolvers keep and Kubernetes enforces.
const (
	maxServers  = 3
	maxSearches = 32
)

// DNS returns the pod's resolver configuration, given the host's and the
// cluster's. Missing reports that the pod wants cluster DNS and there is none, so
// that it got the host's.
func DNS(pod *corev1.Pod, host resolvconf.Config, clusterServers []string, domain string) (c *cri.DNSConfig, missing bool) {
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
