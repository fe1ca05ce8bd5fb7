package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/follow"
	"github.com/sampan-io/sampan/cluster/join"
	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/memory"
	"github.com/sampan-io/sampan/internal/run"
)

// MemberOptions configures [RunMember]. All fields but Log and Report are required.
type MemberOptions struct {
	Profile local.Profile
	Member  local.Member
	Version string

	// Runtime is as in [Options].
	Runtime func(dir string) (string, error)

	Flags map[string]string // of the command line, with their values

	Report local.Reporter // receives the progress of the start
	Log    *slog.Logger   // nil means slog.Default
}

// A member is this machine as a node of a cluster whose API server is on another machine: the part of a cluster that
// works on the node, with the API over the network.
type member struct {
	*cluster
	local.Member
	certificates *join.Certificates
	api          client.Interface // for what does not depend on the name: the Node, and the settings of the cluster
	owned        chan struct{}    // closed by ownedOnce when the Node of this name is known to be this machine's
	ownedOnce    sync.Once
	measured     []prometheus.Collector // of the parts of this node but the agent, which serves them
	asNode       client.Interface       // for everything else; its requests wait for owned
}

// errMoved says that this machine has other addresses than before.
var errMoved = errors.New("the addresses of this machine have changed")

// RunMember runs a node until ctx is over. Its pods go on running then. While the API server is away it goes on with
// what it knows. It returns an error if the node can't be started, a part of it broke, or another machine has its
// name.
func RunMember(ctx context.Context, o MemberOptions) error {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	for started := time.Now(); ; {
		m, err := newMember(ctx, o, started)
		if err == nil {
			err = m.run(ctx)
		}
		if !errors.Is(err, errMoved) || ctx.Err() != nil {
			return err
		}
		o.Log.InfoContext(ctx, "starting the node again", "reason", err)
		o.Report = local.Reporter{}
	}
}

func newMember(ctx context.Context, o MemberOptions, started time.Time) (*member, error) {
	settings := o.Member.Settings
	c := &cluster{
		Options: Options{Profile: o.Profile, Settings: settings, Version: o.Version, Runtime: o.Runtime, Flags: o.Flags, Report: o.Report, Log: o.Log},
		started: started, notices: newNotices(), queues: &controller.Metrics{},
	}
	m := &member{cluster: c, Member: o.Member, owned: make(chan struct{})}
	self, err := c.claimName(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.Profile.MakeRunDir(); err != nil {
		return nil, err
	}
	if err := c.Profile.Save(m.instance(self)); err != nil {
		return nil, err
	}
	if c.foreign() {
		if err := c.Profile.SaveRuntime(c.foreignRuntime()); err != nil {
			return nil, err
		}
	}
	if m.certificates, err = join.Open(c.Profile.PKI(), settings.NodeName); err != nil {
		return nil, fmt.Errorf("%w; join the cluster again: `sampan leave`, then `sampan join`", err)
	}
	if end := m.certificates.Expires(); time.Now().After(end) {
		return nil, fmt.Errorf("the certificate of node %s expired at %s: join the cluster again with a new token: `sampan leave`, `kubectl delete node %[1]s`, then `sampan join`", settings.NodeName, end.Format(time.RFC3339))
	}
	agent := "sampan/" + o.Version
	if m.api, err = m.certificates.Client(o.Member.Server, agent, nil); err != nil {
		return nil, err
	}
	if m.asNode, err = m.certificates.Client(o.Member.Server, agent, m.owned); err != nil {
		return nil, err
	}
	if err := c.loadKubeletConfig(); err != nil {
		return nil, err
	}
	addresses, err := m.awaitAddresses(ctx)
	if err != nil {
		return nil, err
	}
	c.Settings.AdvertiseAddress = strings.Join(texts(addresses), ",")
	if len(m.Networks) == 0 {
		if err := m.register(ctx); err != nil {
			return nil, err
		}
	}
	return m, c.prepareNode(m.Networks)
}

// instance is the state file of the node while it is starting.
func (m *member) instance(self local.Process) local.Instance {
	return local.Instance{
		Name: m.Profile.Name, Version: m.Version, Process: self, DataDir: m.Profile.DataDir, Started: m.started,
		Member: true, Server: m.Server, Nodes: []string{m.Settings.NodeName},
	}
}

// access is the access of a node to the API server on another machine.
func (m *member) access() access {
	return access{
		node:  func(string) client.Interface { return m.asNode },
		proxy: m.asNode,
		serving: func(string, []netip.Addr) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return m.certificates.Server
		},
		pool:    m.certificates.Pool,
		measure: func(one prometheus.Collector) error { m.measured = append(m.measured, one); return nil },
	}
}

