package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/sorting"
	"github.com/sampan-io/sampan/node/criclient"
	"github.com/sampan-io/sampan/node/crispec"
	"github.com/sampan-io/sampan/node/images"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/node/logs"
)

// failedMount is the reason of events about volumes.
const failedMount = "FailedMount"

const (
	// retryPause is how long Kubernetes waits before it tries again what went
	// wrong without a reason to expect anything else.
	retryPause = 10 * time.Second

	// keptAttempts is how many ended attempts of a container keep their log.
	keptAttempts = 1
)

// perform starts an action in a separate goroutine. Its result comes back by post.
func (w *worker) perform(a lifecycle.Action, now time.Time) {
	switch a.Verb {
	case lifecycle.Fail, lifecycle.Start: // see step
	case lifecycle.SetUp:
		pod := w.view.Granted()
		w.view.Memory.Mounted = w.n.files.Kept() // from here on it may have volumes
		w.begin(a, now, func(ctx context.Context) func() { return w.setUp(ctx, pod, a) })
	case lifecycle.Update:
		w.apply(a, now)
	case lifecycle.Enforce:
		w.enforce(a, now)
	case lifecycle.PreStop:
		w.ending(a, now)
		w.preStop(a, now)
	case lifecycle.Stop:
		w.ending(a, now)
		if op := w.busy[lifecycle.Action{Verb: lifecycle.PreStop, ID: a.ID}.Key()]; op != nil {
			op.cancel()
		}
		w.begin(a, now, func(ctx context.Context) func() {
			err := w.n.opts.Runtime.StopContainer(ctx, a.ID, a.Grace)
			return func() { w.stopped(ctx, "container "+a.Container, err) }
		})
	case lifecycle.Release:
		w.begin(a, now, func(ctx context.Context) func() {
			err := w.n.opts.Runtime.StopPodSandbox(ctx, a.ID)
			return func() { w.stopped(ctx, "sandbox", err) }
		})
	case lifecycle.Discard:
		w.begin(a, now, func(ctx context.Context) func() {
			err := errors.Join(w.n.opts.Runtime.StopPodSandbox(ctx, a.ID), w.n.opts.Runtime.RemovePodSandbox(ctx, a.ID))
			return func() { w.stopped(ctx, "old sandbox", err) }
		})
	case lifecycle.Unprepare:
		w.begin(a, now, func(ctx context.Context) func() {
			err := w.n.release(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: w.uid}}, a.Verb)
			return func() { w.unprepared(ctx, err) }
		})
	case lifecycle.Unmount:
		w.begin(a, now, func(ctx context.Context) func() {
			err := w.n.release(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: w.uid}}, a.Verb)
			return func() { w.unmounted(ctx, err) }
		})
	case lifecycle.Remove:
		gone, sandboxes := w.view.Gone, w.sandboxes
		w.begin(a, now, func(ctx context.Context) func() {
			err := w.remove(ctx, gone, sandboxes)
			return func() { w.removed(ctx, err) }
		})
	}
}

// startAll starts containers, one after the other.
func (w *worker) startAll(starts []lifecycle.Action, now time.Time) {
	var orders []order
	for _, a := range starts {
		m := w.making(a)
		if a.Attempt > 0 {
			w.restarting(a.Container, a.Attempt, now)
		}
		if l := m.container.Lifecycle; l != nil && l.PostStart != nil {
			w.view.Memory.Hooked[a.Container] = a.Attempt
		}
		orders = append(orders, m)
	}
	last := len(orders) - 1
	w.begin(starts[0], now, func(ctx context.Context) func() {
		for _, m := range orders[:last] {
			w.post(w.attempt(ctx, starts[0], func(ctx context.Context) func() { return w.startOne(ctx, m) }))
		}
		return w.startOne(ctx, orders[last])
	})
	for _, a := range starts {
		w.busy[a.Key()].starts[a.Container] = true
	}
}

// startOne makes one attempt at a container when it is its turn among the pods that start.
func (w *worker) startOne(ctx context.Context, m order) (done func()) {
	if !w.n.enter(ctx) {
		return func() { delete(w.view.Memory.Hooked, m.container.Name) }
	}
	defer w.n.exit()
	return w.start(ctx, m)
}

