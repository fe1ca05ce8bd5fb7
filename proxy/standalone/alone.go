package standalone

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/hostaddresses"
	"github.com/sampan-io/sampan/internal/memory"
	"github.com/sampan-io/sampan/internal/reserved"
	"github.com/sampan-io/sampan/internal/resolvconf"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/proxy"
	"github.com/sampan-io/sampan/proxy/announce"
	"github.com/sampan-io/sampan/proxy/applied"
	"github.com/sampan-io/sampan/proxy/health"
	"github.com/sampan-io/sampan/proxy/nft"
	"github.com/sampan-io/sampan/proxy/userspace"
)

// The tables of a standalone proxy, of its rules and of transparent relayed services, and the link
// of its announced addresses. They differ from the names of every cluster, whose names have one
// hyphen more.
const (
	table      = "sampan-proxy"
	relayTable = "sampan-relay"
	link       = "spl"
)

// Options are the values of the flags of `sampan proxy`. Only Connect is required.
type Options struct {
	// Connect returns the configuration of the API server's client. It is called after the other
	// options are checked.
	Connect func() (*rest.Config, error)

	Node              string   // name of the node; empty means the name of this host
	BindAddress       string   // of this host, for the sockets of relayed services; empty means that of the node
	Mode              string   // kernel or userspace; empty means kernel
	NodePortAddresses []string // networks of the addresses that have node ports; none means all
	ClusterCIDR       []string // networks of pods; none means those of the node
	ServiceCIDR       []string // networks of cluster IPs; none means those of the cluster's ServiceCIDRs
	Announce          bool     // this node answers for its share of the addresses of load balancers

	Keep bool // the rules stay when Run ends

	HealthzAddress string // where /healthz and /livez are served; empty means nowhere
	MetricsAddress string // where /metrics is served; empty means nowhere

	UserAgent string       // empty means "sampan-proxy"
	Log       *slog.Logger // nil means slog.Default
}

// settings are parsed options.
type settings struct {
	userspace             bool
	bind                  netip.Addr // may be invalid
	nodePorts, pods, nets []netip.Prefix
	near                  []netip.Prefix // pods of this node
	own                   []netip.Addr   // addresses of this host that others can reach
}

// isNear reports whether an address is known to be that of a pod of this node.
func (s settings) isNear(a netip.Addr) bool {
	return slices.ContainsFunc(s.near, func(n netip.Prefix) bool { return n.Contains(a) })
}

// check parses the options, and checks that this host has the addresses in them. Every error names
// its flag.
func (o Options) check() (s settings, err error) {
	var errs []error
	if s.own, err = ownAddresses(); err != nil {
		return s, err
	}
	if o.Node != "" && len(validation.IsDNS1123Subdomain(o.Node)) > 0 {
		errs = append(errs, fmt.Errorf("--hostname-override: must be a DNS-1123 subdomain (lower-case letters, digits, dots and hyphens), got %q", o.Node))
	}
	networks := func(flag string, texts []string) (ns []netip.Prefix) {
		for _, text := range texts {
			n, err := netip.ParsePrefix(strings.TrimSpace(text))
			if err != nil || n.Addr().Is4In6() {
				errs = append(errs, fmt.Errorf("--%s: must be a network such as 10.244.0.0/16 or fd00::/64, got %q", flag, text))
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
		errs = append(errs, fmt.Errorf("--proxy-mode: must be kernel or userspace, got %q", o.Mode))
	}
	if o.BindAddress != "" {
		a, err := netip.ParseAddr(o.BindAddress)
		if err != nil || a.IsUnspecified() || a.IsLoopback() || a.Is4In6() {
			errs = append(errs, fmt.Errorf("--bind-address: must be an address of this host that others can reach, got %q", o.BindAddress))
		} else if !slices.Contains(s.own, a) {
			errs = append(errs, fmt.Errorf("--bind-address: must be an address of this host, got %v", a))
		}
		s.bind = a
	}
	s.nodePorts = networks("nodeport-addresses", o.NodePortAddresses)
	s.pods = networks("cluster-cidr", o.ClusterCIDR)
	s.nets = networks("service-cluster-ip-range", o.ServiceCIDR)
	for _, f := range o.pages() {
		flag, text := f.flag, f.at
		if at, err := netip.ParseAddrPort(text); err != nil || at.Port() == 0 {
			errs = append(errs, fmt.Errorf("--%s: must be ADDRESS:PORT, such as 127.0.0.1:10256, got %q", flag, text))
		} else if flag == "metrics-bind-address" && !at.Addr().IsLoopback() {
			errs = append(errs, fmt.Errorf("--%s: must be a loopback address, because anyone could read elsewhere, got %q", flag, text))
		}
	}
	return s, errors.Join(errs...)
}

// kubeletPort is the port of kubelets, whichever program serves it on this node.
const kubeletPort = 10250

// ownPorts returns the ports of this host that are no node ports: those of the kubelet and of this program.
func (o Options) ownPorts() reserved.Ports {
	own := reserved.TCP(kubeletPort)
	for _, page := range o.pages() {
		if at, err := netip.ParseAddrPort(page.at); err == nil {
			own = append(own, reserved.TCP(int32(at.Port()))...)
		}
	}
	return own
}

// ownAddresses returns the addresses of this host that others may reach.
func ownAddresses() ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("listing the addresses of this host: %w", err)
	}
	var own []netip.Addr
	for _, text := range all {
		if n, err := netip.ParsePrefix(text.String()); err == nil && n.Addr().IsGlobalUnicast() {
			own = append(own, n.Addr())
		}
	}
	return own, nil
}

