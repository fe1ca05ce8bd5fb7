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
	"github.com/sampan-io/sampan/internal/run"
)

// Options configures a [Proxy]. Client, Forwarder and Kernel are required.
type Options struct {
	Client    client.Interface
	Caches    *cache.Shared // what the proxy reads; nil means caches of its own, over Client
	Forwarder Forwarder
	Kernel    Kernel

	// Node is whose proxy it is, see package applied. Empty means that it tells nobody what
	// it has applied, and that no endpoint is on this node.
	Node string

	Userspace bool           // Services are relayed unless they say otherwise
	Loopback  bool           // node ports are at 127.0.0.1 and ::1 as well
	Services  []netip.Prefix // networks of cluster IPs, as far as known; see Here

	// Networks has the proxy follow the cluster's ServiceCIDRs, where the server serves these, in the
	// place of Services. It is called with all of them, ascending, each once, before the kernel's rules are made
	// anew because they changed, and not at the same time as any of the kernel's methods but those that may be
	// called from any goroutine. Nil: they are not followed.
	Networks func(all []netip.Prefix)

	// Watch calls lost whenever somebody else has removed the kernel's rules, and blocks until ctx
	// is over or it can't go on. Nil: that is not noticed before the next change.
	Watch func(ctx context.Context, lost func()) error

	// Foreign looks for other proxies that work on this node, and says in words what it found.
	// Nil looks for none. It is called once, at the start.
	Foreign func() ([]string, error)

	// Keep leaves rules and announced addresses as they are when Run ends: what they lead to
	// goes on, and the next process takes them over without a break.
	Keep bool

	Health HealthChecks // nil: health-check node ports are not served

	// Announcer makes this node answer for its share of the addresses of load balancers; the others of
	// the nodes that have one have theirs. Nil: it answers for none. It needs Node.
	Announcer Announcer

	Log *slog.Logger // nil means slog.Default
}

// HealthChecks answer at health-check node ports (package proxy/health).
type HealthChecks interface {
	// Set makes this the answer for a Service, and opens its port if need be; nil
	// ends it. A port that can't be opened is logged and tried again.
	Set(service types.NamespacedName, h *Health)
}

// An Announcer makes this node answer for addresses.
type Announcer interface {
	// Announce makes these all the addresses that this node answers for. They are
	// sorted, each once. After an error it is called again with all of them.
	Announce(ctx context.Context, all []netip.Addr) error

	// Remind tells neighbours again of addresses that this node answers for.
	Remind(ctx context.Context, of []netip.Addr) error
}

// A Proxy keeps forwarder and kernel as the Services of the cluster are.
type Proxy struct {
	opts     Options
	caches   run.Stage
	services *cache.Cache[*corev1.Service]
	slices   *cache.Cache[*discoveryv1.EndpointSlice]
	nodes    *cache.Cache[*corev1.Node]              // nil without Options.Node
	leases   *cache.Cache[*coordinationv1.Lease]     // of the proxies; nil unless this one is an announcer
	networks *cache.Cache[*networkingv1.ServiceCIDR] // nil without Options.Networks
	events   *client.Recorder
	metrics  *metrics
	counts   *counts
	ready    chan struct{}
	wake     chan struct{} // capacity 1
	sick     atomic.Bool   // the kernel refuses what is to be
	leaving  atomic.Bool   // the node is about to go
	other    atomic.Bool   // other nodes may answer for addresses now
	updated  atomic.Int64  // when the kernel took something last, in nanoseconds since 1970

	reports *reporter // nil without Options.Node

	mu      sync.Mutex
	dirty   map[types.NamespacedName]bool // guarded by mu
	awaited uint64                        // guarded by mu; the revision that is to be told when dirty is dealt with
	here    Here                          // guarded by mu
	moved   bool                          // guarded by mu; here is not what the rules were made for
	lost    bool                          // guarded by mu; somebody has removed the rules
	causes  []time.Time                   // guarded by mu; when what changed endpoints happened, not dealt with yet

	// Below belongs to the goroutine of follow.
	states       map[types.NamespacedName]*state
	sockets      map[PoolID]netip.AddrPort
	table        *ruleTable
	closing      map[PoolID]bool               // sockets to which no rule is to lead any more
	again        map[types.NamespacedName]bool // Services that lack a socket
	due          uint64                        // what is to be told when all is done
	waiting      []time.Time                   // causes that are dealt with when all is done
	broken       bool                          // the kernel refused a change, and has not been made anew since
	announce     bool                          // what is announced is to be looked at
	answered     []netip.Addr                  // what this node answers for
	remind       <-chan time.Time              // when neighbours are told again; nil if they need not be
	reminded     int                           // how often they were
	lastNetworks []netip.Prefix                // what Options.Networks was called with last
}

