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
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/internal/reserved"
	"github.com/sampan-io/sampan/internal/run"
)

// Options configures a [Proxy]. Client, Forwarder and Kernel are required.
type Options struct {
	Client    client.Interface
	Caches    *cache.Shared // caches to read from; nil means separate caches over Client
	Forwarder Forwarder
	Kernel    Kernel

	// Node is the name of the proxy's node. If it is empty the proxy does not report what it has
	// applied (see package applied), and treats no endpoint as on this node.
	Node string

	Userspace bool           // relay Services that do not select a mode
	Loopback  bool           // serve node ports at 127.0.0.1 and ::1 as well
	Services  []netip.Prefix // known networks of cluster IPs; see Here

	// Pods are the known networks of pods, and Own the ports of the cluster's own servers on this
	// host; see Here.
	Pods []netip.Prefix
	Own  reserved.Ports

	// HostAddresses calls set with the addresses of this host, ascending, first at once and then
	// whenever they have changed, until ctx is cancelled. External IPs must not be among them. It
	// may be nil.
	HostAddresses func(ctx context.Context, set func([]netip.Addr)) error

	// Resolvers and Gateways are the same for the name servers that cluster DNS and the host ask, and for the routers of
	// the host's default routes. Neither external IPs nor addresses of load balancers must be among them.
	Resolvers, Gateways func(ctx context.Context, set func([]netip.Addr)) error

	// Networks, if not nil, makes the proxy watch the cluster's ServiceCIDRs, if the API server
	// serves them, in place of Services. It is called with all networks, ascending, without
	// duplicates, before the kernel's rules are replaced because they changed, and not concurrently
	// with methods of the Kernel that are limited to one goroutine.
	Networks func(all []netip.Prefix)

	// Watch calls lost whenever another program has removed the kernel's rules. It blocks until ctx
	// is cancelled or it fails. If it is nil the loss is noticed at the next change.
	Watch func(ctx context.Context, lost func()) error

	// Foreign returns descriptions of other proxies that run on this node. It is called once, at
	// the start. It may be nil.
	Foreign func() ([]string, error)

	// Keep leaves rules and announced addresses in place when Run ends: connections go on, and the
	// next process takes over without interruption.
	Keep bool

	Health HealthChecks // nil: health-check node ports are not served

	// Announcer makes this node answer for its share of the addresses of load balancers, which are
	// shared among all nodes with an Announcer. It may be nil, and needs Node.
	Announcer Announcer

	Log *slog.Logger // nil means slog.Default
}

// HealthChecks serve health-check node ports (package proxy/health).
type HealthChecks interface {
	// Set makes h the answer for a Service, and opens its port if needed; nil closes the port. A
	// failure to open a port is logged and retried.
	Set(service types.NamespacedName, h *Health)
}

// An Announcer makes this node answer for addresses.
type Announcer interface {
	// Announce makes these the addresses that this node answers for, replacing all earlier ones.
	// They are sorted, without duplicates. After an error it is called again with all of them.
	Announce(ctx context.Context, all []netip.Addr) error

	// Remind sends neighbours the addresses that this node answers for once more.
	Remind(ctx context.Context, of []netip.Addr) error
}

