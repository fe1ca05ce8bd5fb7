package node

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/internal/names"
	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/criclient"
	"github.com/sampan-io/sampan/node/crispec"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/node/server"
	"github.com/sampan-io/sampan/node/static"
)

type versionResponse = *cri.VersionResponse

// found is the state of one pod that was running before the agent started.
type found struct {
	meta  *cri.PodSandboxMetadata
	ids   []string // of the sandboxes
	grace *int64
}

// work runs the workers of all pods of the node.
func (n *Node) work(ctx context.Context) error {
	// Events first, then the list: nothing falls between.
	select {
	case <-n.abilities.listening:
	case <-ctx.Done():
		return nil
	}
	before, err := n.survey(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("listing running pods: %w", err)
	}
	group := run.NewGroup(ctx, 0)
	defer group.Stop()
	n.workers.mu.Lock()
	n.workers.found, n.workers.group = before, group
	n.workers.mu.Unlock()

	failed := make(chan error, 1)
	if !group.Go(func(ctx context.Context) { failed <- n.api.pods.Run(ctx) }) {
		return nil // ctx was cancelled, so nothing was started
	}
	static := make(chan struct{}) // closed when the static pods have been read
	if n.opts.StaticPodPath == "" {
		close(static)
	} else {
		var once sync.Once
		group.Go(func(ctx context.Context) { n.staticReader().Follow(ctx, func() { once.Do(func() { close(static) }) }) })
	}
	for _, first := range []<-chan struct{}{static, n.api.pods.Ready(), n.api.self.Ready()} {
		select {
		case <-first:
		case err := <-failed:
			return err
		}
	}
	n.takeArrivals()
	n.adoptOrphans() // N1
	group.Go(n.mirrors().Run)
	return <-failed
}

// survey reads the existing pods from the runtime.
func (n *Node) survey(ctx context.Context) (map[types.UID]*found, error) {
	sandboxes, err := n.opts.Runtime.ListPodSandbox(ctx, n.ownSandboxes())
	if err != nil {
		return nil, err
	}
	all := map[types.UID]*found{}
	byID := map[string]*found{}
	for _, s := range sandboxes {
		uid := types.UID(s.GetLabels()[crispec.PodUID])
		if uid == "" {
			continue // not one of ours
		}
		f := all[uid]
		if f == nil {
			f = &found{meta: s.GetMetadata()}
			all[uid] = f
		}
		f.ids = append(f.ids, s.GetId())
		byID[s.GetId()] = f
	}
	if len(all) == 0 {
		n.capacity.AdoptProcessors(nil)
		return all, nil
	}
	containers, err := n.opts.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return nil, err
	}
	for _, c := range containers {
		f := byID[c.GetPodSandboxId()]
		if g, err := strconv.ParseInt(c.GetAnnotations()[crispec.TerminationGrace], 10, 64); err == nil && f != nil {
			f.grace = &g
		}
	}
	n.capacity.AdoptProcessors(containers)
	n.log.Info("found running pods", "pods", len(all))
	return all, nil
}

// ownSandboxes returns the filter for the sandboxes of this agent, or nil for all.
func (n *Node) ownSandboxes() *cri.PodSandboxFilter {
	if n.opts.Owner == "" {
		return nil
	}
	return &cri.PodSandboxFilter{LabelSelector: map[string]string{names.Cluster: n.opts.Owner}}
}

// adoptOrphans stops running pods that the API server does not have, and removes their
// files.
func (n *Node) adoptOrphans() {
	n.workers.mu.Lock()
	defer n.workers.mu.Unlock()
	orphan := func(pod *corev1.Pod, f *found) {
		n.log.Info("pod was deleted while no agent ran, stopping it", "pod", pod.Namespace+"/"+pod.Name)
		n.startWorker(pod, f, nil).leave()
	}
	files, left := n.files.Pods(), 0
	for _, uid := range files {
		if n.workers.all[uid] == nil {
			left++
		}
	}
	n.metrics.Pods.Cleaned.Set(float64(left))
	n.metrics.Pods.Orphans.Add(float64(len(n.workers.found)))
	for uid, f := range n.workers.found {
		pod := &corev1.Pod{}
		pod.Name, pod.Namespace, pod.UID = f.meta.GetName(), f.meta.GetNamespace(), uid
		pod.Spec.TerminationGracePeriodSeconds = f.grace
		orphan(pod, f)
	}
	n.workers.found = nil
	if n.plugins.claims != nil {
		for _, uid := range n.plugins.claims.Pods() {
			if n.workers.all[uid] == nil {
				pod := &corev1.Pod{}
				pod.UID = uid
				orphan(pod, nil)
			}
		}
	}
	for _, uid := range files {
		if n.workers.all[uid] == nil {
			pod := &corev1.Pod{}
			pod.UID = uid
			orphan(pod, nil)
		}
	}
}

// podChanged is called for each change of the node's pods, in order.
func (n *Node) podChanged(old, pod *corev1.Pod) {
	pod = static.FromAPI(pod)
	n.workers.mu.Lock()
	defer n.workers.mu.Unlock()
	if n.workers.arrivals != nil {
		n.arrive(old, pod)
		return
	}
	if pod != nil && static.IsMirror(pod) || old != nil && static.IsMirror(old) {
		n.mirrorChanged(old, pod)
		return
	}
	if old != nil && (pod == nil || pod.UID != old.UID) {
		if w := n.workers.all[old.UID]; w != nil {
			w.leave()
			n.capacity.Uncount(old.UID)
		}
	}
	if pod == nil {
		return
	}
	if w := n.workers.all[pod.UID]; w != nil {
		w.update(pod)
		return
	}
	n.take(pod)
}

