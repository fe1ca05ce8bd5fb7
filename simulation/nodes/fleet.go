package nodes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/internal/quarantine"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/simulation"
)

// Options configures a [Fleet]. Client, As, Plan and PodNetworks are required.
type Options struct {
	// Client creates nodes, watches all nodes and pods, and writes events.
	Client client.Interface
	// Caches are the caches of the process, which the caller runs; nil means that the fleet
	// has separate ones.
	Caches *cache.Shared
	// As returns a client that acts as a node: system:node:NAME. It is called for each
	// request and should cost little.
	As func(node string) client.Interface

	Plan *simulation.Plan

	// Quarantine has the pods that ended an earlier process while the fleet worked on them: they are left alone. Nil has none.
	Quarantine *quarantine.Quarantine

	// PodNetworks are a network with enough addresses for the plan, or one of each IP family;
	// each node gets a part. They are imaginary.
	PodNetworks []netip.Prefix

	Version string       // kubelet version to report; "" means "v1.37.0"
	Log     *slog.Logger // nil means slog.Default

	// Trouble is called with each error of the API server that keeps a node from being registered or ready. It must not
	// block. Nil means no call.
	Trouble func(node string, err error)
}

const defaultVersion = "v1.37.0"

func (o Options) check() (Options, error) {
	var errs []error
	if o.Client == nil {
		errs = append(errs, errors.New("fleet: Options.Client is nil"))
	}
	if o.As == nil {
		errs = append(errs, errors.New("fleet: Options.As is nil"))
	}
	if o.Plan == nil {
		errs = append(errs, errors.New("fleet: Options.Plan is nil"))
	} else if err := o.Plan.Room(o.PodNetworks...); err != nil {
		errs = append(errs, fmt.Errorf("fleet: %w", err))
	}
	if o.Version == "" {
		o.Version = defaultVersion
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o, errors.Join(errs...)
}

// A Fleet is the agent of all nodes of a plan.
type Fleet struct {
	opts     Options
	log      *slog.Logger
	nodes    *cache.Cache[*corev1.Node]
	caches   run.Task
	recorder *client.Recorder
	members  map[string]*member // never changed after New
	order    []*member          // by number
	room     int                // bits for the addresses of each node
	bits     []int              // of the prefixes of each node's networks
	ready    chan struct{}

	wake run.Bell // rung when the loop has work

	mu       sync.Mutex
	newPods  map[types.UID]*corev1.Pod // guarded by mu; nil: deleted
	newNodes map[string]*corev1.Node   // guarded by mu; nil: deleted
	done     []func()                  // guarded by mu; results of jobs

	// The fields below belong to the loop.
	residents map[types.UID]*resident
	missed    map[types.UID]absent
	timeline  timeline
	jobs      []job
	working   int // running jobs
}

// New returns an agent that has not started; call [Fleet.Run].
func New(opts Options) (*Fleet, error) {
	opts, err := opts.check()
	if err != nil {
		return nil, err
	}
	caches, task := opts.Caches.Or(opts.Client, opts.Log)
	n := opts.Plan.Len()
	f := &Fleet{
		opts: opts, log: opts.Log,
		nodes: cache.Of[*corev1.Node](caches, client.Nodes, nil), caches: task,
		recorder: client.NewRecorder(opts.Client, "kubelet", "", opts.Log),
		members:  make(map[string]*member, n), order: make([]*member, 0, n), room: opts.Plan.NodeRoom(),
		ready: make(chan struct{}), wake: run.NewBell(),
		newPods: map[types.UID]*corev1.Pod{}, newNodes: map[string]*corev1.Node{},
		residents: map[types.UID]*resident{}, missed: map[types.UID]absent{},
	}
	for _, n := range opts.PodNetworks {
		f.bits = append(f.bits, opts.Plan.NodeBits(n))
	}
	for i, name := range opts.Plan.Names() {
		m := &member{fleet: f, name: name, number: i}
		f.members[name] = m
		f.order = append(f.order, m)
	}
	f.nodes.Subscribe(f.nodeChanged)
	cache.Of[*corev1.Pod](caches, client.Pods, nil).Subscribe(f.podChanged)
	return f, nil
}

// Ready is closed when every node is registered, and every node that is not cut off is
// Ready.
func (f *Fleet) Ready() <-chan struct{} { return f.ready }

// Run works until ctx is cancelled, then returns nil and leaves objects as they are. It
// is called once.
func (f *Fleet) Run(ctx context.Context) error {
	return run.Stages(
		ctx,
		run.Stage{{Name: "events", Run: f.recorder.Run}},
		run.Stage{f.caches},
		run.Stage{
			{Name: "registration", Run: f.register, Ready: f.ready},
			{Name: "loop", Run: f.loop},
		},
		run.Stage{{Name: "leases", Run: f.renewLeases}},
	)
}

// nodeChanged is called for each change of a node, in order.
func (f *Fleet) nodeChanged(old, node *corev1.Node) {
	last := node
	if node == nil {
		last = old
	}
	name := last.Name
	if f.members[name] == nil {
		return
	}
	f.mu.Lock()
	f.newNodes[name] = node
	f.mu.Unlock()
	f.nudge()
}

// podChanged is called for each change of a pod, in order.
func (f *Fleet) podChanged(old, pod *corev1.Pod) {
	if pod == nil {
		if f.members[old.Spec.NodeName] != nil {
			f.queuePod(old.UID, nil)
		}
		return
	}
	if f.members[pod.Spec.NodeName] != nil {
		f.queuePod(pod.UID, pod)
	}
}

// queuePod passes a pod to the loop; nil: it is deleted.
func (f *Fleet) queuePod(uid types.UID, pod *corev1.Pod) {
	f.mu.Lock()
	f.newPods[uid] = pod
	f.mu.Unlock()
	f.nudge()
}

func (f *Fleet) nudge() {
	f.wake.Ring()
}

// A job makes a request outside of the loop. The loop calls the function that it
// returns.
type job func(ctx context.Context) (then func())

// parallel is the largest number of concurrent requests: as many as share one sync of
// the store.
const parallel = 128

// loop owns the pods.
func (f *Fleet) loop(ctx context.Context) error {
	hands := run.NewGroup(ctx, 0) // bounded by parallel
	defer hands.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		nodes, pods, done := f.queued()
		now := time.Now()
		for _, then := range done {
			f.working--
			run.Shield(f.log, then)
		}
		for name, node := range nodes {
			run.Shield(f.log, func() { f.members[name].changed(node, now) }, "node", name)
		}
		f.handlePods(pods, now)
		for r := f.timeline.due(now); r != nil; r = f.timeline.due(now) {
			run.Shield(f.log, func() { f.markedStep(r, now) })
		}
		f.dispatch(hands)

		timer.Stop()
		var alarm <-chan time.Time
		if at := f.timeline.first(); !at.IsZero() {
			timer.Reset(time.Until(at))
			alarm = timer.C
		}
		select {
		case <-f.wake:
		case <-alarm:
		case <-ctx.Done():
		}
	}
	return nil
}