// A Proxy keeps forwarder and kernel in sync with the Services of the cluster.
type Proxy struct {
	opts     Options
	caches   run.Stage
	services *cache.Cache[*corev1.Service]
	slices   *cache.Cache[*discoveryv1.EndpointSlice]
	nodes    *cache.Cache[*corev1.Node]              // nil without Options.Node
	leases   *cache.Cache[*coordinationv1.Lease]     // of the proxies; nil without Options.Announcer
	networks *cache.Cache[*networkingv1.ServiceCIDR] // nil without Options.Networks
	events   *client.Recorder
	metrics  *metrics
	counts   *counts
	ready    chan struct{}
	wake     run.Bell
	sick     atomic.Bool  // the kernel refuses the wanted rules
	leaving  atomic.Bool  // the node is about to be removed
	other    atomic.Bool  // the set of nodes that answer for addresses may have changed
	updated  atomic.Int64 // last time the kernel took rules, in nanoseconds since 1970

	reports *reporter // nil without Options.Node

	mu      sync.Mutex
	dirty   map[types.NamespacedName]bool // guarded by mu
	awaited uint64                        // guarded by mu; the revision to report when dirty is done
	here    Here                          // guarded by mu
	moved   bool                          // guarded by mu; here has changed since the rules were made
	taken   bool                          // guarded by mu; here.Reserved has
	lost    bool                          // guarded by mu; another program has removed the rules
	causes  []time.Time                   // guarded by mu; times of the events behind endpoint changes not yet applied

	// The fields below belong to the goroutine of follow.
	states       map[types.NamespacedName]*state
	sockets      map[PoolID]netip.AddrPort
	table        *ruleTable
	closing      map[PoolID]bool               // sockets that rules no longer lead to
	again        map[types.NamespacedName]bool // Services to retry: they lack a socket
	due          uint64                        // revision to report when all is done
	waiting      []time.Time                   // causes to record when all is done
	broken       bool                          // the kernel refused a change, and its rules have not been replaced since
	announce     bool                          // announced addresses may have to change
	answered     []netip.Addr                  // addresses that this node answers for
	remind       <-chan time.Time              // when to remind neighbours next; nil if they need not be
	reminded     int                           // number of reminders so far
	lastNetworks []netip.Prefix                // the last argument of Options.Networks
}

// state is the proxy's state of a Service.
type state struct {
	uid       types.UID
	frontends []Frontend
	pools     []Pool
	announced []Announced
	faults    []Fault
	refused   []string
	unopened  []string // errors of its sockets
	health    *Health
	spent     []netip.Addr
}

// byService is the index of slices under "namespace/service".
const byService = "service"

