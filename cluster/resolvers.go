package cluster

import (
	"context"
	"net/netip"
	"slices"

	"github.com/sampan-io/sampan/dns"
	"github.com/sampan-io/sampan/internal/resolvconf"
	"github.com/sampan-io/sampan/internal/sorting"
)

// followResolvers calls set with the addresses of the name servers that cluster DNS, the host and pods with the DNS policy
// Default ask, ascending, at once and whenever they have changed, until ctx is cancelled.
func (c *cluster) followResolvers(ctx context.Context, set func([]netip.Addr)) error {
	var asked []netip.Addr
	if upstream, err := dns.Upstream(c.Settings.DNSUpstream); err == nil && c.Settings.DNSUpstream != "" {
		servers, _ := upstream() // they do not change
		for _, s := range servers {
			asked = append(asked, s.Addr())
		}
	}
	var files []string
	if c.kubelet != nil && c.kubelet.ResolverConfig != nil && *c.kubelet.ResolverConfig != "" {
		files = append(files, *c.kubelet.ResolverConfig)
	}
	known := false
	err := resolvconf.Follow(ctx, files, func(servers []netip.Addr) {
		all := slices.Concat(servers, asked)
		sorting.Slice(all, netip.Addr.Compare)
		known = true
		set(slices.Compact(all))
	})
	if err != nil { // the host may have no watches of files left
		c.Log.WarnContext(ctx, "Services may have an address that becomes one of a name server of this host while the cluster runs", "err", err)
		if !known {
			set(asked)
		}
		<-ctx.Done()
	}
	return nil
}