func (m *member) run(ctx context.Context) error {
	c := m.cluster
	defer m.certificates.Disconnect() // by the addresses that this machine had
	defer c.protect()()
	if c.runtime != nil {
		unpacking := run.NewGroup(ctx, 0)
		unpacking.Go(c.runtime.unpack)
		defer unpacking.Wait() // it is short
	}
	c.openQuarantine()
	caches := cache.NewShared(m.asNode, c.Log)
	var err error
	if c.names, err = c.listenDNS(ctx); err != nil { // before the node, whose pods get the address
		return err
	}
	proxy, err := c.proxy(m.access(), caches)
	if err != nil {
		return err
	}
	agent, err := c.realNode(m.access(), append(m.measured, m.certificates.Metrics()...)...)
	if err != nil {
		return err
	}
	names, err := c.nameServer(caches)
	if err != nil {
		return err
	}
	var first run.Stage
	if c.runtime != nil {
		first = run.Stage{{Name: "container runtime", Run: c.runtime.Run, Ready: c.runtime.ready}}
	}
	stages := []run.Stage{
		{{Name: "memory", Run: func(ctx context.Context) error {
			return memory.Run(ctx, memory.Options{Headroom: headroom, Log: c.Log})
		}}},
		first,
		{
			{Name: "certificates", Run: func(ctx context.Context) error {
				return m.certificates.Run(ctx, m.asNode, c.hostAddresses(), c.Log)
			}},
			{Name: "caches", Run: caches.Run},
			{Name: "addresses of this machine", Run: m.followAddresses},
			{Name: "name of the node", Run: m.followName},
			{Name: "settings of the cluster", Run: m.followSettings},
		},
		slices.Concat(run.Stage{c.nodeTask(agent)}, names, c.routes(caches), c.quarantineTasks(m.asNode), c.noticeTasks(m.asNode)),
	}
	stages = append(stages, proxy...)
	if s := c.firewall(m.access()); s != nil {
		stages = append(stages, s)
	}
	stages = append(stages, run.Stage{{Name: "announcement", Run: func(ctx context.Context) error {
		return c.announce(ctx, m.instance(local.Process{}))
	}}})
	stages[0] = append(stages[0], progress(stages, &c.troubles, c.slow))
	err = run.Stages(controller.WithMetrics(ctx, c.queues), stages...)
	c.Log.InfoContext(ctx, "node stopped", "name", c.Settings.NodeName, "err", err)
	return err
}

// addresses returns the addresses of this machine at which the others reach it: the ones of --node-ip, or the one
// from which it reaches the API server.
func (m *member) addresses() ([]netip.Addr, error) {
	if m.NodeIP != "" {
		return local.OwnAddresses(m.NodeIP)
	}
	server, err := url.Parse(m.Server)
	if err != nil {
		return nil, err
	}
	// A UDP socket sends nothing when it is connected: the kernel only chooses a route.
	conn, err := net.Dial("udp", net.JoinHostPort(server.Hostname(), "9")) //nolint:noctx // it does not block for the network
	if err != nil {
		return nil, fmt.Errorf("no route to the API server %s: %w", m.Server, err)
	}
	defer conn.Close()
	a := conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
	if a.IsLoopback() || a.IsUnspecified() {
		return nil, fmt.Errorf("the API server %s is reached from %s, an address of this machine alone: pass another one with --node-ip", m.Server, a)
	}
	return []netip.Addr{a}, nil
}