// New returns a proxy that has not started; call [Proxy.Run].
func New(o Options) (*Proxy, error) {
	if o.Client == nil || o.Forwarder == nil || o.Kernel == nil {
		return nil, errors.New("proxy: Options.Client, Forwarder and Kernel are required")
	}
	if o.Announcer != nil && o.Node == "" {
		return nil, errors.New("proxy: Options.Announcer needs Options.Node")
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	p := &Proxy{
		opts:    o,
		events:  client.NewRecorder(o.Client, "service-proxy", o.Node, o.Log),
		metrics: newMetrics(),
		ready:   make(chan struct{}),
		wake:    run.NewBell(),
		dirty:   map[types.NamespacedName]bool{},
		here:    Here{Node: o.Node, Services: o.Services, Userspace: o.Userspace, Loopback: o.Loopback, Own: o.Own, Reserved: reserved.Addresses{Pods: reserved.AddNetworks(nil, o.Pods...)}},
		states:  map[types.NamespacedName]*state{},
		sockets: map[PoolID]netip.AddrPort{},
		table:   newRuleTable(),
		closing: map[PoolID]bool{},
		again:   map[types.NamespacedName]bool{},

		announce: true, // an earlier process may have left some
	}
	if o.Node != "" {
		p.reports = &reporter{
			client: o.Client, node: o.Node, log: o.Log, wake: run.NewBell(), announces: o.Announcer != nil, keep: o.Keep,
			settle: func(ctx context.Context) {
				o.Kernel.Settle(ctx)
				o.Forwarder.Settle(ctx)
			},
		}
	}
	p.follows()
	p.counts = newCounts(o.Kernel, p.table, func(name types.NamespacedName, created time.Time) bool {
		svc, ok := p.services.Get(name.Namespace, name.Name)
		return ok && svc.CreationTimestamp.Time.Equal(created)
	}, o.Log)
	return p, nil
}

// Ready is closed when the rules match the cluster as it was when the proxy started.
func (p *Proxy) Ready() <-chan struct{} { return p.ready }

// Run proxies until ctx is cancelled, then removes the rules unless Options.Keep is set. It returns
// an error if it can't make the rules at the start; it logs and retries later failures.
func (p *Proxy) Run(ctx context.Context) error {
	first := append(slices.Clone(p.caches), run.Task{Name: "events", Run: p.events.Run}, run.Task{Name: "kernel", Run: p.runKernel})
	first = append(first, p.reserves()...)
	if p.reports != nil {
		first = append(first, run.Task{Name: "reports", Run: p.reports.run})
	}
	if p.opts.Watch != nil {
		first = append(first, run.Task{Name: "watch of the rules", Run: p.watch})
	}
	return run.Stages(ctx, first, run.Stage{{Name: "rules", Run: p.follow}})
}

// runKernel runs Kernel.Run.
func (p *Proxy) runKernel(ctx context.Context) error {
	if err := p.opts.Kernel.Run(ctx); err != nil {
		p.opts.Log.WarnContext(ctx, "cannot watch for resets: a client that reuses a port may reach a removed endpoint for up to 10s", "err", err)
	}
	<-ctx.Done()
	return nil
}

// watch has all rules replaced when another program removes them.
func (p *Proxy) watch(ctx context.Context) error {
	err := p.opts.Watch(ctx, func() {
		p.mu.Lock()
		p.lost = true
		p.mu.Unlock()
		p.nudge()
	})
	if err != nil {
		p.opts.Log.WarnContext(ctx, "cannot watch the rules of the service proxy: if another program removes them, they are restored only at the next change", "err", err)
	}
	<-ctx.Done()
	return nil
}

// Healthy reports whether the rules are as wanted, or will be in a moment.
func (p *Proxy) Healthy() bool { return !p.sick.Load() }

// Eligible reports whether the node should get new traffic: it is neither being deleted nor about
// to be scaled away.
func (p *Proxy) Eligible() bool { return !p.leaving.Load() }

// Updated returns when the rules were last made or changed.
func (p *Proxy) Updated() time.Time { return time.Unix(0, p.updated.Load()) }

// done records that the kernel took rules: all of them if full, or changes.
func (p *Proxy) done(ctx context.Context, start time.Time, full bool) {
	p.metrics.synced(start, full)
	p.counts.commit(ctx)
	p.metrics.hold(len(p.states), p.table.size())
	p.broken = false
	p.sick.Store(false)
	p.updated.Store(time.Now().UnixNano())
}

// moveTo changes the proxy's information about its node.
func (p *Proxy) moveTo(change func(*Here)) {
	p.mu.Lock()
	next := p.here
	change(&next)
	moved, taken := !next.equal(p.here), !next.Reserved.Equal(p.here.Reserved)
	p.here, p.moved, p.taken = next, p.moved || moved, p.taken || taken
	p.mu.Unlock()
	if moved || taken {
		p.nudge()
	}
}

// reserves returns the tasks that follow the addresses which Services must not have.
func (p *Proxy) reserves() (tasks []run.Task) {
	for _, source := range []struct {
		name   string
		follow func(ctx context.Context, set func([]netip.Addr)) error
		keep   func(*reserved.Addresses, []netip.Addr)
	}{
		{"addresses of this host", p.opts.HostAddresses, func(a *reserved.Addresses, all []netip.Addr) { a.Host = all }},
		{"name servers of this host", p.opts.Resolvers, func(a *reserved.Addresses, all []netip.Addr) { a.Resolvers = all }},
		{"gateways of this host", p.opts.Gateways, func(a *reserved.Addresses, all []netip.Addr) { a.Gateways = all }},
	} {
		if source.follow == nil {
			continue
		}
		ready := make(chan struct{})
		known := sync.OnceFunc(func() { close(ready) })
		tasks = append(tasks, run.Task{Name: source.name, Ready: ready, Run: func(ctx context.Context) error {
			return source.follow(ctx, func(all []netip.Addr) {
				p.moveTo(func(h *Here) { source.keep(&h.Reserved, all) })
				known()
			})
		}})
	}
	return tasks
}

// caused records when an event that changed endpoints happened. It never blocks.
func (p *Proxy) caused(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.causes) < maxCauses {
		p.causes = append(p.causes, at)
	}
}