// begin runs f on a separate goroutine, and the function that f returns on the worker's.
func (w *worker) begin(a lifecycle.Action, now time.Time, f func(ctx context.Context) func()) {
	op := &operation{end: now.Add(a.Grace), starts: map[string]bool{}}
	w.busy[a.Key()] = op
	started := make(chan struct{})
	ok := w.ops.Go(func(ctx context.Context) {
		ctx, op.cancel = context.WithCancel(ctx)
		close(started)
		done := w.attempt(ctx, a, f)
		w.post(func() {
			if w.busy[a.Key()] == op {
				delete(w.busy, a.Key())
			}
			done() // which may ask whether the operation was cancelled
			op.cancel()
		})
	})
	if ok {
		<-started // so that cancel is set
	}
}

// attempt calls f. If it panics, attempt reports that, and returns after a pause.
func (w *worker) attempt(ctx context.Context, a lifecycle.Action, f func(ctx context.Context) func()) (done func()) {
	done = func() {}
	if err := run.Catch(func() error { done = f(ctx); return nil }); err != nil {
		w.panicked("doing "+a.Key(), err)
		run.Pause(ctx, panicPause)
	}
	return done
}

// setUp prepares what the pod needs of its node, and makes its sandbox. It prepares what may hang, such as volumes of drivers, before it
// waits for its turn among the pods that start.
func (w *worker) setUp(ctx context.Context, pod *corev1.Pod, a lifecycle.Action) func() {
	p := &preparation{w: w, pod: pod}
	if failed := w.prepare(ctx, p, true); failed != nil {
		return failed
	}
	if !w.n.enter(ctx) {
		return func() {}
	}
	defer w.n.exit()
	if failed := w.prepare(ctx, p, false); failed != nil {
		return failed
	}
	id, err := w.n.opts.Runtime.RunPodSandbox(ctx, w.n.sandboxConfig(pod, a.Attempt), p.handler)
	if ctx.Err() == nil {
		w.n.metrics.Pods.Sandboxed(pod, err)
	}
	if err != nil {
		return w.setUpFailed(ctx, failedSandbox, notMade(err))
	}
	return func() {
		w.setups, w.view.Memory.Setup = 0, lifecycle.Failure{}
		w.volumes.refresh = p.again
		w.sandboxes = append(slices.Clone(w.sandboxes), id)
		w.look(ctx)
	}
}

// setupBackoff returns the pause after so many failures in a row to set up a pod.
func setupBackoff(failures int) time.Duration {
	return run.Backoff{First: 500 * time.Millisecond, Max: retryPause}.Pause(failures)
}

func (w *worker) setUpFailed(ctx context.Context, reason string, err error) func() {
	if ctx.Err() != nil {
		// The runtime may have created it before the call was cancelled.
		return func() { w.find(context.WithoutCancel(ctx)) }
	}
	w.event(corev1.EventTypeWarning, reason, "%s", err)
	return func() {
		w.setups++
		now := time.Now()
		// A missing object (a config map) ends the pause when it appears.
		w.view.Memory.Setup = lifecycle.Failure{Reason: reason, Message: err.Error(), At: now, Retry: now.Add(setupBackoff(w.setups))}
		if reason != failedMount && reason != failedPrepare {
			w.find(ctx)
		}
	}
}

// referenceChanged is called when a ConfigMap or Secret of the pod has changed.
func (w *worker) referenceChanged() {
	w.volumes.due = true
	m := &w.view.Memory
	if m.Setup.Reason == failedMount {
		m.Setup.Retry = time.Time{}
	}
	for name, f := range m.Failures {
		if f.Reason == configError {
			f.Retry = time.Time{}
			m.Failures[name] = f
		}
	}
}

// shownChanged reports whether a part of the pod has changed that one of its volumes shows: labels, annotations or the
// resources of containers. The other fields that a volume can show never change.
func shownChanged(old, pod *corev1.Pod) bool {
	return showsPod(pod) && (!maps.Equal(old.Labels, pod.Labels) || !maps.Equal(old.Annotations, pod.Annotations) ||
		!slices.EqualFunc(old.Spec.Containers, pod.Spec.Containers, sameResources) ||
		!slices.EqualFunc(old.Spec.InitContainers, pod.Spec.InitContainers, sameResources))
}

func sameResources(a, b corev1.Container) bool {
	return equality.Semantic.DeepEqual(&a.Resources, &b.Resources)
}

