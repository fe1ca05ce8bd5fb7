package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/internal/run"
)

// A Forwarder carries traffic from a socket of this node to the backends of a
// port. Its methods are called from one goroutine,
// all but Settle.
type Forwarder interface {
	// Set opens a socket for the pool if there is none, makes its backends the
	// ones to choose from for new connections, and returns where it listens: at an
	// address of this node of the pool's family.
	Set(p Pool) (netip.AddrPort, error)

	// Remove closes the socket of a pool. Connections go on.
	Remove(id PoolID)

	// Settle blocks until no connection is on its way any more to a backend
	// that is none any more, or until ctx is over. It is called from a
	// goroutine of its own.
	Settle(ctx context.Context)
}

// A Redirect sends what is addressed to a Service to a socket of this node.
type Redirect struct {
	Address  netip.Addr // the zero Addr stands for every address of this node (node ports)
	Protocol corev1.Protocol
	Port     uint16
	To       netip.AddrPort
}

// Rules are redirects in the kernel. Its methods are called from one goroutine.
type Rules interface {
	// Replace makes these all the rules that there are, in one step, whatever
	// an earlier process left.
	Replace(all []Redirect) error

	// Update removes and adds rules in one step. Connections that are
	// established are not touched.
	Update(remove, add []Redirect) error

	// Close removes all rules.
	Close() error
}

// Options configures a [Proxy]. Client, Forwarder and Rules are required.
type Options struct {
	Client    client.Interface
	Caches    *cache.Shared // what the proxy reads; nil means caches of its own, over Client
	Forwarder Forwarder
	Rules     Rules
	Node      string       // whose proxy it is, see package applied; empty means that it tells nobody what it has applied
	Log       *slog.Logger // nil means slog.Default
}

// A Proxy keeps forwarder and rules as the Services of the cluster are.
type Proxy struct {
	opts     Options
	caches   run.Task
	services *cache.Cache[*corev1.Service]
	slices   *cache.Cache[*discoveryv1.EndpointSlice]
	ready    chan struct{}
	wake     chan struct{} // capacity 1

	reports *reporter // nil without Options.Node

	mu      sync.Mutex
	dirty   map[types.NamespacedName]bool // guarded by mu
	awaited uint64                        // guarded by mu; the revision that is to be told when dirty is dealt with

	// Below belongs to the goroutine of follow.
	applied map[types.NamespacedName][]Port
	rules   map[PortID][]Redirect
}

// byService is the index of slices under "namespace/service".
const byService = "service"

// New returns a proxy that has not started; call [Proxy.Run].
func New(o Options) (*Proxy, error) {
	if o.Client == nil || o.Forwarder == nil || o.Rules == nil {
		return nil, errors.New("proxy: Options.Client, Forwarder and Rules are required")
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	p := &Proxy{
		opts:    o,
		ready:   make(chan struct{}),
		wake:    make(chan struct{}, 1),
		dirty:   map[types.NamespacedName]bool{},
		applied: map[types.NamespacedName][]Port{},
		rules:   map[PortID][]Redirect{},
	}
	if o.Node != "" {
		p.reports = &reporter{
			client: o.Client, node: o.Node, forwarder: o.Forwarder, log: o.Log, wake: make(chan struct{}, 1),
		}
	}
	o.Caches, p.caches = o.Caches.Or(o.Client, o.Log)
	p.services = cache.Of(o.Caches, client.Services, nil)
	p.services.Subscribe(func(old, now *corev1.Service) {
		s := cmpNil(now, old)
		p.touch(types.NamespacedName{Namespace: s.Namespace, Name: s.Name}, 0)
	})
	p.slices = cache.Of(o.Caches, client.EndpointSlices, cache.Indexes[*discoveryv1.EndpointSlice]{
		byService: func(s *discoveryv1.EndpointSlice) []string { return []string{serviceOf(s).String()} },
	})
	p.slices.Subscribe(func(old, now *discoveryv1.EndpointSlice) {
		if old != nil {
			p.touch(serviceOf(old), 0)
		}
		if now != nil {
			name := serviceOf(now)
			p.touch(name, awaited(now, p.slices.ByIndex(byService, name.String())))
		}
	})
	return p, nil
}

func cmpNil[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

func serviceOf(s *discoveryv1.EndpointSlice) types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
}

// Ready is closed when the rules are as the cluster was when the proxy started.
func (p *Proxy) Ready() <-chan struct{} { return p.ready }

// Run proxies until ctx is over, then removes the rules. It returns an error if
// the rules can't be made at the start; later faults of single Services are
// logged and tried again with the next change.
func (p *Proxy) Run(ctx context.Context) error {
	first := run.Stage{p.caches}
	if p.reports != nil {
		first = append(first, run.Task{Name: "reports", Run: p.reports.run})
	}
	return run.Stages(ctx, first, run.Stage{{Name: "rules", Run: p.follow}})
}

// touch marks a Service as changed. Awaited is the revision of the change if an
// agent may wait for that, or 0.
func (p *Proxy) touch(name types.NamespacedName, awaited uint64) {
	p.mu.Lock()
	p.dirty[name] = true
	p.awaited = max(p.awaited, awaited)
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *Proxy) follow(ctx context.Context) error {
	_, awaited := p.changes(ctx)
	for _, svc := range p.services.List("") {
		p.converge(types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name})
	}
	var all []Redirect
	for _, rs := range p.rules {
		all = append(all, rs...)
	}
	if err := p.opts.Rules.Replace(all); err != nil {
		return fmt.Errorf("making the rules of the service proxy: %w", err)
	}
	p.tell(awaited)
	close(p.ready)
	for {
		select {
		case <-ctx.Done():
			return p.opts.Rules.Close()
		case <-p.wake:
		}
		var remove, add []Redirect
		var closing []PortID
		dirty, awaited := p.changes(ctx)
		for name := range dirty {
			r, a, c := p.converge(name)
			remove, add, closing = append(remove, r...), append(add, a...), append(closing, c...)
		}
		if len(remove)+len(add) > 0 {
			if err := p.opts.Rules.Update(remove, add); err != nil {
				p.opts.Log.ErrorContext(ctx, "changing the rules of the service proxy", "err", err)
				p.repair(ctx)
			}
		}
		for _, id := range closing {
			p.opts.Forwarder.Remove(PoolID{PortID: id})
		}
		p.tell(awaited)
	}
}