// maxCauses bounds the causes that are kept while the kernel refuses changes.
const maxCauses = 1000

func (p *Proxy) nudge() {
	p.wake.Ring()
}

// touch marks a Service as changed. Awaited is the revision of the change if an agent may wait for
// it, or 0.
func (p *Proxy) touch(name types.NamespacedName, awaited uint64) {
	p.mu.Lock()
	p.dirty[name] = true
	p.metrics.queued.SetToCurrentTime()
	p.awaited = max(p.awaited, awaited)
	p.mu.Unlock()
	p.nudge()
}

// A change that the kernel or the forwarder refused is retried after firstPause, doubling up to
// lastPause.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 30 * time.Second
)

func (p *Proxy) follow(ctx context.Context) error {
	p.take(ctx)
	start := time.Now()
	if err := p.opts.Kernel.Replace(ctx, p.table.all()); err != nil {
		return fmt.Errorf("making the rules of the service proxy: %w", err)
	}
	p.done(ctx, start, true)
	p.finish(ctx)
	p.reportForeign(ctx)
	close(p.ready)
	for failures := 0; ; {
		var again <-chan time.Time
		if p.broken || p.announce || len(p.again) > 0 {
			again = time.After(min(firstPause<<min(failures, 20), lastPause))
			failures++
		} else {
			failures = 0
		}
		select {
		case <-ctx.Done():
			return p.stop()
		case <-p.remind:
			p.remindNeighbours(ctx)
			continue
		case <-again:
		case <-p.wake:
		}
		p.take(ctx)
		if p.apply(ctx) {
			p.finish(ctx)
		}
	}
}

// stop removes rules and announcements, unless Options.Keep is set.
func (p *Proxy) stop() error {
	if p.opts.Keep {
		return nil
	}
	err := p.opts.Kernel.Close()
	if p.opts.Announcer != nil {
		err = errors.Join(err, p.opts.Announcer.Announce(context.Background(), nil)) //nolint:forbidigo // what is taken back is taken back to the end
	}
	return err
}

// take plans the Services that changed.
func (p *Proxy) take(ctx context.Context) {
	dirty, here, awaited := p.changes(ctx)
	p.due = max(p.due, awaited)
	p.mu.Lock()
	lost := p.lost
	p.lost = false
	p.mu.Unlock()
	if lost {
		p.opts.Log.WarnContext(ctx, "another program removed the rules of the service proxy (perhaps `nft flush ruleset`); restoring them")
		p.broken = true
		if err := p.opts.Forwarder.Restore(); err != nil {
			p.opts.Log.WarnContext(ctx, "restoring the policy routes of relayed connections", "err", err)
		}
	}
	if p.opts.Networks != nil && !slices.Equal(here.Services, p.lastNetworks) {
		p.opts.Log.InfoContext(ctx, "networks of cluster IPs changed", "networks", here.Services)
		p.opts.Networks(slices.Clone(here.Services))
		p.lastNetworks, p.broken = here.Services, true
	}
	maps.Copy(dirty, p.again)
	clear(p.again)
	for name := range dirty {
		if !run.Shield(p.opts.Log, func() { p.converge(name, here) }, "service", name) {
			p.again[name] = true
		}
	}
}

