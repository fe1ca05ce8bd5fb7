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

// A keeper owns the queue and the cluster that decisions are about. It is one goroutine: it takes what happened
// out of the inbox, hands the pods whose turn it is to a worker that decides about them, and what was
// decided to goroutines that tell the server. While the worker is at work the cluster is the worker's.
type keeper struct {
	*Scheduler
	queue   *queue
	cluster *plugin.Cluster
	from    int          // where the next decision begins to look
	undo    []*placement // that came to nothing; Unreserve is to be called
	placed  map[types.UID]*placement
	bind    *run.Group      // bounded
	talk    *run.Group      // for what may block for long
	spare   []func(*keeper) // an empty slice to be the next inbox
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
	seen     bool // the watch has told what became of it
}

// batch is the number of pods that are decided about before anything that happened is looked at. It is a matter of
// some milliseconds.
const batch = 64

// keep runs the keeper.
func (s *Scheduler) keep(ctx context.Context) error {
	k := &keeper{
		Scheduler: s, cluster: &plugin.Cluster{KeepReleased: true}, placed: map[types.UID]*placement{},
		queue: newQueue(time.Now, s.opts.InitialBackoff, s.opts.MaxBackoff),
		bind:  run.NewGroup(ctx, binders), talk: run.NewGroup(ctx, 0),
	}
	k.queue.count = s.metrics.incoming
	defer func() {
		k.bind.Stop()
		k.talk.Stop()
	}()
	close(s.ready)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		k.catchUp()
		k.released()
		items, due := k.pick()
		if len(items) > 0 || len(k.undo) > 0 {
			k.decide(ctx, items)
			continue
		}
		k.metrics.sizes(k)
		var wait <-chan time.Time
		if !due.IsZero() {
			timer.Reset(time.Until(due))
			wait = timer.C
		}
		select {
		case <-k.wake:
		case <-wait:
		case <-ctx.Done():
		}
	}
	return nil
}

// catchUp handles the events in the inbox.
func (k *keeper) catchUp() {
	events := k.posted(k.spare)
	for i, event := range events {
		run.Shield(k.opts.Log, func() { event(k) })
		events[i] = nil
	}
	k.spare = events[:0]
}

// released tells those that wait that promised room is free.
func (k *keeper) released() {
	for _, pod := range k.cluster.Released() {
		k.happened(plugin.Change{Resource: client.Pods.GroupVersionResource, Action: plugin.Deleted, OldPod: pod})
	}
}

// pick takes the next items that are due from the queue. If there are none it returns when the first one is due.
func (k *keeper) pick() (items []*item, due time.Time) {
	for len(items) < batch {
		it, due := k.queue.next()
		if it == nil {
			return items, due
		}
		if it.unadmitted || it.group != nil && it.group.key.gated {
			if it.Attempts--; !k.admit(it) {
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
func (k *keeper) admit(it *item) bool {
	v, by := it.profile.admit(it.Pod)
	if it.unadmitted = v.Code == plugin.Failed; it.unadmitted {
		k.failed(it, it.Pod, failure(by, "PreEnqueue", v))
	} else if !v.OK() {
		k.queue.park(it, []string{by}, true, "")
	}
	return v.OK()
}

// decide decides about items, one after the other, and then acts on the outcomes.
func (k *keeper) decide(ctx context.Context, items []*item) {
	for _, p := range k.undo {
		p.unreserve(ctx)
	}
	k.undo = nil
	outcomes := make([]outcome, 0, len(items))
	for _, it := range items {
		outcomes = append(outcomes, k.attempt(ctx, it))
	}
	for i := range outcomes {
		k.decided(&outcomes[i])
	}
	k.cluster.Trim()
}

// decided sees to what was decided about one pod.
func (k *keeper) decided(o *outcome) {
	it := o.it
	known := k.queue.items[it.UID] == it
	k.metrics.attempt(o)
	switch {
	case o.placement != nil:
		p := o.placement
		k.placed[p.pod.UID] = p
		k.settle(p)
		k.queue.resolve(it, 2)
	case !known:
	case o.decision.Err != nil:
		k.failed(it, o.pod, o.decision.Err)
	case o.decision.ask != nil:
		it.Attempts--
		k.consult(it, o.pod, o.decision.ask)
	case it.changed:
		k.queue.resolve(it, 1)
		k.queue.enqueue(it)
	default:
		k.refused(o)
	}
}

// refused parks a pod and says why (S2, S4).
func (k *keeper) refused(o *outcome) {
	it, d := o.it, &o.decision
	it.failures = 0
	promised := types.UID("")
	if k.cluster.Snapshot.Nomination(it.UID) != "" {
		promised = it.UID
	}
	refusers := o.refusers
	if d.extended {
		refusers = nil // nobody knows what could help
	}
	k.queue.park(it, refusers, false, promised)
	why := d.String()
	tell := it.told != why
	it.told = why
	if room := d.Room; room.Node != "" || d.roomGone {
		it.told = "" // what it was promised has to be written, too
		k.makeRoom(it, o.pod, d, why)
		it.told = why
	} else if tell {
		k.tell(it, o.pod, corev1.PodReasonUnschedulable, why)
	}
}

// failed lets a pod try again after a pause, and says why.
func (k *keeper) failed(it *item, pod *plugin.Pod, err error) {
	k.opts.Log.Warn("trying again later", "pod", pod.Name, "namespace", pod.Namespace, "err", err)
	if why := err.Error(); it.told != why {
		it.told = why
		k.tell(it, pod, corev1.PodReasonSchedulerError, why)
	}
	k.later(it)
}

// later lets an item try again after a pause.
func (k *keeper) later(it *item) {
	it.failures++
	k.queue.delay(it, time.Now().Add(jittered(k.queue.pause(it.failures))))
}

// happened tells those that wait for something of a change.
func (k *keeper) happened(c plugin.Change) {
	if c.Action != 0 {
		k.queue.happened(c)
	}
}