// state is what is done for a Service.
type state struct {
	uid       types.UID
	frontends []Frontend
	pools     []Pool
	announced []Announced
	faults    []Fault
	refused   []string
	unopened  []string // what is wrong with sockets
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
		wake:    make(chan struct{}, 1),
		dirty:   map[types.NamespacedName]bool{},
		here:    Here{Node: o.Node, Services: o.Services, Userspace: o.Userspace, Loopback: o.Loopback},
		states:  map[types.NamespacedName]*state{},
		sockets: map[PoolID]netip.AddrPort{},
		table:   newRuleTable(),
		closing: map[PoolID]bool{},
		again:   map[types.NamespacedName]bool{},

		announce: true, // an earlier process may have left some
	}
	if o.Node != "" {
		p.reports = &reporter{
			client: o.Client, node: o.Node, log: o.Log, wake: make(chan struct{}, 1), announces: o.Announcer != nil, keep: o.Keep,
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

// Ready is closed when the rules are as the cluster was when the proxy started.
func (p *Proxy) Ready() <-chan struct{} { return p.ready }

// Run proxies until ctx is over, then removes the rules, unless Options.Keep says otherwise. It
// returns an error if the rules can't be made at the start; later faults are logged and tried
// again.
func (p *Proxy) Run(ctx context.Context) error {
	first := append(slices.Clone(p.caches), run.Task{Name: "events", Run: p.events.Run}, run.Task{Name: "kernel", Run: p.runKernel})
	if p.reports != nil {
		first = append(first, run.Task{Name: "reports", Run: p.reports.run})
	}
	if p.opts.Watch != nil {
		first = append(first, run.Task{Name: "watch of the rules", Run: p.watch})
	}
	return run.Stages(ctx, first, run.Stage{{Name: "rules", Run: p.follow}})
}

// runKernel does what the kernel's rules can't.
func (p *Proxy) runKernel(ctx context.Context) error {
	if err := p.opts.Kernel.Run(ctx); err != nil {
		p.opts.Log.WarnContext(ctx, "clients whose connections were reset may be led to the same endpoint again for some seconds, also if it is gone", "err", err)
	}
	<-ctx.Done()
	return nil
}

// watch has rules that somebody else removes made anew.
func (p *Proxy) watch(ctx context.Context) error {
	err := p.opts.Watch(ctx, func() {
		p.mu.Lock()
		p.lost = true
		p.mu.Unlock()
		p.nudge()
	})
	if err != nil {
		p.opts.Log.WarnContext(ctx, "rules of the service proxy that somebody else removes are not missed before the next change", "err", err)
	}
	<-ctx.Done()
	return nil
}

// Healthy reports whether the rules are what they are to be, or will be in a moment.
func (p *Proxy) Healthy() bool { return !p.sick.Load() }

// Eligible reports whether the node is to get new traffic: it is neither being deleted
// nor about to be scaled away.
func (p *Proxy) Eligible() bool { return !p.leaving.Load() }

// Updated is when the rules were made or changed last.
func (p *Proxy) Updated() time.Time { return time.Unix(0, p.updated.Load()) }

// done notes what the kernel took: everything anew, or changes.
func (p *Proxy) done(ctx context.Context, start time.Time, anew bool) {
	p.metrics.synced(start, anew)
	p.counts.commit(ctx)
	p.metrics.hold(len(p.states), p.table.size())
	p.broken = false
	p.sick.Store(false)
	p.updated.Store(time.Now().UnixNano())
}

// moveTo changes what the proxy knows of its node.
func (p *Proxy) moveTo(change func(*Here)) {
	p.mu.Lock()
	next := p.here
	change(&next)
	moved := !next.equal(p.here)
	p.here, p.moved = next, p.moved || moved
	p.mu.Unlock()
	if moved {
		p.nudge()
	}
}

// caused notes when something happened that changed endpoints. It never blocks.
func (p *Proxy) caused(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.causes) < maxCauses {
		p.causes = append(p.causes, at)
	}
}

// maxCauses bounds how many are remembered while the kernel refuses changes.
const maxCauses = 1000

func (p *Proxy) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// touch marks a Service as changed. Awaited is the revision of the change if an
// agent may wait for that, or 0.
func (p *Proxy) touch(name types.NamespacedName, awaited uint64) {
	p.mu.Lock()
	p.dirty[name] = true
	p.metrics.queued.SetToCurrentTime()
	p.awaited = max(p.awaited, awaited)
	p.mu.Unlock()
	p.nudge()
}

// What the kernel or the forwarder refused is tried again after firstPause, and each
// time after twice as long, up to lastPause.
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

// stop takes everything back that is not to stay.
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

// take looks at the Services that changed.
func (p *Proxy) take(ctx context.Context) {
	dirty, here, awaited := p.changes(ctx)
	p.due = max(p.due, awaited)
	p.mu.Lock()
	lost := p.lost
	p.lost = false
	p.mu.Unlock()
	if lost {
		p.opts.Log.WarnContext(ctx, "somebody has removed the rules of the service proxy, perhaps by `nft flush ruleset`; making all of them anew")
		p.broken = true
		if err := p.opts.Forwarder.Restore(); err != nil {
			p.opts.Log.WarnContext(ctx, "making anew what relayed connections need of the node", "err", err)
		}
	}
	if p.opts.Networks != nil && !slices.Equal(here.Services, p.lastNetworks) {
		p.opts.Log.InfoContext(ctx, "networks of cluster IPs, as the ServiceCIDRs of the cluster say", "networks", here.Services)
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

// apply makes the kernel's rules what they are to be, and reports whether they are.
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
		p.opts.Log.WarnContext(ctx, "changing the rules of the service proxy; making all of them anew", "err", err)
		p.metrics.failed()
		p.broken = true
	}
	if err := p.opts.Kernel.Replace(ctx, p.table.all()); err != nil {
		if ctx.Err() == nil {
			p.opts.Log.ErrorContext(ctx, "making the rules of the service proxy anew; trying again", "err", err)
			p.metrics.failed()
			p.sick.Store(true)
		}
		return false
	}
	p.done(ctx, start, true)
	return true
}

// finish does what has to come after the rules.
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

// changes returns the Services to look at, what the node is, and the revision of
// EndpointSlices that is in effect once they are dealt with, or 0 if nobody waits for that.
func (p *Proxy) changes(ctx context.Context) (dirty map[types.NamespacedName]bool, here Here, awaited uint64) {
	dirty = map[types.NamespacedName]bool{}
	for {
		// What has been told up to a revision is told completely only once the
		// cache has that revision: after a new list, changes come in any order.
		complete, _ := strconv.ParseUint(p.slices.Revision(), 10, 64)
		more, now, moved, revision := p.takeDirty()
		here = now
		maps.Copy(dirty, more)
		if moved {
			for _, svc := range p.services.List("") {
				dirty[types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}] = true
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

// takeDirty returns the Services that changed since it was called last, the node and
// whether that did, and the revision up to which EndpointSlices may be waited for, or 0.
func (p *Proxy) takeDirty() (dirty map[types.NamespacedName]bool, here Here, moved bool, awaited uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	dirty, moved, awaited = p.dirty, p.moved, p.awaited
	if len(p.waiting) < maxCauses {
		p.waiting = append(p.waiting, p.causes...)
	}
	p.causes = p.causes[:0]
	p.dirty, p.moved, p.awaited = map[types.NamespacedName]bool{}, false, 0
	return dirty, p.here, moved, awaited
}

// converge brings sockets and books to what a Service wants now.
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

// open makes the pools of a Service those given. The sockets of others stay open
// until no rule leads there.
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
				have = append(have, s.pools[i]) // as it was
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

// rules returns the rules of a plan, with sockets for what is relayed, and the names of the ports that they
// are for. What lacks a socket is left out.
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

// relay puts a socket in the place of backends, if there are any.
func (p *Proxy) relay(backends *[]netip.AddrPort, id PoolID) bool {
	if len(*backends) == 0 {
		return true
	}
	at := p.sockets[id]
	*backends = []netip.AddrPort{at}
	return at.IsValid()
}