// tell reports a revision up to which everything is applied; 0 is none.
func (p *Proxy) tell(revision uint64) {
	if p.reports != nil && revision > 0 {
		p.reports.note(revision)
	}
}

// repair makes all rules anew after a change that was refused.
func (p *Proxy) repair(ctx context.Context) {
	var all []Redirect
	for _, rs := range p.rules {
		all = append(all, rs...)
	}
	if err := p.opts.Rules.Replace(all); err != nil {
		p.opts.Log.ErrorContext(ctx, "making the rules of the service proxy anew", "err", err)
	}
}

// changes returns the Services to look at, and the revision of EndpointSlices that is
// in effect once they are dealt with, or 0 if nobody waits for that.
func (p *Proxy) changes(ctx context.Context) (dirty map[types.NamespacedName]bool, awaited uint64) {
	dirty = map[types.NamespacedName]bool{}
	for {
		// What has been told up to a revision is told completely only once the
		// cache has that revision: after a new list, changes come in any order.
		complete, _ := strconv.ParseUint(p.slices.Revision(), 10, 64)
		more, revision := p.takeDirty()
		maps.Copy(dirty, more)
		if awaited = max(awaited, revision); awaited <= complete {
			return dirty, awaited
		}
		if p.slices.Await(ctx, strconv.FormatUint(awaited, 10)) != nil {
			return dirty, 0
		}
	}
}

// takeDirty returns the Services that changed since it was called last, and the
// revision up to which their EndpointSlices may be waited for, or 0.
func (p *Proxy) takeDirty() (map[types.NamespacedName]bool, uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d, awaited := p.dirty, p.awaited
	p.dirty, p.awaited = map[types.NamespacedName]bool{}, 0
	return d, awaited
}

// converge brings the forwarder to what a Service wants now, and returns the
// change of rules and the ports whose sockets may be closed after it.
func (p *Proxy) converge(name types.NamespacedName) (remove, add []Redirect, closing []PortID) {
	svc, _ := p.services.Get(name.Namespace, name.Name)
	want := Ports(svc, p.slices.ByIndex(byService, name.String()))
	for _, old := range p.applied[name] {
		if !slices.ContainsFunc(want, func(q Port) bool { return q.PortID == old.PortID }) {
			remove = append(remove, p.rules[old.PortID]...)
			delete(p.rules, old.PortID)
			closing = append(closing, old.PortID)
		}
	}
	var done []Port // what stands; a port that failed is tried again with the next change
	for _, port := range want {
		if i := slices.IndexFunc(p.applied[name], func(q Port) bool { return q.PortID == port.PortID }); i >= 0 && p.applied[name][i].equal(port) {
			done = append(done, port)
			continue
		}
		at, err := p.opts.Forwarder.Set(Pool{PoolID: PoolID{PortID: port.PortID}, Backends: port.Backends, Affinity: port.Affinity})
		if err != nil {
			p.opts.Log.Error("opening a socket for a service", "service", name, "port", port.Number, "err", err)
			continue
		}
		now := redirects(port, at)
		for _, r := range p.rules[port.PortID] {
			if !slices.Contains(now, r) {
				remove = append(remove, r)
			}
		}
		for _, r := range now {
			if !slices.Contains(p.rules[port.PortID], r) {
				add = append(add, r)
			}
		}
		p.rules[port.PortID] = now
		done = append(done, port)
	}
	if p.applied[name] = done; len(done) == 0 {
		delete(p.applied, name)
	}
	return remove, add, closing
}

// redirects returns the rules of a port. A port without backends has none, so
// that the kernel refuses connections to it.
func redirects(p Port, to netip.AddrPort) []Redirect {
	if len(p.Backends) == 0 {
		return nil
	}
	var rs []Redirect
	for _, a := range p.Addresses {
		rs = append(rs, Redirect{Address: a, Protocol: p.Protocol, Port: p.Number, To: to})
	}
	if p.NodePort != 0 {
		rs = append(rs, Redirect{Protocol: p.Protocol, Port: p.NodePort, To: to})
	}
	return rs
}