// ended reports whether the pod was ended by this agent and is only held in the
// API server by a finalizer.
func ended(pod *corev1.Pod) bool {
	return podstate.Finished(pod) && pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
}

// startWorker starts the worker of a pod, which ends a rejected one. The caller holds mu.
func (n *Node) startWorker(pod *corev1.Pod, f *found, rejection *lifecycle.Rejection) *worker {
	w := newWorker(n, pod)
	w.view.Memory.Mounted = n.files.Mounted(pod.UID) // by an earlier agent
	if f != nil {
		w.sandboxes, w.inbox.stale, w.volumes.due = f.ids, true, true
		w.volumes.mounted.Store(true)
	}
	if len(pod.Spec.Containers) > 0 {
		n.metrics.Pods.Containers.Observe(float64(len(pod.Spec.Containers)))
	}
	n.workers.all[pod.UID] = w
	n.capacity.Join(pod.UID, w)
	n.workers.group.Go(func(ctx context.Context) {
		n.metrics.Pods.WorkerStart.Observe(time.Since(w.seen).Seconds())
		run.Shield(w.log, func() {
			if rejection == nil || rejection.Outdated() { // a rejected pod reads nothing
				n.api.references.Hold(pod)
			}
			if f != nil {
				n.adopt(w)
			}
			w.decide(ctx, rejection)
		})
		if w.run(ctx) {
			n.metrics.Forget(pod.UID, w.key)
			n.api.references.Release(pod.UID)
			n.workers.mu.Lock()
			delete(n.workers.all, pod.UID)
			n.capacity.Leave(pod.UID)
			if static.Is(pod) {
				n.syncStatic()
			}
			n.workers.mu.Unlock()
		}
	})
	return w
}

// worker returns the worker of the pod with this name.
func (n *Node) worker(namespace, name string) *worker {
	pod, ok := n.api.pods.Get(namespace, name)
	if !ok {
		return nil
	}
	n.workers.mu.Lock()
	defer n.workers.mu.Unlock()
	if static.IsMirror(pod) {
		w := n.workers.statics.running[types.NamespacedName{Namespace: namespace, Name: name}]
		if n.workers.statics.mirrorFor(w, pod) == nil {
			return nil
		}
		return w
	}
	return n.workers.all[pod.UID]
}

// allWorkers returns all workers.
func (n *Node) allWorkers() []*worker {
	n.workers.mu.Lock()
	defer n.workers.mu.Unlock()
	all := make([]*worker, 0, len(n.workers.all))
	for _, w := range n.workers.all {
		all = append(all, w)
	}
	return all
}

// secret returns a secret that a pod of the node refers to.
func (n *Node) secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return n.api.references.At(ctx).Secret(namespace, name)
}

// eachPod yields all pods that have workers.
func (n *Node) eachPod(yield func(server.Pod) bool) {
	for _, w := range n.allWorkers() {
		if !yield(w) {
			return
		}
	}
}

// podNamed returns the pod with this name.
func (n *Node) podNamed(namespace, name string) (server.Pod, bool) {
	w := n.worker(namespace, name)
	return w, w != nil
}

// workedOn returns the newest versions of the pods that have workers.
func (n *Node) workedOn() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, w := range n.allWorkers() {
		w.inbox.mu.Lock()
		pods = append(pods, w.inbox.pod)
		w.inbox.mu.Unlock()
	}
	return pods
}

// referenceChanged is called when an object changed that pods refer to.
func (n *Node) referenceChanged(pods []types.UID) {
	n.workers.mu.Lock()
	defer n.workers.mu.Unlock()
	for _, uid := range pods {
		if w := n.workers.all[uid]; w != nil {
			w.post(w.referenceChanged)
		}
	}
}

// listen passes the runtime's events to the workers.
func (n *Node) listen(ctx context.Context) error {
	heard := false
	for failures := 0; ctx.Err() == nil; {
		for e, err := range n.opts.Runtime.Events(ctx) {
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil:
				n.metrics.EventStreamErrors.Inc()
				n.registrar.RuntimeDown(criclient.Message(err))
				n.log.Warn("event stream of the container runtime broke, will try again", "err", err)
			case e == nil:
				n.metrics.EventStreams.Inc()
				failures = 0
				n.registrar.ReadRuntime(ctx)
				if !heard {
					heard = true
					close(n.abilities.listening)
					continue
				}
				n.log.Info("event stream of the container runtime is open again")
				for _, w := range n.allWorkers() {
					w.touch()
				}
			default:
				n.handle(e)
			}
		}
		failures++
		run.Pause(ctx, run.Backoff{First: firstAnswer, Max: retryPause}.Pause(failures))
	}
	return nil
}

// handle passes an event of the runtime to the worker of the pod.
func (n *Node) handle(e *cri.ContainerEventResponse) {
	if at := e.GetCreatedAt(); at > 0 {
		n.metrics.EventLatency.Observe(max(0, time.Since(time.Unix(0, at))).Seconds())
	}
	uid := types.UID(e.GetPodSandboxStatus().GetMetadata().GetUid())
	if uid == "" {
		if e.GetContainerEventType() == cri.ContainerEventType_CONTAINER_DELETED_EVENT {
			return // we asked for it
		}
		for _, w := range n.allWorkers() {
			w.touch()
		}
		return
	}
	n.workers.mu.Lock()
	w := n.workers.all[uid]
	n.workers.mu.Unlock()
	if w != nil {
		w.touch()
	}
}