// apply brings the kernel's rules to the wanted ones, and reports whether it succeeded.
func (p *Proxy) apply(ctx context.Context) bool {
	start := time.Now()
	if !p.broken {
		changes := p.table.changes()
		if len(changes) == 0 {
			p.counts.commit(ctx)
			return true
		}
		err := p.opts.Kernel.Update(ctx, changes)
		if err == nil {
			p.done(ctx, start, false)
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		p.opts.Log.WarnContext(ctx, "cannot change the rules of the service proxy; replacing all of them", "err", err)
		p.metrics.failed()
		p.broken = true
	}
	if err := p.opts.Kernel.Replace(ctx, p.table.all()); err != nil {
		if ctx.Err() == nil {
			p.opts.Log.ErrorContext(ctx, "cannot replace the rules of the service proxy; retrying", "err", err)
			p.metrics.failed()
			p.sick.Store(true)
		}
		return false
	}
	p.done(ctx, start, true)
	return true
}

// finish does the work that must wait for the rules: close sockets, announce addresses, report revisions.
func (p *Proxy) finish(ctx context.Context) {
	for id := range p.closing {
		p.opts.Forwarder.Remove(id)
		delete(p.sockets, id)
	}
	clear(p.closing)
	p.announceMine(ctx)
	for _, at := range p.waiting {
		p.metrics.programmed(at)
	}
	p.waiting = p.waiting[:0]
	if p.reports != nil && p.due > 0 && len(p.again) == 0 {
		p.reports.note(p.due)
		p.due = 0
	}
}

// changes returns the Services that changed, the node, and the revision of EndpointSlices that will
// be in effect once they are done, or 0 if no agent waits for one.
func (p *Proxy) changes(ctx context.Context) (dirty map[types.NamespacedName]bool, here Here, awaited uint64) {
	dirty = map[types.NamespacedName]bool{}
	for {
		// Changes up to a revision are complete only once the cache has that revision: after a new
		// list they come in any order.
		complete, _ := strconv.ParseUint(p.slices.Revision(), 10, 64)
		more, now, affected, revision := p.takeDirty()
		here = now
		maps.Copy(dirty, more)
		if affected != nil {
			for _, svc := range p.services.List("") {
				if affected(svc) {
					dirty[types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}] = true
				}
			}
		}
		if awaited = max(awaited, revision); awaited <= complete {
			return dirty, here, awaited
		}
		if p.slices.Await(ctx, strconv.FormatUint(awaited, 10)) != nil {
			return dirty, here, 0
		}
	}
}

// takeDirty returns the Services that changed since the last call, the node, which others a change
// of that affects (nil means none), and the revision of EndpointSlices that an agent may wait for, or 0.
func (p *Proxy) takeDirty() (dirty map[types.NamespacedName]bool, here Here, affected func(*corev1.Service) bool, awaited uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if moved := p.moved; moved || p.taken {
		affected = func(svc *corev1.Service) bool {
			return moved || len(svc.Spec.ExternalIPs)+len(svc.Status.LoadBalancer.Ingress) > 0
		}
	}
	dirty, awaited = p.dirty, p.awaited
	if len(p.waiting) < maxCauses {
		p.waiting = append(p.waiting, p.causes...)
	}
	p.causes = p.causes[:0]
	p.dirty, p.moved, p.taken, p.awaited = map[types.NamespacedName]bool{}, false, false, 0
	return dirty, p.here, affected, awaited
}