// showsPod reports whether a volume of the pod has files with fields of the pod.
func showsPod(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.DownwardAPI != nil || v.Projected != nil &&
			slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.DownwardAPI != nil })
	})
}

// renew brings the volumes of a running pod up to date if that is due, and
// returns when it will be. A container starts before or after that: its subPath of a key that has just appeared is the key's file.
func (w *worker) renew(now time.Time) time.Time {
	up := slices.ContainsFunc(w.view.Sandboxes, func(s lifecycle.Sandbox) bool { return s.Ready })
	if !up || w.view.Deleting() || w.view.Finished() || w.busy["start"] != nil || w.busy["volumes"] != nil {
		return time.Time{}
	}
	if !w.volumes.due && (w.volumes.refresh.IsZero() || now.Before(w.volumes.refresh)) {
		return w.volumes.refresh
	}
	w.volumes.due, w.volumes.writing = false, true
	pod, op := w.view.Pod, &operation{cancel: func() {}}
	w.busy["volumes"] = op
	ips := podIPs(&w.view.Last)
	started := make(chan struct{})
	ok := w.ops.Go(func(ctx context.Context) {
		ctx, op.cancel = context.WithCancel(ctx)
		close(started)
		var next time.Time
		var errs []error
		err := run.Catch(func() error {
			next, errs = w.n.updateVolumes(ctx, pod, ips)
			w.post(func() { w.volumes.writing = false }) // drivers may take long
			again, more := w.n.files.RevisitDrivers(ctx, pod)
			next, errs = earliest(next, again), append(errs, more...)
			return nil
		})
		if err != nil {
			errs = append(errs, err)
		}
		w.post(func() {
			delete(w.busy, "volumes")
			w.volumes.refresh, w.volumes.writing = next, false
			if len(errs) > 0 && ctx.Err() == nil {
				for _, err := range errs {
					w.event(corev1.EventTypeWarning, failedMount, "%s", err)
				}
				w.volumes.refresh = earliest(next, time.Now().Add(retryPause))
			}
			op.cancel()
		})
	})
	if ok {
		<-started // so that cancel is set
	}
	return time.Time{}
}

// updateVolumes writes what has changed in the volumes of a running pod, and returns when to do it again (zero: never). No volume waits for
// another one that fails: a token in it has to be renewed.
func (n *Node) updateVolumes(ctx context.Context, pod *corev1.Pod, ips []string) (time.Time, []error) {
	ctx, cancel := context.WithTimeout(ctx, lookup)
	defer cancel()
	return n.files.Update(ctx, pod, n.facts(ctx, pod, ips))
}

func podIPs(s *corev1.PodStatus) []string {
	var list []string
	for _, ip := range s.PodIPs {
		list = append(list, ip.IP)
	}
	return list
}

// find looks in the runtime for sandboxes of the pod that the worker does not have yet.
func (w *worker) find(ctx context.Context) {
	list, err := w.n.opts.Runtime.ListPodSandbox(ctx, &cri.PodSandboxFilter{LabelSelector: map[string]string{crispec.PodUID: string(w.uid)}})
	if err != nil {
		return
	}
	w.sandboxes = nil
	for _, s := range list {
		w.sandboxes = append(w.sandboxes, s.GetId())
	}
	w.look(ctx)
}

// order is the input for the start of a container.
type order struct {
	pod       *corev1.Pod
	container *corev1.Container
	attempt   int32
	sandbox   lifecycle.Sandbox
	old       []lifecycle.Container // ended attempts, oldest first
	// limits is the pod as its cgroup has to allow it, if the container gets other resources than its last attempt had: those of a
	// resize for which it was restarted.
	limits    *corev1.Pod
	ephemeral bool
	// target is the name of the container whose processes an ephemeral container shows; targetID is its ID, if it runs.
	target, targetID string
}