// markedStep is step for a pod that is not set aside.
func (f *Fleet) markedStep(r *resident, now time.Time) {
	end, ok := f.opts.Quarantine.Begin(part, r.body.view.Pod)
	if !ok {
		return
	}
	defer end()
	f.step(r, now)
}

// part is the name of the fleet in marks.
const part = "simulated nodes"

// queued returns the changes and results since the last call.
func (f *Fleet) queued() (nodes map[string]*corev1.Node, pods map[types.UID]*corev1.Pod, done []func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	// A returned map belongs to the loop: it gets no more entries.
	if len(f.newNodes) > 0 {
		nodes, f.newNodes = f.newNodes, map[string]*corev1.Node{}
	}
	if len(f.newPods) > 0 {
		pods, f.newPods = f.newPods, map[types.UID]*corev1.Pod{}
	}
	done, f.done = f.done, nil
	return nodes, pods, done
}

// try runs a job, again and again if it panics.
func (f *Fleet) try(ctx context.Context, j job) (then func()) {
	for failures := 1; ; failures++ {
		then = func() {}
		if run.Shield(f.log, func() { then = j(ctx) }) || !run.Pause(ctx, pauseAfter(failures)) {
			return then
		}
	}
}

// dispatch starts jobs.
func (f *Fleet) dispatch(hands *run.Group) {
	for len(f.jobs) > 0 && f.working < parallel {
		j := f.jobs[0]
		f.jobs[0] = nil
		f.jobs = f.jobs[1:]
		f.working++
		hands.Go(func(ctx context.Context) {
			then := f.try(ctx, j)
			f.mu.Lock()
			f.done = append(f.done, then)
			f.mu.Unlock()
			f.nudge()
		})
	}
	if len(f.jobs) == 0 {
		f.jobs = nil
	}
}
