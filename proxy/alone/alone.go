package alone

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/memory"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/proxy"
	"github.com/sampan-io/sampan/proxy/health"
	"github.com/sampan-io/sampan/proxy/nft"
	"github.com/sampan-io/sampan/proxy/userspace"
)

// The tables of a proxy that runs alone: of its rules, and of relayed services that keep their
// clients' addresses. No cluster has these names: its own have two hyphens.
const (
	table      = "sampan-proxy"
	relayTable = "sampan-relay"
)

// Options are what the flags of `sampan proxy` say, as the user wrote it. Only Config is required.
type Options struct {
	Config *rest.Config // which server, and as whom

	Node              string   // name of the node; empty means the name of this host
	BindAddress       string   // of this host, for the sockets of relayed services; empty means that of the node
	Mode              string   // kernel or userspace; empty means kernel
	NodePortAddresses []string // networks of the addresses that have node ports; none means all
	ClusterCIDR       []string // networks of pods; none means those of the node
	ServiceCIDR       []string // networks of cluster IPs, as far as known

	Keep bool // the rules stay when Run ends

	HealthzAddress string // where /healthz and /livez are served; empty means nowhere
	MetricsAddress string // where /metrics is; empty means nowhere

	UserAgent string       // empty means "sampan-proxy"
	Log       *slog.Logger // nil means slog.Default
}

// settings are options that make sense.
type settings struct {
	userspace             bool
	bind                  netip.Addr // may be invalid
	nodePorts, pods, nets []netip.Prefix
	near                  []netip.Prefix // pods of this node
}

// isNear reports whether an address is that of a pod of this node, as far as that is known.
func (s settings) isNear(a netip.Addr) bool {
	return slices.ContainsFunc(s.near, func(n netip.Prefix) bool { return n.Contains(a) })
}

// check reads the options. Every fault names its flag.
func (o Options) check() (s settings, err error) {
	var errs []error
	networks := func(flag string, texts []string) (ns []netip.Prefix) {
		for _, text := range texts {
			n, err := netip.ParsePrefix(strings.TrimSpace(text))
			if err != nil || n.Addr().Is4In6() {
				errs = append(errs, fmt.Errorf("--%s: %q is no network, want one such as 10.244.0.0/16 or fd00::/64", flag, text))
				continue
			}
			ns = append(ns, n.Masked())
		}
		return ns
	}
	switch o.Mode {
	case "", "kernel":
	case "userspace":
		s.userspace = true
	default:
		errs = append(errs, fmt.Errorf("--proxy-mode: %q is no mode, want kernel or userspace", o.Mode))
	}
	if o.BindAddress != "" {
		a, err := netip.ParseAddr(o.BindAddress)
		if err != nil || a.IsUnspecified() || a.IsLoopback() || a.Is4In6() {
			errs = append(errs, fmt.Errorf("--bind-address: %q is no address that others reach, want one of this host", o.BindAddress))
		}
		s.bind = a
	}
	s.nodePorts = networks("nodeport-addresses", o.NodePortAddresses)
	s.pods = networks("cluster-cidr", o.ClusterCIDR)
	s.nets = networks("service-cluster-ip-range", o.ServiceCIDR)
	for flag, text := range map[string]string{"healthz-bind-address": o.HealthzAddress, "metrics-bind-address": o.MetricsAddress} {
		if text == "" {
			continue
		}
		if at, err := netip.ParseAddrPort(text); err != nil || at.Port() == 0 {
			errs = append(errs, fmt.Errorf("--%s: %q is not ADDRESS:PORT, want one such as 127.0.0.1:10256", flag, text))
		} else if flag == "metrics-bind-address" && !at.Addr().IsLoopback() {
			errs = append(errs, fmt.Errorf("--%s: %q is not of loopback, and everybody could read there", flag, text))
		}
	}
	return s, errors.Join(errs...)
}

// Cleanup removes what a proxy that did not end by itself left in the kernel.
func Cleanup() error { return errors.Join(nft.Remove(table), userspace.RemoveTransparent(relayTable)) }

// Run proxies until ctx is over, and takes everything back then, unless Options.Keep says
// otherwise.
func Run(ctx context.Context, o Options) error {
	o.Log = cmp.Or(o.Log, slog.Default())
	s, err := o.check()
	if err != nil {
		return err
	}
	if o.Node == "" {
		if o.Node, err = os.Hostname(); err != nil {
			return fmt.Errorf("asking for the name of this host: %w; say that of the node with --hostname-override", err)
		}
		o.Node = strings.ToLower(o.Node)
	}
	api, err := client.NewREST(o.Config, client.RESTOptions{UserAgent: cmp.Or(o.UserAgent, "sampan-proxy")})
	if err != nil {
		return err
	}
	node, err := client.Nodes.Get(ctx, api, "", o.Node)
	switch {
	case apierrors.IsNotFound(err):
		o.Log.WarnContext(ctx, "the server does not know this node yet, or by another name (--hostname-override)", "node", o.Node)
	case err != nil:
		return fmt.Errorf("reading the node %s: %w", o.Node, err)
	}
	if node != nil {
		for _, text := range node.Spec.PodCIDRs {
			if n, err := netip.ParsePrefix(text); err == nil {
				s.near = append(s.near, n)
			}
		}
	}
	if len(s.pods) == 0 {
		s.pods = s.near
	}
	stages, err := o.parts(ctx, s, api, node)
	if err != nil {
		return err
	}
	return run.Stages(ctx, stages...)
}

