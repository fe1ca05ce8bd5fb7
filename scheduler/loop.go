package scheduler

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// A loop is the state of the scheduling loop; see the package comment. Only the goroutine of the loop uses it, except for
// the embedded Scheduler. Other goroutines call [Scheduler.post].
type loop struct {
	*Scheduler
	queue   *queue
	cluster *plugin.Cluster
	from    int          // where the next decision begins to look
	undo    []*placement // that came to nothing; Unreserve is to be called
	placed  map[types.UID]*placement
	bind    *run.Group    // bounded
	slow    *run.Group    // for calls that may block for long
	spare   []func(*loop) // an empty slice to be the next inbox
}

// A placement is an item that was decided about, from then on until the server and all plug-ins have answered.
type placement struct {
	it      *item
	profile *profile
	pod     *plugin.Pod
	obj     *corev1.Pod // of pod, when it was decided about
	node    string
	checks  map[string]plugin.Check
	since   time.Time // when the decision began
	queued  time.Time // when it came into the queue

	attempts int
	asked    int  // reserve plug-ins that were asked
	done     bool // the server and the plug-ins have answered
	seen     bool // the watch has reported the result
}

// batch is the largest number of pods that are decided about before events are handled again. Deciding about that many takes
// a few milliseconds.
const batch = 64

// keep runs the loop until ctx is cancelled.
func (s *Scheduler) keep(ctx context.Context) error {
	l := &loop{
		Scheduler: s, cluster: &plugin.Cluster{KeepReleased: true}, placed: map[types.UID]*placement{},
		queue: newQueue(time.Now, s.opts.InitialBackoff, s.opts.MaxBackoff),
		bind:  run.NewGroup(ctx, binders), slow: run.NewGroup(ctx, 0),
	}
	l.queue.count = s.metrics.incoming
	defer func() {
		l.bind.Stop()
		l.slow.Stop()
	}()
	close(s.ready)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		l.catchUp()
		l.released()
		items, due := l.pick()
		if len(items) > 0 || len(l.undo) > 0 {
			l.decide(ctx, items)
			continue
		}
		l.metrics.sizes(l)
		var wait <-chan time.Time
		if !due.IsZero() {
			timer.Reset(time.Until(due))
			wait = timer.C
		}
		select {
		case <-l.wake:
		case <-wait:
		case <-ctx.Done():
		}
	}
	return nil
}

// catchUp handles the events in the inbox.
func (l *loop) catchUp() {
	events := l.posted(l.spare)
	for i, event := range events {
		run.Shield(l.opts.Log, func() { event(l) })
		events[i] = nil
	}
	l.spare = events[:0]
}

// released reports capacity that was nominated for a pod and is free again as an event to waiting pods.
func (l *loop) released() {
	for _, pod := range l.cluster.Released() {
		l.happened(plugin.Change{Resource: client.Pods.GroupVersionResource, Action: plugin.Deleted, OldPod: pod})
	}
}

// pick takes the next items that are due from the queue. If there are none it returns when the first one is due.
func (l *loop) pick() (items []*item, due time.Time) {
	for len(items) < batch {
		it, due := l.queue.next()
		if it == nil {
			return items, due
		}
		if it.unadmitted || it.group != nil && it.group.key.gated {
			if it.Attempts--; !l.admit(it) {
				continue
			}
			it.Attempts++
		}
		if it.signature == "" {
			it.signature = it.profile.sign(it, it.Pod)
		}
		items = append(items, it)
	}
	return items, time.Time{}
}

// admit calls the PreEnqueue plug-ins about an item, and parks it if one refuses.
func (l *loop) admit(it *item) bool {
	v, by := it.profile.admit(it.Pod)
	if it.unadmitted = v.Code == plugin.Failed; it.unadmitted {
		l.failed(it, it.Pod, failure(by, "PreEnqueue", v))
	} else if !v.OK() {
		l.queue.park(it, []string{by}, true, "")
	}
	return v.OK()
}

// decide decides about items, one after the other, and then acts on the outcomes.
func (l *loop) decide(ctx context.Context, items []*item) {
	for _, p := range l.undo {
		p.unreserve(ctx)
	}
	l.undo = nil
	outcomes := make([]outcome, 0, len(items))
	for _, it := range items {
		outcomes = append(outcomes, l.attempt(ctx, it))
	}
	for i := range outcomes {
		l.decided(&outcomes[i])
	}
	l.cluster.Trim()
}

// decided carries out the decision about one pod.
func (l *loop) decided(o *outcome) {
	it := o.it
	known := l.queue.items[it.UID] == it
	l.metrics.attempt(o)
	switch {
	case o.placement != nil:
		p := o.placement
		l.placed[p.pod.UID] = p
		l.settle(p)
		l.queue.resolve(it, 2)
	case !known:
	case o.decision.Err != nil:
		l.failed(it, o.pod, o.decision.Err)
	case o.decision.ask != nil:
		it.Attempts--
		l.consult(it, o.pod, o.decision.ask)
	case it.changed:
		l.queue.resolve(it, 1)
		l.queue.enqueue(it)
	default:
		l.refused(o)
	}
}

// refused parks a pod and says why (scheduler-S2, scheduler-S4).
func (l *loop) refused(o *outcome) {
	it, d := o.it, &o.decision
	it.failures = 0
	promised := types.UID("")
	if l.cluster.Snapshot.Nomination(it.UID) != "" {
		promised = it.UID
	}
	refusers := o.refusers
	if d.extended {
		refusers = nil // any event may help
	}
	l.queue.park(it, refusers, false, promised)
	why := d.String()
	changed := it.reported != why
	it.reported = why
	for _, write := range d.writes {
		l.relieve(it, o.pod, write)
	}
	if room := d.Room; room.Node != "" || d.roomGone {
		it.reported = "" // its promise has to be written, too
		l.makeRoom(it, o.pod, d, why)
		it.reported = why
	} else if changed {
		l.reportFailure(it, o.pod, corev1.PodReasonUnschedulable, why)
	}
}

// relieve calls the write of a PostFilter.
func (l *loop) relieve(it *item, pod *plugin.Pod, write write) {
	l.slow.Go(func(ctx context.Context) {
		err := run.Catch(func() error { return write(ctx, l.opts.Client) })
		if err == nil || ctx.Err() != nil {
			return
		}
		l.post(func(l *loop) {
			if l.queue.items[pod.UID] == it && it.at == parked {
				l.failed(it, pod, err)
			}
		})
	})
}

// failed lets a pod try again after a pause, and says why.
func (l *loop) failed(it *item, pod *plugin.Pod, err error) {
	l.opts.Log.Warn("scheduling failed, trying again later", "pod", pod.Name, "namespace", pod.Namespace, "err", err)
	if why := err.Error(); it.reported != why {
		it.reported = why
		l.reportFailure(it, pod, corev1.PodReasonSchedulerError, why)
	}
	l.later(it)
}

// later lets an item try again after a pause.
func (l *loop) later(it *item) {
	it.failures++
	l.queue.delay(it, time.Now().Add(run.Backoff{First: l.opts.InitialBackoff, Max: l.opts.MaxBackoff}.Pause(it.failures)))
}

// happened passes an event to the pods that wait for it.
func (l *loop) happened(c plugin.Change) {
	if c.Action != 0 {
		l.queue.happened(c)
	}
}