func (w *worker) making(a lifecycle.Action) order {
	o := order{pod: w.view.Granted(), attempt: a.Attempt}
	o.container, _ = lifecycle.Spec(o.pod, a.Container)
	for i := range o.pod.Spec.EphemeralContainers {
		if e := &o.pod.Spec.EphemeralContainers[i]; e.Name == a.Container {
			o.ephemeral, o.target = true, e.TargetContainerName
		}
	}
	for _, s := range w.view.Sandboxes {
		if s.Ready && (o.sandbox.ID == "" || s.Attempt > o.sandbox.Attempt) {
			o.sandbox = s
		}
	}
	for _, c := range w.view.Containers {
		if c.Name == a.Container && c.State != lifecycle.Running {
			o.old = append(o.old, c)
			if had, ok := w.view.Memory.Resize.Applied[c.ID]; ok && c.Attempt == a.Attempt-1 && !lifecycle.SameResources(had, lifecycle.Effective(o.container.Resources, o.pod.Spec.Resources)) {
				o.limits = w.between("")
			}
		}
		if c.Name == o.target && c.State == lifecycle.Running {
			o.targetID = c.ID
		}
	}
	sorting.Slice(o.old, func(x, y lifecycle.Container) int { return int(x.Attempt - y.Attempt) })
	return o
}

// restarting counts a restart for the back-off; attempt is that of the container
// that is being made.
func (w *worker) restarting(name string, attempt int32, now time.Time) {
	if f, failed := w.view.Memory.Failures[name]; failed && f.Reason != runError {
		return // the attempt has been counted
	}
	for _, c := range w.view.Containers {
		if c.Name == name && c.Attempt == attempt-1 && attempt == 1 && w.view.Memory.Replaced[c.ID] {
			return // as in Kubernetes, the first restart by the agent itself does not count
		}
	}
	for _, c := range w.view.Containers {
		if c.Name == name && c.State == lifecycle.Exited {
			ended := c.FinishedAt
			for _, d := range w.view.Containers {
				if d.Name == name && d.FinishedAt.After(ended) {
					ended = d.FinishedAt
				}
			}
			w.view.Memory.Restarts[name] = w.view.Memory.Restarts[name].Next(ended, now, w.n.restartPauses()).For(attempt)
			return
		}
	}
}

// restartPauses returns the pauses between restarts of a container.
func (n *Node) restartPauses() lifecycle.Pauses {
	return lifecycle.UpTo(n.config().CrashLoopBackOff.MaxContainerRestartPeriod.Duration)
}

// startError is why a container could not be started, in the words of its
// status.
type startError struct {
	reason, message           string
	laterReason, laterMessage string
	pulled                    string // the image that could not be pulled
	id                        string // of the container that was made and did not start
	events                    []warning
}

// imageVolumeFailed is how the message of a runtime begins that can't mount a volume that is an image
// (k8s.io/cri-api/pkg/errors).
const imageVolumeFailed = "ImageVolumeMountFailed"

// ofImageVolume reports whether a volume that is an image kept the container from being made.
func (e *startError) ofImageVolume() bool {
	return e != nil && e.reason == "CreateContainerError" && strings.HasPrefix(e.message, imageVolumeFailed)
}

// warning is an event that reports a failure.
type warning struct{ reason, message string }

func failed(format string, args ...any) []warning {
	return []warning{{"Failed", fmt.Sprintf(format, args...)}}
}

// runError is the reason of a container that was made and could not be started.
// It counts as one that ended.
const runError = "RunContainerError"

// configError is the reason of a container that names something that is not
// there, or contradicts itself.
const configError = "CreateContainerConfigError"