// awaitAddresses returns the addresses when this machine has them.
func (m *member) awaitAddresses(ctx context.Context) (found []netip.Addr, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changed, err := changes(ctx)
	if err != nil {
		return nil, err
	}
	for {
		if found, err = m.addresses(); err == nil {
			return found, nil
		}
		m.Log.WarnContext(ctx, "waiting for the network", "err", err)
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// followAddresses returns errMoved when this machine has other addresses. One that has none keeps its old ones.
func (m *member) followAddresses(ctx context.Context) error {
	changed, err := changes(ctx)
	if err != nil {
		return err
	}
	for {
		now, err := m.addresses()
		if err == nil && strings.Join(texts(now), ",") != m.cluster.Settings.AdvertiseAddress {
			return fmt.Errorf("%w: %s, was %s", errMoved, strings.Join(texts(now), ","), m.cluster.Settings.AdvertiseAddress)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// register creates the Node, waits until the cluster has given it networks for its pods, and saves them.
func (m *member) register(ctx context.Context) error {
	m.Report.Step("waiting for a pod network")
	for node, err := range m.self(ctx) {
		if err != nil {
			return err
		}
		if node == nil || len(node.Spec.PodCIDRs) == 0 {
			continue
		}
		for _, text := range node.Spec.PodCIDRs {
			n, err := netip.ParsePrefix(text)
			if err != nil {
				return fmt.Errorf("the pod network of node %s: %w", node.Name, err)
			}
			m.Networks = append(m.Networks, n.Masked())
		}
		return m.Profile.KeepMember(m.Member)
	}
	return context.Cause(ctx)
}

// followName returns an error when another machine has the name of this node. Until it has seen the Node once, the
// parts of this node send no requests: their credentials are those of the name, and another machine may have got it
// while this one was off.
func (m *member) followName(ctx context.Context) error {
	for _, err := range m.self(ctx) {
		if err != nil {
			return err
		}
	}
	return nil
}

// initial is the Node that this machine creates. The agent completes it; taints have to be there before the first pod.
func (m *member) initial() *corev1.Node {
	node := &corev1.Node{}
	node.Name, node.Labels = m.cluster.Settings.NodeName, map[string]string{corev1.LabelHostname: m.cluster.Settings.NodeName}
	node.Spec.Taints, node.Spec.ProviderID = m.kubelet.RegisterWithTaints, m.kubelet.ProviderID
	return node
}

// self returns the states of this node's Node, until ctx is cancelled, or an error if another machine has its name.
// It creates the Node if there is none, and closes owned when it is this machine's.
func (m *member) self(ctx context.Context) func(yield func(*corev1.Node, error) bool) {
	name := m.cluster.Settings.NodeName
	source := follow.Source{GroupVersionResource: client.Nodes.GroupVersionResource, Fields: "metadata.name=" + name}
	f := follow.Follower{Client: m.api, Source: source, Retry: func(err error, failures int) (time.Duration, bool) {
		pause, _ := follow.Eager(err, failures)
		return pause, true // the cluster may be restored, or its roles
	}}
	return func(yield func(*corev1.Node, error) bool) {
		for step := range f.Steps(ctx) {
			var node *corev1.Node
			switch s := step.(type) {
			case follow.Page:
				if !s.Whole {
					continue
				}
				if len(s.Objects) > 0 {
					node, _ = s.Objects[0].(*corev1.Node)
				}
			case *follow.Changed:
				node, _ = s.Object.(*corev1.Node)
			case follow.Deleted:
			case follow.Failed:
				if s.Failures == 1 {
					m.Log.WarnContext(ctx, "the node cannot read its Node, will try again", "err", s.Err)
				}
				continue
			default:
				continue
			}
			own, err := join.Own(ctx, m.api, node, m.initial(), m.ID, m.Networks)
			if errors.As(err, new(*join.TakenError)) {
				yield(nil, fmt.Errorf("%w; `sampan leave --name=%s` removes what this machine has of that node", err, m.Profile.Name))
				return
			}
			if err != nil && ctx.Err() == nil {
				m.Log.WarnContext(ctx, "the node cannot write its Node", "err", err)
			}
			if own {
				m.ownedOnce.Do(func() { close(m.owned) })
			}
			if !yield(node, nil) {
				return
			}
		}
	}
}

// followSettings replaces the certificate authority when the cluster has another one.
func (m *member) followSettings(ctx context.Context) error {
	source := follow.Source{
		GroupVersionResource: client.ConfigMaps.GroupVersionResource, Namespace: metav1.NamespaceSystem, Fields: "metadata.name=" + join.SettingsName,
	}
	f := follow.Follower{Client: m.api, Source: source, Retry: func(err error, failures int) (time.Duration, bool) {
		pause, _ := follow.Eager(err, failures)
		return pause, true
	}}
	for step := range f.Steps(ctx) {
		var objects []client.Object
		switch s := step.(type) {
		case follow.Page:
			objects = s.Objects
		case *follow.Changed:
			objects = []client.Object{s.Object}
		}
		for _, o := range objects {
			config, ok := o.(*corev1.ConfigMap)
			if !ok {
				continue
			}
			s, err := join.ParseSettings(config.Data)
			if err == nil {
				err = m.certificates.Trust(s.CA)
			}
			if err != nil {
				m.Log.WarnContext(ctx, "the certificate authority of the cluster is not changed", "err", err)
			}
		}
	}
	return nil
}
