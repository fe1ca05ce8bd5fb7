package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// Options configures a [Scheduler]. Only Client is required.
type Options struct {
	Client  client.Interface
	Caches  *cache.Shared // what the scheduler reads; nil means caches of its own, over Client
	Plugins plugin.Set    // empty means that every node fits and all are equal
	Name    string        // of the scheduler, as pods name it; empty means "default-scheduler"
	Log     *slog.Logger  // nil means slog.Default
}

func (o Options) check() (Options, error) {
	if o.Client == nil {
		return o, errors.New("scheduler: Options.Client is nil")
	}
	if err := o.Plugins.Validate(); err != nil {
		return o, fmt.Errorf("scheduler: %w", err)
	}
	o.Name = cmp.Or(o.Name, corev1.DefaultSchedulerName)
	o.Log = cmp.Or(o.Log, slog.Default())
	return o, nil
}

const (
	// binders is the number of requests that are under way at a time. They
	// share syncs of the server's disk, so that a burst of pods is not bound
	// at the pace of one sync each.
	binders = 64

	// An error is tried again after firstPause, then after twice as long each
	// time; the numbers are upstream's.
	firstPause = time.Second
	maxPause   = 10 * time.Second
)

// A Scheduler assigns pods to nodes until told to stop; see the package comment.
type Scheduler struct {
	opts     Options
	caches   run.Task
	pods     *cache.Cache[*corev1.Pod]
	nodes    *cache.Cache[*corev1.Node]
	recorder *client.Recorder
	ready    chan struct{}
	wake     chan struct{} // has a token when the loop should look again

	mu      sync.Mutex
	decider *Decider       // guarded by mu
	cluster plugin.Cluster // guarded by mu
	queue   *queue         // guarded by mu
	from    int            // guarded by mu; where the next decision begins to look
}

// New returns a scheduler that has not started; call [Scheduler.Run].
func New(opts Options) (*Scheduler, error) {
	opts, err := opts.check()
	if err != nil {
		return nil, err
	}
	decider, err := NewDecider(opts.Plugins)
	if err != nil {
		return nil, err
	}
	shared, caches := opts.Caches.Or(opts.Client, opts.Log)
	s := &Scheduler{
		opts:     opts,
		caches:   caches,
		decider:  decider,
		pods:     cache.Of(shared, client.Pods, nil),
		nodes:    cache.Of(shared, client.Nodes, nil),
		recorder: client.NewRecorder(opts.Client, opts.Name, "", opts.Log),
		ready:    make(chan struct{}),
		wake:     make(chan struct{}, 1),
		queue:    newQueue(),
	}
	s.pods.Subscribe(s.podChanged)
	s.nodes.Subscribe(s.nodeChanged)
	return s, nil
}

// Ready is closed when the scheduler knows all nodes and pods and begins to
// decide.
func (s *Scheduler) Ready() <-chan struct{} { return s.ready }

// Run schedules until ctx is over and then returns nil. A pod that cannot be
// placed or bound is put aside and is no reason to stop. Run may be called once.
func (s *Scheduler) Run(ctx context.Context) error {
	return run.Stages(ctx,
		run.Stage{
			s.caches,
			{Name: "events", Run: s.recorder.Run},
		},
		run.Stage{{Name: "decisions", Run: s.loop, Ready: s.ready}},
	)
}

// loop decides about one pod after the other and has others talk to the server.
func (s *Scheduler) loop(ctx context.Context) error {
	close(s.ready)
	talk := run.NewGroup(ctx, binders)
	defer talk.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		it, pod, d, due := s.decide()
		switch {
		case it == nil:
			var later <-chan time.Time
			if !due.IsZero() {
				timer.Reset(time.Until(due))
				later = timer.C
			}
			select {
			case <-s.wake:
			case <-later:
			case <-ctx.Done():
			}
		case d.Node != "":
			talk.Go(func(ctx context.Context) { s.settle(it, pod, s.bind(ctx, pod.Pod, d.Node)) })
		default:
			s.refuse(talk, it, pod, d)
		}
	}
	return nil
}

// decide takes the next pod and decides about it. If it fits somewhere it counts
// there from now on (S1).
func (s *Scheduler) decide() (*item, *plugin.Pod, Decision, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	it, due := s.queue.next(time.Now())
	if it == nil {
		return nil, nil, Decision{}, due
	}
	// This loop is to be replaced; see doc.go.
	q := Question{Pod: it.pod, From: s.from}
	d := s.decider.Decide(context.Background(), &s.cluster, q) //nolint:forbidigo // as above
	s.decider.MakeRoom(context.Background(), q, &d)            //nolint:forbidigo // as above
	s.from = d.Next
	if d.Node != "" {
		s.cluster.Place(it.pod, d.Node)
	}
	return it, it.pod, d, time.Time{}
}

// bind tells the server and the people.
func (s *Scheduler) bind(ctx context.Context, pod *corev1.Pod, node string) error {
	_, err := s.opts.Client.Create(ctx, client.Pods.GroupVersionResource, pod.Namespace, pod.Name, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{}, "binding")
	if err != nil {
		return fmt.Errorf("binding %s/%s to %s: %w", pod.Namespace, pod.Name, node, err)
	}
	s.recorder.Event(pod, corev1.EventTypeNormal, "Scheduled", "Successfully assigned %s/%s to %s", pod.Namespace, pod.Name, node)
	return nil
}