// converge brings sockets and the ruleTable to a Service's present plan.
func (p *Proxy) converge(name types.NamespacedName, here Here) {
	svc, _ := p.services.Get(name.Namespace, name.Name)
	s := p.states[name]
	var spent []netip.Addr
	if s != nil {
		spent = s.spent
	}
	plan := NextPlan(spent, svc, p.slices.ByIndex(byService, name.String()), here)
	if s == nil {
		if len(plan.Rules) == 0 && len(plan.Faults) == 0 && len(plan.Refused) == 0 {
			return
		}
		s = &state{}
		p.states[name] = s
	}
	p.reportFaults(svc, s, plan)
	p.open(svc, name, s, plan.Pools)
	var created time.Time
	if svc != nil {
		created = svc.CreationTimestamp.Time
	}
	var conflicts []conflict
	rules, ports := p.rules(name, plan.Rules)
	s.frontends, conflicts = p.table.put(name, created, rules, ports, s.frontends)
	for _, c := range conflicts {
		p.reportConflict(c)
	}
	if !sameHealth(s.health, plan.Health) && p.opts.Health != nil {
		p.opts.Health.Set(name, plan.Health)
	}
	s.health = plan.Health
	if !slices.EqualFunc(s.announced, plan.Announced, Announced.equal) {
		p.announce = true
	}
	s.announced, s.spent = plan.Announced, plan.Spent
	if svc == nil {
		p.counts.end(name)
	}
	if svc == nil || len(s.frontends)+len(s.pools)+len(s.faults)+len(s.refused)+len(s.unopened) == 0 {
		delete(p.states, name)
	}
}

func sameHealth(a, b *Health) bool { return a == b || a != nil && b != nil && *a == *b }

// open makes pools the pools of a Service. The sockets of former pools stay open until no rule
// leads to them.
func (p *Proxy) open(svc *corev1.Service, name types.NamespacedName, s *state, pools []Pool) {
	var have []Pool
	var unopened []string
	for _, pool := range pools {
		delete(p.closing, pool.PoolID)
		i := slices.IndexFunc(s.pools, func(q Pool) bool { return q.PoolID == pool.PoolID })
		if i >= 0 && s.pools[i].equal(pool) && p.sockets[pool.PoolID].IsValid() {
			have = append(have, pool)
			continue
		}
		at, err := p.opts.Forwarder.Set(pool)
		if err != nil {
			unopened = append(unopened, fmt.Sprintf("port %q (%s): %v", pool.Port, pool.Protocol, err))
			p.metrics.relayFailures.Inc()
			p.again[name] = true
			if p.sockets[pool.PoolID].IsValid() {
				have = append(have, s.pools[i]) // unchanged
			}
			continue
		}
		p.sockets[pool.PoolID] = at
		have = append(have, pool)
	}
	for _, old := range s.pools {
		if !slices.ContainsFunc(have, func(q Pool) bool { return q.PoolID == old.PoolID }) {
			p.closing[old.PoolID] = true
		}
	}
	s.pools = have
	p.reportSockets(svc, s, unopened)
}

func (p Pool) equal(q Pool) bool {
	return p.PoolID == q.PoolID && slices.Equal(p.Backends, q.Backends) && p.Affinity == q.Affinity && p.MaxConnections == q.MaxConnections &&
		p.ProxyProtocol == q.ProxyProtocol && p.Transparent == q.Transparent
}

// rules returns the rules of a plan, with sockets as the backends of relayed ones, and the names of
// their ports. It leaves out rules whose socket is not open.
func (p *Proxy) rules(name types.NamespacedName, planned []PlannedRule) (rules []Rule, ports []string) {
	rules, ports = make([]Rule, 0, len(planned)), make([]string, 0, len(planned))
	for i := range planned {
		r := planned[i].Rule
		if r.Relayed {
			all := planned[i].Pool
			all.Local = false
			if !p.relay(&r.Backends, planned[i].Pool) || !p.relay(&r.Inside, all) {
				p.again[name] = true
				continue
			}
			r.Relayed = len(r.Backends)+len(r.Inside) > 0
		}
		rules, ports = append(rules, r), append(ports, planned[i].Pool.Port)
	}
	return rules, ports
}

// relay replaces backends by a socket, if there are any.
func (p *Proxy) relay(backends *[]netip.AddrPort, id PoolID) bool {
	if len(*backends) == 0 {
		return true
	}
	at := p.sockets[id]
	*backends = []netip.AddrPort{at}
	return at.IsValid()
}
