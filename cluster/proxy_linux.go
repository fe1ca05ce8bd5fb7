//go:build !portable

package cluster

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/internal/hostaddresses"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/proxy"
	"github.com/sampan-io/sampan/proxy/announce"
	"github.com/sampan-io/sampan/proxy/health"
	"github.com/sampan-io/sampan/proxy/nft"
	"github.com/sampan-io/sampan/proxy/trace/probe"
	"github.com/sampan-io/sampan/proxy/userspace"
)

// proxy returns the service proxy of a real node.
func (c *cluster) proxy(api access, caches *cache.Shared) ([]run.Stage, error) {
	if !c.real() {
		return nil, nil
	}
	own := c.networks
	relay := userspace.Options{
		Mark: proxy.RelayMark, Table: c.Profile.RelayTable(), Log: c.Log,
		Reachable: func(a netip.Addr) bool {
			return slices.ContainsFunc(own, func(n netip.Prefix) bool { return n.Contains(a) })
		},
	}
	for _, a := range c.bridge {
		if a.Is4() {
			relay.Address = a
		} else {
			relay.Address6 = a
		}
	}
	forwarder, err := userspace.New(relay)
	if err != nil {
		return nil, err
	}
	kernel, err := nft.New(nft.Options{
		Table: c.Profile.ServiceTable(), ServiceCIDRs: c.Settings.Services.All(), Pods: c.Settings.Pods.All(), Mark: proxy.RelayMark,
	})
	if err != nil {
		return nil, err
	}
	announcer, err := announce.New(announce.Options{Link: c.Profile.BalancerLink(), Log: c.Log})
	if err != nil {
		return nil, err
	}
	relayed := c.Settings.ProxyMode == local.UserspaceMode
	if c.Settings.ProxyMode == "" && !nft.SeesBridged() {
		relayed = true
		c.Log.Warn("using the userspace proxy mode: without the kernel module br_netfilter, pods of a node cannot reach each other through Services")
	}
	networks, err := c.podNetworks()
	if err != nil {
		return nil, err
	}
	watch := rulesWatch{kernel.Watch, run.NewBell()}
	checks := health.NewServer(health.Options{Log: c.Log})
	services, err := proxy.New(proxy.Options{
		Client:    api.proxy,
		Caches:    caches,
		Forwarder: forwarder,
		Kernel:    kernel,
		Node:      c.Settings.NodeName,
		Userspace: relayed,
		Loopback:  true,
		Services:  c.Settings.Services.All(),
		Pods:      c.Settings.Pods.All(),
		Own:       c.ownPorts(api.ports...),
		HostAddresses: func(ctx context.Context, set func([]netip.Addr)) error {
			return hostaddresses.Follow(ctx, c.Profile.BalancerLink(), set)
		},
		Resolvers: c.followResolvers,
		Gateways:  hostaddresses.FollowGateways,
		Networks:  kernel.SetServiceCIDRs,
		Health:    checks,
		Keep:      true, // the pods go on as well; what is left goes with them (Clean)
		Watch:     watch.run,
		Foreign:   nft.Foreign,
		Announcer: announcer,
		Log:       c.Log,
	})
	if err != nil {
		return nil, err
	}
	checks.Judge(services.Healthy)
	tracer, err := probe.New(probe.Options{Services: services.Service, Kernel: kernel, Forwarder: forwarder, Pod: networks.of, Log: c.Log})
	if err != nil {
		return nil, err
	}
	c.tracer = tracer
	metrics := append(forwarder.Collectors(), services.Metrics()...)
	for _, m := range metrics {
		if err := api.measure(m); err != nil {
			return nil, err
		}
	}
	return []run.Stage{
		{
			{Name: "service forwarder", Run: forwarder.Run, Ready: forwarder.Ready()},
			{Name: "service health checks", Run: checks.Run, Ready: checks.Ready()},
			{Name: "rules of the pod network", Run: func(ctx context.Context) error { watch.heal(ctx, c.restorer(networks), c.Log); return nil }},
		},
		append(run.Stage{{Name: "service proxy", Run: services.Run, Ready: services.Ready()}}, c.proxyPages(services, relayed, metrics...)...),
	}, nil
}

// A rulesWatch notifies two components when another program removes rules: the service proxy, and
// the owner of the pod network's rules, which `nft flush ruleset` removes as well.
type rulesWatch struct {
	watch func(ctx context.Context, lost func()) error
	lost  run.Bell
}

// run is [proxy.Options.Watch].
func (w rulesWatch) run(ctx context.Context, lost func()) error {
	return w.watch(ctx, func() {
		lost()
		w.lost.Ring()
	})
}

// heal calls restore whenever rules were lost, until ctx is over.
func (w rulesWatch) heal(ctx context.Context, restore func(context.Context) error, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.lost:
		}
		if err := restore(ctx); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "restoring the pod network rules that another program removed failed", "err", err)
		}
	}
}