// start makes one attempt at a container.
func (w *worker) start(ctx context.Context, o order) func() {
	if o.limits != nil {
		if err := w.n.limit(o.limits, lifecycle.ClassOf(o.pod)); err != nil {
			w.log.Warn("the limits of a resized pod can't be set", "container", o.container.Name, "err", err)
		}
	}
	id, fail := w.launch(ctx, o)
	if fail == nil {
		w.n.linkLog(o, id)
		w.n.metrics.Pods.ContainerStarted(o.pod, o.container.Name, "")
	} else if ctx.Err() == nil {
		w.n.metrics.Pods.ContainerStarted(o.pod, o.container.Name, fail.reason)
	}
	if fail != nil && ctx.Err() == nil {
		for _, e := range fail.events {
			w.containerEvent(o.container.Name, corev1.EventTypeWarning, e.reason, "%s", e.message)
		}
	}
	// Remove old containers and logs last, so that they delay nothing.
	for i := range max(len(o.old)-keptAttempts, 0) {
		if err := w.n.opts.Runtime.RemoveContainer(ctx, o.old[i].ID); err == nil {
			logs.Remove(filepath.Join(w.n.logs(o.pod), crispec.LogPath(o.old[i].Name, o.old[i].Attempt)))
			w.n.unlinkLogs(o.pod)
			if err := w.n.files.Forget(o.pod, o.container, o.old[i].Attempt); err != nil {
				w.log.Warn("files of an old attempt of a container not removed", "container", o.old[i].Name, "attempt", o.old[i].Attempt, "err", err)
			}
		}
	}
	return func() {
		name, now := o.container.Name, time.Now()
		if fail != nil || ctx.Err() != nil {
			delete(w.view.Memory.Hooked, name)
		}
		switch {
		case ctx.Err() != nil:
		case fail == nil:
			delete(w.view.Memory.Failures, name)
			delete(w.attempts.pulls, o.container.Image)
			w.view.Memory.Resize.Applied[id] = lifecycle.Effective(o.container.Resources, o.pod.Spec.Resources)
			for _, image := range images.OfVolumes(o.pod) {
				delete(w.attempts.pulls, image)
			}
		default:
			f := lifecycle.Failure{Reason: fail.reason, Message: fail.message, At: now, Retry: now.Add(retryPause)}
			if fail.id != "" {
				w.attempts.unstarted[fail.id] = fail.message
				f.Retry = now // the back-off of ended containers holds it
			}
			if fail.pulled != "" {
				b := w.attempts.pulls[fail.pulled].Next(now, now, lifecycle.DefaultPauses())
				w.attempts.pulls[fail.pulled] = b
				f.Retry, f.LaterReason, f.LaterMessage = now.Add(b.Pause), fail.laterReason, fail.laterMessage
				w.containerEvent(name, corev1.EventTypeNormal, "BackOff", "Back-off pulling image %q", fail.pulled)
				w.containerEvent(name, corev1.EventTypeWarning, "Failed", "Error: %s", fail.laterReason)
			}
			w.view.Memory.Failures[name] = f
		}
		w.outdate()
		if _, hooked := w.view.Memory.Hooked[name]; hooked {
			w.postStart(w.hookOf(o.container.Lifecycle.PostStart, o.container, id), o.attempt)
		}
	}
}

// launch does the work of start, and returns the ID of the container or why it could not be started.
func (w *worker) launch(ctx context.Context, o order) (string, *startError) {
	r := w.imageRequest(o)
	volumes, missing := w.n.images.EnsureVolumes(ctx, r, o.container)
	if missing != nil {
		return "", withoutImage(missing)
	}
	image, missing := w.n.images.Ensure(ctx, r, images.Image{Name: o.container.Image, Policy: o.container.ImagePullPolicy, Event: func(kind, reason, format string, args ...any) {
		w.containerEvent(o.container.Name, kind, reason, format, args...)
	}})
	if missing != nil {
		return "", withoutImage(missing)
	}
	id, fail := w.create(ctx, o, image, volumes)
	w.n.metrics.Images.Mounted(o.container, volumes, fail.ofImageVolume())
	return id, fail
}

// imageRequest returns the pod of a container as one that needs images.
func (w *worker) imageRequest(o order) *images.Request {
	return &images.Request{
		Pod: o.pod, Event: w.event, Log: w.log, Yield: w.n.yield,
		Sandbox: func() *cri.PodSandboxConfig { return w.n.sandboxConfig(o.pod, int32(o.sandbox.Attempt)) },
		Pulled:  func(from, to time.Time) { w.post(func() { w.starting.Pulled(from, to) }) },
	}
}

// withoutImage is the error of a container whose image, or that of one of its volumes, is not available.
func withoutImage(f *images.Failure) *startError {
	fail := &startError{reason: f.Reason, message: f.Message, laterReason: f.LaterReason, laterMessage: f.LaterMessage, pulled: f.Pulled}
	for _, e := range f.Events {
		fail.events = append(fail.events, warning{e.Reason, e.Message})
	}
	return fail
}