// settle ends the binding of a pod.
func (s *Scheduler) settle(it *item, pod *plugin.Pod, err error) {
	if err == nil {
		// The watch says the rest.
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue.items[pod.UID] != it {
		return // in the meantime the watch has told what became of it
	}
	s.cluster.Unplace(pod.UID)
	s.queue.podEnded() // others may take the place
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		// Somebody was faster, and the watch is about to say so.
		s.opts.Log.Debug("lost a race", "pod", pod.Name, "err", err)
	} else {
		s.opts.Log.Warn("trying again later", "err", err)
		s.recorder.Event(pod.Pod, corev1.EventTypeWarning, "FailedScheduling", "%v", err)
	}
	s.later(it)
}

// refuse puts a pod aside and says why (S2, S4).
func (s *Scheduler) refuse(talk *run.Group, it *item, pod *plugin.Pod, d Decision) {
	why := d.String()
	s.mu.Lock()
	tell := it.told != why
	it.told = why
	if s.queue.items[pod.UID] == it {
		s.queue.park(it, d.Hopeless())
	}
	s.mu.Unlock()
	if !tell {
		return
	}
	talk.Go(func(ctx context.Context) {
		s.recorder.Event(pod.Pod, corev1.EventTypeWarning, "FailedScheduling", "%s", why)
		err := s.mark(ctx, pod.Pod, why)
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || ctx.Err() != nil {
			return
		}
		s.opts.Log.Warn("a pod's condition is not written; trying again later", "pod", pod.Name, "err", err)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.queue.items[pod.UID] == it && it.at == parked {
			it.told = ""
			s.later(it)
		}
	})
}

// later lets an item try again after a pause. The caller holds mu.
func (s *Scheduler) later(it *item) {
	pause := min(maxPause, firstPause<<min(it.failures, 10))
	it.failures++
	s.queue.delay(it, time.Now().Add(pause/2+rand.N(pause/2)))
	s.nudge()
}

// nudge makes the loop look again.
func (s *Scheduler) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// podChanged hears of every change of a pod.
func (s *Scheduler) podChanged(before, after *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before != nil && (after == nil || after.UID != before.UID) {
		s.queue.drop(before.UID)
		if s.cluster.Unplace(before.UID) {
			s.queue.podEnded()
		}
	}
	switch {
	case after == nil:
	case ended(after):
		s.queue.drop(after.UID)
		if s.cluster.Unplace(after.UID) {
			s.queue.podEnded()
		}
	case after.Spec.NodeName != "":
		s.queue.drop(after.UID)
		s.placed(after)
	default:
		s.waiting(after)
	}
	s.nudge()
}

// placed notes that a pod has a node. The caller holds mu.
func (s *Scheduler) placed(pod *corev1.Pod) {
	old, node, ok := s.cluster.Snapshot.Placed(pod.UID)
	if ok && node == pod.Spec.NodeName && sameNeeds(old.Pod, pod) {
		return
	}
	s.cluster.Place(plugin.NewPod(pod), pod.Spec.NodeName)
	if ok { // it may need less now
		s.queue.podEnded()
	}
}

// waiting notes that a pod has no node. The caller holds mu.
func (s *Scheduler) waiting(pod *corev1.Pod) {
	it := s.queue.items[pod.UID]
	switch {
	case !s.ours(pod):
		if it != nil {
			s.queue.drop(pod.UID)
			s.cluster.Unplace(pod.UID)
		}
	case it == nil:
		s.queue.add(plugin.NewPod(pod))
	case it.at == binding:
		// The decision is under way. A later one looks at the new object.
		it.changed = it.changed || !sameNeeds(it.pod.Pod, pod)
		it.pod = plugin.NewPod(pod)
	case sameNeeds(it.pod.Pod, pod):
		// Its status, most likely because we wrote it.
	default:
		it.pod = plugin.NewPod(pod)
		s.queue.enqueue(it)
	}
}

// ours reports whether a pod without a node is to be scheduled by us (S3).
func (s *Scheduler) ours(pod *corev1.Pod) bool {
	return pod.Spec.SchedulerName == s.opts.Name && pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0
}

// ended reports whether a pod takes nothing of its node any more.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// sameNeeds reports whether a decision would be the same for both states.
func sameNeeds(a, b *corev1.Pod) bool {
	spec := a.Spec
	spec.NodeName = b.Spec.NodeName
	return equality.Semantic.DeepEqual(&spec, &b.Spec) && equality.Semantic.DeepEqual(a.Labels, b.Labels)
}

// nodeChanged hears of every change of a node.
func (s *Scheduler) nodeChanged(before, after *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if after == nil {
		s.cluster.DropNode(before.Name)
		return
	}
	s.cluster.SetNode(after)
	if before == nil || !sameOffer(before, after) {
		s.queue.nodeOffered()
		s.nudge()
	}
}

// sameOffer reports whether a node takes the same pods as before. What changes
// most often, its heartbeat, makes no difference.
func sameOffer(a, b *corev1.Node) bool {
	return a.Spec.Unschedulable == b.Spec.Unschedulable &&
		equality.Semantic.DeepEqual(a.Spec.Taints, b.Spec.Taints) &&
		equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		equality.Semantic.DeepEqual(a.Status.Allocatable, b.Status.Allocatable)
}
