package node

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/criclient"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/node/metrics"
)

// A worker owns one pod. Its inbox and what is atomic are for all goroutines; the other fields from ops on belong to the goroutine of its
// run, to which other goroutines send events.
type worker struct {
	n   *Node
	key types.NamespacedName
	uid types.UID
	log *slog.Logger

	wake  run.Bell // rung when there is an event
	inbox inbox

	ops       *run.Group
	view      lifecycle.View
	sandboxes []string // IDs of the pod's sandboxes in the runtime
	busy      map[string]*operation
	rep       reporter
	shown     shown
	turns     turns
	volumes   podVolumes
	attempts  attempts
	probes    podProbes
	resize    resizeState
	draining  draining
	mirror    *corev1.Pod // of a static pod, as it was last seen
	setups    int         // failures in a row to set the pod up
	starting  metrics.Starting
	freed     bool      // the pod uses none of the node's resources any more
	over      bool      // the pod has been removed
	seen      time.Time // when the agent first saw the pod; never written again
}

// An inbox is what goroutines exchange with a worker.
type inbox struct {
	mu     sync.Mutex
	pod    *corev1.Pod // guarded by mu; the newest
	gone   bool        // guarded by mu; the API server has deleted it
	mirror *corev1.Pod // guarded by mu; the copy of a static pod in the API server; nil if there is none
	stale  bool        // guarded by mu; the runtime has to be asked again
	mail   []func()    // guarded by mu; to be called by the worker

	observed lifecycle.Observed // guarded by mu
	changed  chan struct{}      // guarded by mu; closed and replaced when observed changes
}

// shown is what the worker has published of the pod.
type shown struct {
	pod *corev1.Pod // the version in observed
	// looks counts the reads of the runtime, look is the one in observed.
	looks, look int
}

// turns are the turns of a worker.
type turns struct {
	blind  bool         // the runtime did not answer: nothing is decided
	panics int          // in a row
	began  atomic.Int64 // when the current turn began, in nanoseconds since 1970; 0: there is none
}

// podVolumes is the state of a pod's volumes.
type podVolumes struct {
	due     bool        // an update is requested
	refresh time.Time   // when a token in them has to be renewed, or they have to be looked at again; zero: never
	writing bool        // their content is being updated: containers do not start, see renew
	stuck   bool        // the files of the pod could not be removed
	mounted atomic.Bool // they have been mounted
	dnsTold sync.Once   // the events about the resolver
}

// attempts remembers attempts at containers that the runtime does not remember.
type attempts struct {
	held      map[string]time.Time         // by name: until when its back-off was reported to hold it
	unstarted map[string]string            // by container ID: why it did not start
	pulls     map[string]lifecycle.Backoff // by image
	pinned    map[string]string            // by container ID: its processors; none: as the machine has, or as an earlier agent has set
}

// podProbes are the probes of a pod.
type podProbes struct {
	running    map[probeKey]*probing
	containers map[string]bool // IDs of the running containers whose probes are in running
	// adoptedReady and adoptedStarted are the containers that were ready or started when the agent started, by ID as
	// statuses have it.
	adoptedReady, adoptedStarted map[string]bool
}

// resizeState is how far a resize in place has got.
type resizeState struct {
	judged bool // allocate has seen the newest version of the pod
	begun  bool // a resize has been granted, and its end has not been reported
}

// draining is what holds back the first signal of a pod.
type draining struct {
	limit   time.Time // zero: no signal is held back
	unready time.Time // when the pod ceased to be ready
}

// blindPause is after what time a runtime that failed to answer is asked again, unless
// an event wakes the worker before.
const blindPause = time.Second

// An operation is an action that a worker has started and that has not ended.
type operation struct {
	cancel context.CancelFunc
	end    time.Time       // of the grace, for stops
	starts map[string]bool // names of the containers, for starts
}