// Cleanup removes a killed proxy's state from the kernel. With invalid options it returns
// an error and removes nothing; it ignores Connect.
func Cleanup(o Options) error {
	if _, err := o.check(); err != nil {
		return err
	}
	return errors.Join(nft.Remove(table), userspace.RemoveTransparent(relayTable), announce.Remove(link))
}

// Run proxies until ctx is cancelled, then removes everything unless Options.Keep is set. It waits
// for an API server that is unreachable at the start, and leaves existing rules in place until that
// answers.
func Run(ctx context.Context, o Options) error {
	o.Log = cmp.Or(o.Log, slog.Default())
	s, err := o.check()
	if err != nil {
		return err
	}
	if o.Node == "" {
		if o.Node, err = os.Hostname(); err != nil {
			return fmt.Errorf("reading the name of this host: %w; set the name of the node with --hostname-override", err)
		}
		o.Node = strings.ToLower(o.Node)
	}
	listeners, err := o.listen(ctx)
	if err != nil {
		return err
	}
	pages := run.NewGroup(context.WithoutCancel(ctx), 0) // they go on until everything else has ended
	defer pages.Stop()
	for _, d := range listeners {
		pages.Go(func(ctx context.Context) { d.serve(ctx, o.Log) })
	}
	stages, err := o.connected(ctx, s, listeners)
	if err != nil || ctx.Err() != nil {
		return err
	}
	return run.Stages(ctx, stages...)
}

// connected makes the proxy once the API server returns the node. Its errors are not about other
// flags. It returns no stages if ctx is cancelled.
func (o Options) connected(ctx context.Context, s settings, listeners []*webListener) ([]run.Stage, error) {
	cfg, err := o.Connect()
	if err != nil {
		return nil, err
	}
	api, err := connect(cfg, cmp.Or(o.UserAgent, "sampan-proxy"))
	if err != nil {
		return nil, err
	}
	node, err := awaitNode(ctx, api, o.Node, o.Log)
	if err != nil || ctx.Err() != nil {
		return nil, err
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
	if o.Announce {
		_, _, err := client.Leases.List(ctx, api, applied.Namespace, metav1.ListOptions{Limit: 1, LabelSelector: applied.Selector()})
		if err != nil {
			return nil, fmt.Errorf("--announce-load-balancers: reading which other nodes do so: %w", err)
		}
	}
	return o.parts(ctx, s, api, node, listeners)
}

// parts makes the proxy and its parts.
func (o Options) parts(ctx context.Context, s settings, api client.Interface, node *corev1.Node, listeners []*webListener) ([]run.Stage, error) {
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
	// Without other networks, node ports are at 127.0.0.1, too.
	loopback := len(s.nodePorts) == 0 || slices.ContainsFunc(s.nodePorts, func(n netip.Prefix) bool { return n.Contains(netip.AddrFrom4([4]byte{127, 0, 0, 1})) })
	checks := health.NewServer(health.Options{Networks: s.nodePorts, Log: o.Log})
	var announcer proxy.Announcer
	if o.Announce {
		if announcer, err = announce.New(announce.Options{Link: link, Log: o.Log}); err != nil {
			return nil, err
		}
	}
	var networks func([]netip.Prefix)
	if len(s.nets) == 0 {
		networks = kernel.SetServiceCIDRs
	}
	p, err := proxy.New(proxy.Options{
		Client: api, Networks: networks, Forwarder: forwarder, Kernel: kernel, Node: o.Node, Userspace: s.userspace, Loopback: loopback, Services: s.nets, Keep: o.Keep, Health: checks, Watch: kernel.Watch, Foreign: nft.Foreign, Log: o.Log,
		Announcer: announcer, Pods: s.pods, Own: o.ownPorts(),
		HostAddresses: func(ctx context.Context, set func([]netip.Addr)) error { return hostaddresses.Follow(ctx, link, set) },
		Resolvers:     func(ctx context.Context, set func([]netip.Addr)) error { return resolvconf.Follow(ctx, nil, set) },
		Gateways:      hostaddresses.FollowGateways,
	})
	if err != nil {
		return nil, err
	}
	checks.Judge(p.Healthy)
	o.open(p, forwarder, listeners)
	return []run.Stage{
		{
			{Name: "memory", Run: func(ctx context.Context) error { return memory.Run(ctx, memory.Options{Log: o.Log}) }},
			{Name: "service forwarder", Run: forwarder.Run, Ready: forwarder.Ready()},
			{Name: "service health checks", Run: checks.Run, Ready: checks.Ready()},
		},
		{{Name: "service proxy", Run: p.Run, Ready: p.Ready()}},
	}, nil
}

// sockets returns the addresses of this host for the sockets of relayed services, of either family;
// one of them may be missing. They are those of the node if this host has them, or else the first
// that others can reach.
func (o Options) sockets(s settings, node *corev1.Node) (four, six netip.Addr, err error) {
	var wanted []netip.Addr
	if node != nil {
		for _, a := range node.Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil {
				wanted = append(wanted, ip)
			}
		}
	}
	if s.bind.IsValid() {
		wanted = []netip.Addr{s.bind}
	}
	first := func(is func(netip.Addr) bool) netip.Addr {
		ok := func(a netip.Addr) bool { return is(a) && slices.Contains(s.own, a) }
		if i := slices.IndexFunc(wanted, ok); i >= 0 {
			return wanted[i]
		}
		if i := slices.IndexFunc(s.own, is); i >= 0 {
			return s.own[i]
		}
		return netip.Addr{}
	}
	four, six = first(netip.Addr.Is4), first(netip.Addr.Is6)
	if !four.IsValid() && !six.IsValid() {
		return four, six, errors.New("this host has no address that others can reach: set one with --bind-address")
	}
	return four, six, nil
}
