package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/internal/quarantine"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// Options configures a [Scheduler]. Only Client is required.
type Options struct {
	Client client.Interface
	Caches *cache.Shared // the scheduler's; nil means caches of its own, over Client

	// Plugins and Name are the one profile of a scheduler that has no others. No plug-ins mean that every
	// node fits and all are equal; an empty name means "default-scheduler".
	Plugins plugin.Set
	Name    string

	// Profiles serve pods of several scheduler names. Their queueSort must be the same. If there are any, Plugins and
	// Name must be empty.
	Profiles []Profile

	InitialBackoff time.Duration // of a pod that fits nowhere, twice as long each time; 0 means 1 s
	MaxBackoff     time.Duration // 0 means 10 s

	// Extenders are asked about pods that they are interested in, in this order.
	Extenders []Extender

	// Quarantine has the pods that ended an earlier process while it worked on them: they are left alone. Nil has none.
	Quarantine *quarantine.Quarantine

	Log *slog.Logger // nil means slog.Default
}

func (o Options) check() (Options, error) {
	if o.Client == nil {
		return o, errors.New("scheduler: Options.Client is nil")
	}
	if len(o.Profiles) == 0 {
		o.Profiles = []Profile{{Name: cmp.Or(o.Name, corev1.DefaultSchedulerName), Plugins: o.Plugins}}
	} else if o.Name != "" || len(o.Plugins.Entries) > 0 {
		return o, errors.New("scheduler: Options.Profiles and Options.Name or Options.Plugins must not be set both")
	}
	var errs []error
	seen := map[string]bool{}
	for i, p := range o.Profiles {
		if p.Name == "" {
			errs = append(errs, fmt.Errorf("profile %d has no name", i))
		}
		if seen[p.Name] {
			errs = append(errs, fmt.Errorf("profile %q is listed twice", p.Name))
		}
		seen[p.Name] = true
		if err := p.Plugins.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("profile %q: %w", p.Name, err))
		}
		if a, b := sortName(o.Profiles[0]), sortName(p); a != b {
			errs = append(errs, fmt.Errorf("profile %q has %q at queueSort and profile %q has %q: all profiles share one queue and must have the same one", o.Profiles[0].Name, a, p.Name, b))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return o, fmt.Errorf("scheduler: %w", err)
	}
	o.InitialBackoff = cmp.Or(o.InitialBackoff, time.Second)
	o.MaxBackoff = max(cmp.Or(o.MaxBackoff, 10*time.Second), o.InitialBackoff)
	o.Log = cmp.Or(o.Log, slog.Default())
	return o, nil
}

func sortName(p Profile) string {
	for _, e := range p.Plugins.At(plugin.AtQueueSort) {
		return e.Name()
	}
	return ""
}

// binders is the number of bindings that are under way at a time. They share syncs of the server's
// disk, so that a burst of pods is not bound at the pace of one sync each.
const binders = 64

// A Scheduler assigns pods to nodes; see the package comment.
type Scheduler struct {
	opts      Options
	profiles  map[string]*profile
	caches    run.Task
	pods      *cache.Cache[*corev1.Pod]
	nodes     *cache.Cache[*corev1.Node]
	spaces    *cache.Cache[*corev1.Namespace]
	others    []other
	recorders map[string]*client.Recorder // by profile
	metrics   *Metrics
	ready     chan struct{}
	wake      run.Bell // rung when there is something in the inbox

	mu    sync.Mutex
	inbox []func(*loop) // guarded by mu; events for the loop

	held held
}

// other is the objects of a resource that plug-ins need.
type other struct {
	resource schema.GroupVersionResource
	optional bool // see [plugin.OptionalNeeder]
	cache    *cache.Cache[client.Object]
}