func newWorker(n *Node, pod *corev1.Pod) *worker {
	w := &worker{
		n: n, key: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, uid: pod.UID,
		log:   n.log.With("pod", pod.Namespace+"/"+pod.Name),
		wake:  run.NewBell(),
		inbox: inbox{pod: pod, observed: lifecycle.Observed{Pod: pod}, changed: make(chan struct{})},
		view: lifecycle.View{
			Pod: pod, Last: pod.Status, HostIPs: n.machine.hostIPs,
			Memory: lifecycle.Memory{
				Failures: map[string]lifecycle.Failure{}, Restarts: map[string]lifecycle.Backoff{}, Ready: map[string]bool{},
				Started: map[string]bool{}, Hooked: map[string]int32{}, Unfit: map[string]lifecycle.Cause{},
				Resize: lifecycle.Resize{Allocated: map[string]corev1.ResourceRequirements{}, Applied: map[string]corev1.ResourceRequirements{}, Unsure: map[string]bool{}},
				StopBy: map[string]time.Time{}, PreStopped: map[string]bool{}, Replaced: map[string]bool{},
			},
		},
		busy: map[string]*operation{},
		probes: podProbes{
			running: map[probeKey]*probing{}, containers: map[string]bool{}, adoptedReady: map[string]bool{}, adoptedStarted: map[string]bool{},
		},
		attempts: attempts{
			held: map[string]time.Time{}, pulls: map[string]lifecycle.Backoff{}, unstarted: map[string]string{}, pinned: map[string]string{},
		},
		rep: reporter{sent: pod.Status}, seen: time.Now(), starting: metrics.NewStarting(pod),
	}
	w.adoptResources(pod)
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if c.Ready {
			w.probes.adoptedReady[c.ContainerID] = true
		}
		if c.Started != nil && *c.Started {
			w.probes.adoptedStarted[c.ContainerID] = true
		}
	}
	return w
}

// nudge makes the worker look again. It never blocks.
func (w *worker) nudge() {
	w.wake.Ring()
}

// post has f called by the worker's goroutine, unless that has ended.
func (w *worker) post(f func()) {
	w.inbox.mu.Lock()
	w.inbox.mail = append(w.inbox.mail, f)
	w.inbox.mu.Unlock()
	w.nudge()
}

// update passes a newer version of the pod to the worker.
func (w *worker) update(pod *corev1.Pod) {
	w.inbox.mu.Lock()
	w.inbox.pod = pod
	w.inbox.mu.Unlock()
	w.nudge()
}

// leave records that the API server has deleted the pod.
func (w *worker) leave() {
	w.inbox.mu.Lock()
	w.inbox.gone = true
	w.inbox.mu.Unlock()
	w.nudge()
}

// leaving reports whether leave was called.
func (w *worker) leaving() bool {
	w.inbox.mu.Lock()
	defer w.inbox.mu.Unlock()
	return w.inbox.gone
}

// leaves reports whether the pod is being deleted, or has ended: it starts no more containers.
func (w *worker) leaves() bool {
	w.inbox.mu.Lock()
	defer w.inbox.mu.Unlock()
	return w.inbox.gone || w.inbox.pod.DeletionTimestamp != nil || podstate.Finished(w.inbox.observed.Pod)
}

// touch records that the pod's containers have changed.
func (w *worker) touch() {
	w.outdate()
	w.nudge()
}

// outdate is touch for the worker itself, in what it does in a turn: the runtime is asked before the turn decides.
func (w *worker) outdate() {
	w.inbox.mu.Lock()
	defer w.inbox.mu.Unlock()
	w.inbox.stale = true
}

// outdated reports whether the runtime has to be asked again, and takes that back.
func (w *worker) outdated() bool {
	w.inbox.mu.Lock()
	defer w.inbox.mu.Unlock()
	stale := w.inbox.stale
	w.inbox.stale = false
	return stale
}

// run works until the pod has been removed or ctx is cancelled, which leaves the
// containers running (N5). It reports whether the pod has been removed.
func (w *worker) run(ctx context.Context) bool {
	w.ops = run.NewGroup(ctx, 0)
	defer w.close()
	defer w.stopDraining(nil)
	defer w.ops.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		began := time.Now()
		next := w.turn(ctx)
		if w.over {
			return true
		}
		if pause := turnPace.after(w.view.Pod, time.Since(began)); pause > 0 && !run.Pause(ctx, pause) {
			return false
		}
		timer.Stop()
		var alarm <-chan time.Time
		if !next.IsZero() {
			timer.Reset(time.Until(next))
			alarm = timer.C
		}
		select {
		case <-w.wake:
		case <-alarm:
		case <-ctx.Done():
		}
	}
	return false
}