// create makes a container whose images are there, and starts it.
func (w *worker) create(ctx context.Context, o order, image *cri.Image, volumes map[string]string) (string, *startError) {
	name := o.container.Name
	if err := w.n.prepareEphemeral(ctx, o); err != nil {
		w.event(corev1.EventTypeWarning, failedMount, "%s", err)
		return "", &startError{reason: configError, message: err.Error(), events: failed("Error: %v", err)}
	}
	config, err := w.n.containerConfig(ctx, o, image, volumes)
	if err == nil {
		err = o.share(config)
	}
	if err != nil {
		return "", &startError{reason: configError, message: err.Error(), events: failed("Error: %v", err)}
	}
	sandboxConfig := w.n.sandboxConfig(o.pod, int32(o.sandbox.Attempt))
	if err := w.n.logDirectory(o.pod, name); err != nil {
		return "", &startError{reason: "CreateContainerError", message: err.Error(), events: failed("Error: %v", err)}
	}
	id, err := w.n.opts.Runtime.CreateContainer(ctx, o.sandbox.ID, config, sandboxConfig)
	if err != nil {
		return "", &startError{reason: "CreateContainerError", message: criclient.Message(err), events: failed("Error: %s", criclient.Message(err))}
	}
	if cpus := config.GetLinux().GetResources().GetCpusetCpus(); cpus != "" {
		w.post(func() { w.attempts.pinned[id] = cpus })
	}
	w.containerEvent(name, corev1.EventTypeNormal, "Created", "Container created")
	if err := w.n.opts.Runtime.StartContainer(ctx, id); err != nil {
		return "", &startError{reason: runError, message: criclient.Message(err), id: id, events: failed("Error: %s", criclient.Message(err))}
	}
	w.containerEvent(name, corev1.EventTypeNormal, "Started", "Container started")
	return id, nil
}

// share lets an ephemeral container see the processes of the container that it targets.
func (o order) share(config *cri.ContainerConfig) error {
	if o.target == "" {
		return nil
	}
	if o.targetID == "" {
		return fmt.Errorf("unable to find target container %s", o.target)
	}
	ns := config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	if ns == nil {
		return errors.New("the configuration of the container has no namespaces")
	}
	ns.Pid, ns.TargetId = cri.NamespaceMode_TARGET, o.targetID
	return nil
}

// stopped handles the result of stopping a container or sandbox.
func (w *worker) stopped(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil && !criclient.IsNotFound(err) {
		w.log.Warn("container or sandbox not stopped, will try again", "what", what, "err", err)
		w.later()
	}
	w.outdate()
}

// later wakes the worker after a pause.
func (w *worker) later() {
	w.ops.Go(func(ctx context.Context) {
		select {
		case <-time.After(time.Second):
			w.touch()
		case <-ctx.Done():
		}
	})
}

// unmounted handles the result of unmounting the pod's volumes.
func (w *worker) unmounted(ctx context.Context, err error) {
	switch {
	case err == nil:
		w.view.Memory.Mounted = false
	case ctx.Err() == nil:
		w.cleaning(true)
		w.log.Warn("volumes of the pod not unmounted, will try again", "err", err)
		w.postpone("unmount")
	}
}

// cleaning counts the pod among those whose files could not be removed, or not any more, if the API server did not have it when the
// agent started.
func (w *worker) cleaning(failed bool) {
	if len(w.view.Pod.Spec.Containers) > 0 || failed == w.volumes.stuck {
		return
	}
	w.volumes.stuck = failed
	if failed {
		w.n.metrics.Pods.CleanErrors.Inc()
	} else {
		w.n.metrics.Pods.CleanErrors.Dec()
	}
}

// remove ends the pod (N2), whose volumes are unmounted: the object first, then what is kept for the logs.
func (w *worker) remove(ctx context.Context, gone bool, sandboxes []string) error {
	w.inbox.mu.Lock()
	pod := w.inbox.pod
	w.inbox.mu.Unlock()
	if !gone {
		zero := int64(0)
		err := client.Pods.Delete(ctx, w.n.opts.Client, w.key.Namespace, w.key.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &w.uid},
		})
		// A conflict says that another pod has the name: this one is gone.
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	for _, id := range sandboxes {
		if err := w.n.opts.Runtime.RemovePodSandbox(ctx, id); err != nil && !criclient.IsNotFound(err) {
			return fmt.Errorf("sandbox %s: %w", id, err)
		}
	}
	return w.n.release(ctx, pod, lifecycle.Remove)
}

func (w *worker) removed(ctx context.Context, err error) {
	switch {
	case err == nil:
		w.over = true
		w.cleaning(false)
	case ctx.Err() == nil:
		w.cleaning(true)
		w.log.Warn("pod not removed, will try again", "err", err)
		w.postpone("remove")
	}
}

// postpone holds back the next action with a key, for a time that grows with each failure.
func (w *worker) postpone(action string) {
	w.setups++
	w.holdBack(action, pauseAfter(w.setups))
}