// parts makes the proxy and what it stands on.
func (o Options) parts(ctx context.Context, s settings, api client.Interface, node *corev1.Node) ([]run.Stage, error) {
	four, six, err := o.sockets(s, node)
	if err != nil {
		return nil, err
	}
	o.Log.InfoContext(ctx, "relayed services have their sockets here", "ipv4", four, "ipv6", six)
	forwarder, err := userspace.New(userspace.Options{Address: four, Address6: six, Mark: proxy.RelayMark, Table: relayTable, Reachable: s.isNear, Log: o.Log})
	if err != nil {
		return nil, err
	}
	kernel, err := nft.New(nft.Options{Table: table, ServiceCIDRs: s.nets, Pods: s.pods, NodePortAddresses: s.nodePorts, Mark: proxy.RelayMark})
	if err != nil {
		return nil, err
	}
	// Node ports are at 127.0.0.1, too, unless other addresses are named.
	loopback := len(s.nodePorts) == 0 || slices.ContainsFunc(s.nodePorts, func(n netip.Prefix) bool { return n.Contains(netip.AddrFrom4([4]byte{127, 0, 0, 1})) })
	checks := health.NewServer(health.Options{Networks: s.nodePorts, Log: o.Log})
	p, err := proxy.New(proxy.Options{
		Client: api, Forwarder: forwarder, Kernel: kernel, Node: o.Node, Userspace: s.userspace, Loopback: loopback, Services: s.nets, Keep: o.Keep, Health: checks, Watch: kernel.Watch, Foreign: nft.Foreign, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	checks.Judge(p.Healthy)
	base := run.Stage{
		{Name: "memory", Run: func(ctx context.Context) error { return memory.Run(ctx, memory.Options{Log: o.Log}) }},
		{Name: "service forwarder", Run: forwarder.Run, Ready: forwarder.Ready()},
		{Name: "service health checks", Run: checks.Run, Ready: checks.Ready()},
	}
	web, err := o.web(ctx, p, forwarder)
	if err != nil {
		return nil, err
	}
	return []run.Stage{append(base, web...), {{Name: "service proxy", Run: p.Run, Ready: p.Ready()}}}, nil
}

// web opens what is asked by HTTP.
func (o Options) web(ctx context.Context, p *proxy.Proxy, f *userspace.Forwarder) (run.Stage, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(append(f.Collectors(), p.Metrics()...)...)
	metrics := http.NewServeMux()
	metrics.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	metrics.HandleFunc("GET /proxyMode", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(cmp.Or(o.Mode, "kernel"))) })
	metrics.Handle("GET /", health.Handler(p))
	var stage run.Stage
	for _, s := range []struct {
		flag, at string
		h        http.Handler
	}{{"healthz-bind-address", o.HealthzAddress, health.Handler(p)}, {"metrics-bind-address", o.MetricsAddress, metrics}} {
		if s.at == "" {
			continue
		}
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.at)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", s.flag, err)
		}
		o.Log.InfoContext(ctx, "the service proxy listens", "address", l.Addr(), "for", strings.TrimSuffix(s.flag, "-bind-address"))
		stage = append(stage, run.Task{Name: s.flag, Run: func(ctx context.Context) error { return health.Serve(ctx, l, s.h) }})
	}
	return stage, nil
}

// sockets returns the addresses of this host for the sockets of relayed services, of either
// family; one of them may be missing. It is those of the node if this host has them, or else
// the first that others may reach.
func (o Options) sockets(s settings, node *corev1.Node) (four, six netip.Addr, err error) {
	var wanted []netip.Addr
	if node != nil {
		for _, a := range node.Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil {
				wanted = append(wanted, ip)
			}
		}
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return four, six, fmt.Errorf("asking for the addresses of this host: %w", err)
	}
	var have []netip.Addr
	for _, text := range all {
		if n, err := netip.ParsePrefix(text.String()); err == nil && n.Addr().IsGlobalUnicast() {
			have = append(have, n.Addr())
		}
	}
	if s.bind.IsValid() {
		if !slices.Contains(have, s.bind) {
			return four, six, fmt.Errorf("--bind-address: this host does not have the address %v", s.bind)
		}
		wanted = []netip.Addr{s.bind}
	}
	first := func(is func(netip.Addr) bool) netip.Addr {
		ok := func(a netip.Addr) bool { return is(a) && slices.Contains(have, a) }
		if i := slices.IndexFunc(wanted, ok); i >= 0 {
			return wanted[i]
		}
		if i := slices.IndexFunc(have, is); i >= 0 {
			return have[i]
		}
		return netip.Addr{}
	}
	four, six = first(netip.Addr.Is4), first(netip.Addr.Is6)
	if !four.IsValid() && !six.IsValid() {
		return four, six, errors.New("this host has no address that others reach: name one with --bind-address")
	}
	return four, six, nil
}