// turn handles all events, starts the actions that are due, and returns when to do so again
// at the latest; see step. After a panic that is after a pause, which grows.
func (w *worker) turn(ctx context.Context) (next time.Time) {
	now := time.Now()
	w.turns.began.Store(now.UnixNano())
	defer w.turned(now)
	err := run.Catch(func() error {
		end, ok := w.mark()
		if !ok {
			return nil
		}
		defer end()
		w.collect(ctx, now)
		switch {
		case w.over:
		case w.turns.blind:
			next = now.Add(blindPause)
		default:
			next = w.step(now)
		}
		return nil
	})
	if err == nil {
		w.turns.panics = 0
		return next
	}
	w.turns.panics++
	w.panicked("looking after the pod", err)
	return now.Add(run.Backoff{First: panicPause, Max: retryPause}.Pause(w.turns.panics))
}

// part is the name of the agent in marks of the process.
const part = "node agent"

// mark begins a turn in the marks of the process. It returns false if the newest version of the pod ended an earlier process:
// then nothing is done for it, and its containers go on. A pod that is gone is always cleaned up.
func (w *worker) mark() (end func(), ok bool) {
	w.inbox.mu.Lock()
	pod, gone := w.inbox.pod, w.inbox.gone
	w.inbox.mu.Unlock()
	if gone {
		w.n.opts.Quarantine.Forget(part, w.key.Namespace, w.key.Name)
		return func() {}, true
	}
	return w.n.opts.Quarantine.Begin(part, pod)
}

// turned records the end of a turn that began at a time.
func (w *worker) turned(began time.Time) {
	w.turns.began.Store(0)
	turns := w.n.metrics.Pods.Sync
	if w.view.Deleting() {
		turns = w.n.metrics.Pods.Kill
	}
	turns.Observe(time.Since(began).Seconds())
}

// panicPause is the pause before something that panicked is tried again. It grows with each panic in a row.
const panicPause = time.Second

// panicked reports in the log and in an event of the pod that the agent could not do something.
// It may be called from any goroutine.
func (w *worker) panicked(doing string, err error) {
	w.log.Error("panic over a pod, will try again", "doing", doing, "err", err)
	w.event(corev1.EventTypeWarning, "FailedSync", "error %s: %v", doing, err)
}

// collect handles all events.
func (w *worker) collect(ctx context.Context, now time.Time) {
	w.inbox.mu.Lock()
	pod, gone, mail := w.inbox.pod, w.inbox.gone, w.inbox.mail
	w.inbox.mail = nil
	mirror := w.inbox.mirror
	w.inbox.mu.Unlock()
	if mirror != nil && mirror != w.mirror {
		w.rep.saw(mirror)
	}
	w.mirror = mirror

	if pod != w.view.Pod {
		w.rep.saw(pod)
		if len(pod.Spec.EphemeralContainers) > len(w.view.Pod.Spec.EphemeralContainers) {
			w.n.api.references.Hold(pod)
		}
		w.volumes.due = w.volumes.due || shownChanged(w.view.Pod, pod)
		w.claimsChanged(pod)
		w.n.metrics.Resizes.Asked(w.view.Pod, pod)
		w.view.Pod = pod
		w.resize.judged = false
	}
	if !w.resize.judged {
		w.resize.judged = true
		w.allocate()
	}
	w.view.Gone = gone
	for _, f := range mail {
		if err := run.Catch(func() error { f(); return nil }); err != nil {
			w.panicked("taking in what was done", err)
		}
	}
	if w.outdated() || w.turns.blind {
		w.look(ctx)
	}
	if w.view.Deleting() {
		w.deleting(now)
	}
}

