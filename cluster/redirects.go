package cluster

import (
	"context"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/proxy"
	"github.com/sampan-io/sampan/proxy/nft"
)

// redirects are a [proxy.Kernel] for relayed IPv4 rules alone.
type redirects struct{ rules *nft.Rules }

func (r redirects) Replace(_ context.Context, all []proxy.Rule) error {
	var rs []nft.Redirect
	for i := range all {
		rs = append(rs, redirect(all[i])...)
	}
	return r.rules.Replace(rs)
}

func (r redirects) Update(_ context.Context, changes []proxy.Change) error {
	var remove, add []nft.Redirect
	for _, c := range changes {
		remove, add = append(remove, redirect(c.Was)...), append(add, redirect(c.Is)...)
	}
	return r.rules.Update(remove, add)
}

func (r redirects) Settle(context.Context) {}

func (r redirects) Close() error { return r.rules.Close() }

func redirect(r proxy.Rule) []nft.Redirect {
	if len(r.Backends) == 0 || !r.Address.Is4() || r.Protocol == corev1.ProtocolSCTP {
		return nil
	}
	d := nft.Redirect{Address: r.Address, Protocol: r.Protocol, Port: r.Port, To: r.Backends[0]}
	if d.Address.IsUnspecified() {
		d.Address = netip.Addr{}
	}
	return []nft.Redirect{d}
}