// New returns a scheduler that has not started; call [Scheduler.Run].
func New(opts Options) (*Scheduler, error) {
	opts, err := opts.check()
	if err != nil {
		return nil, err
	}
	shared, caches := opts.Caches.Or(opts.Client, opts.Log)
	s := &Scheduler{
		opts:      opts,
		caches:    caches,
		profiles:  map[string]*profile{},
		pods:      cache.Of(shared, client.Pods, nil),
		nodes:     cache.Of(shared, client.Nodes, nil),
		spaces:    cache.Of(shared, client.Namespaces, nil),
		recorders: map[string]*client.Recorder{},
		metrics:   newMetrics(),
		ready:     make(chan struct{}),
		wake:      run.NewBell(),
	}
	needs := map[schema.GroupVersionResource]bool{} // true if they are required
	for _, p := range opts.Profiles {
		if s.profiles[p.Name], err = newProfile(p); err != nil {
			return nil, fmt.Errorf("scheduler: %w", err)
		}
		s.recorders[p.Name] = client.NewRecorder(opts.Client, p.Name, "", opts.Log)
		for _, e := range p.Plugins.Entries {
			if n, ok := e.Plugin.(plugin.Needer); ok {
				var optional []schema.GroupVersionResource
				if o, ok := n.(plugin.OptionalNeeder); ok {
					optional = o.Optional()
				}
				for _, r := range n.Needs() {
					required := !slices.Contains(optional, r)
					if was, known := needs[r]; !known {
						s.others = append(s.others, other{resource: r})
						needs[r] = required
					} else {
						needs[r] = was || required
					}
				}
			}
		}
	}
	for i := range s.others {
		s.others[i].optional = !needs[s.others[i].resource]
		s.follow(shared, &s.others[i])
	}
	s.pods.Subscribe(func(before, after *corev1.Pod) { s.post(func(l *loop) { l.podChanged(before, after) }) })
	s.nodes.Subscribe(func(before, after *corev1.Node) { s.post(func(l *loop) { l.nodeChanged(before, after) }) })
	s.spaces.Subscribe(func(before, after *corev1.Namespace) { s.post(func(l *loop) { l.namespaceChanged(before, after) }) })
	return s, nil
}

// follow keeps the objects of a resource for plug-ins.
func (s *Scheduler) follow(shared *cache.Shared, o *other) {
	r := o.resource
	of := cache.Of[client.Object]
	if o.optional {
		of = cache.OptionalOf[client.Object]
	}
	o.cache = of(shared, client.Resource[client.Object]{GroupVersionResource: r}, nil)
	o.cache.Subscribe(func(before, after client.Object) { s.post(func(l *loop) { l.objectChanged(r, before, after) }) })
}

// Ready is closed when the scheduler knows all nodes and pods and begins to
// decide.
func (s *Scheduler) Ready() <-chan struct{} { return s.ready }

// Metrics counts the scheduler's work, under upstream's names.
func (s *Scheduler) Metrics() *Metrics { return s.metrics }

// Reads returns the resources that the scheduler lists and watches, and those of them that it can do without.
func (s *Scheduler) Reads() (reads, optional []schema.GroupVersionResource) {
	reads = []schema.GroupVersionResource{client.Pods.GroupVersionResource, client.Nodes.GroupVersionResource, client.Namespaces.GroupVersionResource}
	for _, o := range s.others {
		reads = append(reads, o.resource)
		if o.optional {
			optional = append(optional, o.resource)
		}
	}
	return reads, optional
}

// Run schedules until ctx is over and then returns nil. A pod that cannot be
// placed or bound is put aside and is no reason to stop. Run may be called once.
func (s *Scheduler) Run(ctx context.Context) error {
	tell := run.Stage{s.caches}
	for name, r := range s.recorders {
		tell = append(tell, run.Task{Name: "events of " + name, Run: r.Run})
	}
	return run.Stages(ctx, tell, run.Stage{{Name: "decisions", Run: s.keep, Ready: s.ready}})
}

// post adds an event to the inbox of the loop.
func (s *Scheduler) post(what func(*loop)) {
	s.mu.Lock()
	s.inbox = append(s.inbox, what)
	s.mu.Unlock()
	s.wake.Ring()
}

// posted returns what happened since the last call, and takes spare for what happens next.
func (s *Scheduler) posted(spare []func(*loop)) []func(*loop) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.inbox
	s.inbox = slices.Delete(spare, 0, len(spare))
	return all
}