// look updates the view from the runtime.
func (w *worker) look(ctx context.Context) {
	s, err := criclient.Look(ctx, w.n.opts.Runtime, w.sandboxes)
	if err != nil {
		w.turns.blind = true
		if ctx.Err() == nil {
			w.log.Debug("runtime does not answer", "err", err)
		}
		return
	}
	w.turns.blind = false
	for i := range s.Containers {
		// Runtimes differ in what they make of a container that can't be started.
		c := &s.Containers[i]
		if message, failed := w.attempts.unstarted[c.ID]; failed && (c.State == lifecycle.Created || c.Reason == "") {
			c.State, c.ExitCode, c.Reason, c.Message, c.FinishedAt = lifecycle.Exited, 128, "StartError", message, c.CreatedAt
		}
	}
	var ran map[string]bool
	if w.shown.looks == 0 {
		ran = metrics.RunningIn(w.n.abilities.scheme, &w.view.Last, s.Containers)
	}
	w.n.metrics.Pods.Ended(w.view.Pod, w.view.Containers, s.Containers, ran)
	w.view.Sandboxes, w.view.Containers = s.Sandboxes, s.Containers
	w.forgetContainers()
	w.adoptApplied()
	w.shown.looks++
	w.sandboxes = w.sandboxes[:0:0]
	for _, sb := range s.Sandboxes {
		w.sandboxes = append(w.sandboxes, sb.ID)
	}
	for name, f := range w.view.Memory.Failures {
		if slices.ContainsFunc(s.Containers, func(c lifecycle.Container) bool { return c.Name == name && c.CreatedAt.After(f.At) }) {
			delete(w.view.Memory.Failures, name)
		}
	}
}

// forgetContainers drops what is remembered of containers that the runtime does not have any more.
func (w *worker) forgetContainers() {
	has := make(map[string]bool, len(w.view.Containers))
	for _, c := range w.view.Containers {
		has[c.ID] = true
	}
	m := &w.view.Memory
	prune(m.Unfit, has)
	prune(m.StopBy, has)
	prune(m.PreStopped, has)
	prune(m.Replaced, has)
	prune(m.Resize.Applied, has)
	prune(m.Resize.Unsure, has)
	prune(w.attempts.unstarted, has)
	prune(w.attempts.pinned, has)
}

// deleting begins or shortens the end of the pod.
func (w *worker) deleting(now time.Time) {
	m := &w.view.Memory
	grace := w.view.Grace()
	if m.DeletionSeen.IsZero() {
		m.DeletionSeen, m.KillBy = now, now.Add(grace)
		w.drain(now, grace)
	}
	w.drained(now, grace)
	if by := now.Add(grace); by.Before(m.KillBy) {
		m.KillBy = by
	}
	if op := w.busy["start"]; op != nil {
		op.cancel()
	}
}

// serves reports whether a service may be sending requests to the pod, as it may for a moment after it ceased to be ready.
func (w *worker) serves(now time.Time) bool {
	return (podstate.ReadyIn(&w.view.Last) || now.Sub(w.draining.unready) < w.n.opts.DrainLimit) && len(w.n.servicesOf(w.view.Pod)) > 0
}

// step decides, starts the actions that are due, and returns when to do so again at the
// latest; the zero time means only after the next event.
func (w *worker) step(now time.Time) time.Time {
	w.view.Now = now
	w.view.Memory.Prepared = w.n.plugins.claims != nil && w.n.plugins.claims.Holds(w.uid)
	w.resized()
	w.pin(now)
	probe := w.probe(now)
	last := w.n.abilities.scheme.Status(w.view)
	aged := w.describeDevices(&last, now)
	w.publish(&last)
	w.n.metrics.Pods.Ran(w.seen, &w.view.Last, &last, now)
	if podstate.ReadyIn(&w.view.Last) && !podstate.ReadyIn(&last) {
		w.draining.unready = now
	}
	w.view.Last = last
	if !w.freed && w.view.Finished() && !w.view.Alive() {
		w.freed = true
		w.n.capacity.Free(w.uid)
	}
	w.releaseDevices()
	renewal := w.renew(now)
	d := lifecycle.Decide(w.view)
	var starts []lifecycle.Action
	for _, a := range d.Actions {
		if w.blocked(a) {
			continue
		}
		if a.Verb == lifecycle.Start {
			if len(starts) < w.batch() {
				starts = append(starts, a)
			}
			continue
		}
		if a.Verb == lifecycle.Fail {
			w.fail(a.Verdict, now)
			w.event(corev1.EventTypeNormal, a.Verdict.Reason, "%s", a.Verdict.Message)
			return w.step(now)
		}
		w.perform(a, now)
	}
	if len(starts) > 0 {
		w.startAll(starts, now)
	}
	start := w.busy[lifecycle.Action{Verb: lifecycle.Start}.Key()]
	for name, h := range d.Held {
		if start != nil && start.starts[name] {
			continue // the back-off is already the one after that start
		}
		if !w.attempts.held[name].Equal(h.Until) {
			w.attempts.held[name] = h.Until
			w.containerEvent(name, corev1.EventTypeWarning, "BackOff", "Back-off restarting failed container %s in pod %s_%s(%s)", name, w.key.Name, w.key.Namespace, w.uid)
		}
	}
	return earliest(d.Wake, w.report(now), renewal, probe, aged)
}

