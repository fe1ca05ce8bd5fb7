package scheduler

import (
	"context"
	"sync/atomic"
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
	worker  *worker
	from    int          // where the next decision begins to look
	undo    []*placement // that came to nothing; Unreserve is to be called
	placed  map[types.UID]*placement
	bind    *run.Group // bounded
	talk    *run.Group // for what may block for long

	outcomes  []outcome       // that are to be seen to
	happening []func(*keeper) // likewise
	spare     []func(*keeper)
	tries     int         // of the first of happening
	stalls    int         // of Less
	busy      *time.Timer // fires when the keeper has been busy for long
	idle      atomic.Bool
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
		bind:  run.NewGroup(ctx, binders), talk: run.NewGroup(ctx, 0), busy: time.NewTimer(s.opts.Patience),
	}
	k.queue.count = s.metrics.incoming
	k.worker = newWorker(ctx)
	defer func() {
		k.busy.Stop()
		k.worker.stop(s.opts.Patience)
		k.bind.Stop()
		k.talk.Stop()
	}()
	close(s.ready)
	k.attend(ctx)
	return nil
}

// run works until ctx is over, where the goroutine that was given up has left off, if there was one.
func (k *keeper) run(ctx context.Context, given *call) {
	if given != nil {
		k.resume(given)
		if k.tries > 1 {
			k.next()
		}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		k.idle.Store(false)
		k.busy.Reset(k.opts.Patience)
		k.catchUp()
		k.released()
		j, due := k.pick()
		if len(j.tasks) > 0 || len(j.undo) > 0 {
			k.decide(ctx, j)
			continue
		}
		k.metrics.sizes(k)
		var wait <-chan time.Time
		if !due.IsZero() {
			timer.Reset(time.Until(due))
			wait = timer.C
		}
		k.idle.Store(true)
		k.busy.Stop()
		select {
		case <-k.wake:
		case <-wait:
		case <-ctx.Done():
		}
	}
}

// catchUp sees to what was decided, and to what happened.
func (k *keeper) catchUp() {
	k.settleAll()
	if len(k.happening) == 0 {
		k.happening = k.posted(k.spare)
		k.spare = k.happening[:0]
	}
	for len(k.happening) > 0 {
		k.tries++
		run.Shield(k.opts.Log, func() { k.happening[0](k) }) // this goroutine may be given up there: then once more, by another
		k.next()
	}
}

// next notes that something was seen to.
func (k *keeper) next() {
	k.happening[0] = nil
	k.happening, k.tries = k.happening[1:], 0
}

// released tells those that wait that promised room is free.
func (k *keeper) released() {
	for _, pod := range k.cluster.Released() {
		k.happened(plugin.Change{Resource: client.Pods.GroupVersionResource, Action: plugin.Deleted, OldPod: pod})
	}
}

// pick takes the pods whose turn it is.
func (k *keeper) pick() (*job, time.Time) {
	j := &job{cluster: k.cluster, from: k.from, undo: k.undo}
	for len(j.tasks) < batch {
		it, due := k.queue.next()
		if it == nil {
			return j, due
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
		j.tasks = append(j.tasks, task{it, it.Pod, it.profile, it.profile.decider, it.signature, it.Since, it.Attempts, len(k.interested(it.Pod.Pod)) > 0, it.opinions})
		it.opinions = nil
	}
	return j, time.Time{}
}

// admit asks the PreEnqueues about an item, and parks it if one says no.
func (k *keeper) admit(it *item) bool {
	v, by := it.profile.admit(it)
	if it.unadmitted = v.Code == plugin.Failed; it.unadmitted {
		k.failed(it, it.Pod, failure(by, preEnqueuePoint, v))
	} else if !v.OK() {
		k.queue.park(it, []string{by}, true, "")
	}
	return v.OK()
}

// decide has a job done and sees to what comes of it.
func (k *keeper) decide(ctx context.Context, j *job) {
	k.undo = nil
	done, given := k.worker.do(ctx, j, k.opts.Patience)
	if k.worker.spent {
		k.worker = newWorker(ctx)
	}
	k.outcomes = done
	if !given {
		k.settleAll()
		k.cluster.Trim()
		return
	}
	// Somebody has not come back. The cluster is in his hands, so it is put together anew.
	left := j.tasks[len(done):]
	for _, t := range left {
		t.profile.renew()
	}
	for i := range done {
		if p := done[i].placement; p != nil {
			k.placed[p.pod.UID] = p
		}
	}
	k.rebuild()
	k.settleAll()
	for i, t := range left {
		if i == 0 && ctx.Err() == nil {
			k.failed(t.it, t.pod, &StallError{Patience: k.opts.Patience})
		} else {
			k.queue.enqueue(t.it)
		}
	}
}

// settleAll sees to what was decided.
func (k *keeper) settleAll() {
	for len(k.outcomes) > 0 {
		o := &k.outcomes[0]
		k.outcomes = k.outcomes[1:]
		k.decided(o)
	}
}

// rebuild puts the cluster together from what is known by watch and what was decided.
func (k *keeper) rebuild() {
	k.cluster = &plugin.Cluster{KeepReleased: true}
	for _, n := range k.spaces.List("") {
		k.cluster.SetNamespace(n.Name, n.Labels)
	}
	for _, n := range k.nodes.List("") {
		k.cluster.SetNode(n)
	}
	for _, o := range k.others {
		for _, obj := range o.cache.List("") {
			k.cluster.SetObject(o.resource, obj)
		}
	}
	for _, p := range k.pods.List("") {
		if p.Spec.NodeName != "" && !ended(p) {
			k.cluster.Place(plugin.NewPod(p), p.Spec.NodeName)
		}
	}
	for _, p := range k.placed {
		k.cluster.Place(p.pod, p.node)
	}
	for _, it := range k.queue.items {
		if name := it.Status.NominatedNodeName; name != "" && it.at != inHand {
			k.cluster.Nominate(it.Pod, name)
		}
	}
}

// decided sees to what was decided about one pod.
func (k *keeper) decided(o *outcome) {
	it := o.task.it
	known := k.queue.items[it.UID] == it
	k.metrics.attempt(o)
	switch {
	case o.placement != nil:
		p := o.placement
		k.placed[p.pod.UID], k.from = p, o.decision.Next
		k.settle(p)
		k.queue.resolve(it, 2)
	case !known:
	case o.decision.Err != nil:
		k.failed(it, o.task.pod, o.decision.Err)
	case o.decision.ask != nil:
		it.Attempts--
		k.consult(it, o.task.pod, o.decision.ask)
	case it.changed:
		k.queue.resolve(it, 1)
		k.queue.enqueue(it)
	default:
		k.refused(o)
	}
}

// refused parks a pod and says why (S2, S4).
func (k *keeper) refused(o *outcome) {
	it, d := o.task.it, &o.decision
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
		k.makeRoom(it, o.task.pod, d, why)
		it.told = why
	} else if tell {
		k.tell(it, o.task.pod, corev1.PodReasonUnschedulable, why)
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