// fail ends the pod: its containers are stopped within the grace period.
func (w *worker) fail(v lifecycle.Verdict, now time.Time) {
	m := &w.view.Memory
	m.Failed = v
	if by := now.Add(w.view.Grace()); m.KillBy.IsZero() || by.Before(m.KillBy) {
		m.KillBy = by
	}
}

// blocked reports whether an action has to wait for a running operation.
func (w *worker) blocked(a lifecycle.Action) bool {
	if op := w.busy[a.Key()]; op != nil {
		if a.Verb == lifecycle.Stop && w.view.Now.Add(a.Grace).Before(op.end.Add(-time.Second)) {
			op.cancel() // the grace period was shortened: start the action again
			return false
		}
		return true
	}
	switch a.Verb {
	case lifecycle.Start:
		return w.volumes.writing
	case lifecycle.Release, lifecycle.Unprepare:
		return w.busy["start"] != nil // it may be making something
	case lifecycle.Unmount:
		if op := w.busy["volumes"]; op != nil { // it may be mounting something
			op.cancel()
			return true
		}
		return w.busy["start"] != nil
	case lifecycle.Remove:
		return w.busy["start"] != nil || !w.view.Gone && !w.rep.settled(&w.view.Last)
	default:
		return false
	}
}

// publish shows the status of the pod to the kubelet API.
func (w *worker) publish(last *corev1.PodStatus) {
	mounted := w.view.Memory.Mounted
	if w.shown.pod == w.view.Pod && w.shown.look == w.shown.looks && w.inbox.observed.Mounted == mounted && equality.Semantic.DeepEqual(&w.view.Last, last) {
		return
	}
	w.shown.pod, w.shown.look = w.view.Pod, w.shown.looks
	pod := *w.view.Pod
	pod.Status = *last
	w.inbox.mu.Lock()
	defer w.inbox.mu.Unlock()
	w.inbox.observed = lifecycle.Observed{Pod: &pod, Sandboxes: w.view.Sandboxes, Containers: w.view.Containers, Mounted: mounted}
	close(w.inbox.changed)
	w.inbox.changed = make(chan struct{})
}

// close reports to readers of observed that there are no more changes.
func (w *worker) close() {
	w.inbox.mu.Lock()
	defer w.inbox.mu.Unlock()
	w.inbox.observed.Over = true
	close(w.inbox.changed)
	w.inbox.changed = make(chan struct{})
}

// Status returns the pod as its worker last read it, and a channel that is closed when
// that has changed.
func (w *worker) Status() (lifecycle.Observed, <-chan struct{}) {
	w.inbox.mu.Lock()
	defer w.inbox.mu.Unlock()
	return w.inbox.observed, w.inbox.changed
}

func earliest(times ...time.Time) time.Time {
	var first time.Time
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

// event records something about the pod. It may be called from any goroutine.
func (w *worker) event(kind, reason, format string, args ...any) {
	w.inbox.mu.Lock()
	pod := w.inbox.pod
	w.inbox.mu.Unlock()
	w.n.api.recorder.Event(pod, kind, reason, format, args...)
}

// containerEvent records something about one of its containers. It may be called
// from any goroutine.
func (w *worker) containerEvent(name, kind, reason, format string, args ...any) {
	w.inbox.mu.Lock()
	pod := w.inbox.pod
	w.inbox.mu.Unlock()
	ref := client.Reference(pod)
	switch c, isInit := lifecycle.Spec(pod, name); {
	case isInit:
		ref.FieldPath = "spec.initContainers{" + name + "}"
	case c != nil && !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == name }):
		ref.FieldPath = "spec.ephemeralContainers{" + name + "}"
	default:
		ref.FieldPath = "spec.containers{" + name + "}"
	}
	w.n.api.recorder.EventFor(ref, kind, reason, format, args...)
}

// TurnBegan returns when the current turn of the worker began; the zero time if there is none.
func (w *worker) TurnBegan() time.Time {
	began := w.turns.began.Load()
	if began == 0 {
		return time.Time{}
	}
	return time.Unix(0, began)
}
