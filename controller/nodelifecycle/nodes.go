package nodelifecycle

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/internal/run"
)

// goneGrace is how long the pods of a node that does not exist are left alone: it may be
// about to be registered again.
const goneGrace = 40 * time.Second

// nodes is the controller of nodes and the pods on them.
//
// A node is alive if its Lease is renewed. The time when a renewal is received counts, and not the time in the Lease,
// because the clocks of nodes may be wrong. A renewal only moves the time at which the node counts as lost, and causes no
// reconcile.
type nodes struct {
	client client.Interface
	podGC  client.Interface // for pods that are deleted because they are superfluous
	nodes  *cache.Cache[*corev1.Node]
	leases *cache.Cache[*coordinationv1.Lease]
	pods   *cache.Cache[*corev1.Pod]
	events *client.Recorder
	loop   *controller.Loop
	grace  time.Duration
	limit  int // of finished pods
	finish *controller.Loop

	mu      sync.Mutex
	heard   map[string]time.Time // guarded by mu; of a node, by its name
	missing map[string]time.Time // guarded by mu; since when a node that has pods does not exist
	waiting map[types.UID]bool   // guarded by mu; pods that will be evicted when their time has come
}

// Options configures the controller. Client is required.
type Options struct {
	controller.Config

	// NodeGrace is how long a node may not renew its Lease before its status becomes unknown; 0 means 40 s, which is
	// four times the interval at which nodes renew it.
	NodeGrace time.Duration

	// FinishedPods is the number of finished pods that are kept; the oldest are deleted first. 0 means 12,500, as
	// for upstream's --terminated-pod-gc-threshold.
	FinishedPods int
}

// The indexes of pods.
const (
	byNode   = "node"
	byFinish = "finish" // under finished, all finished pods
	finished = "finished"
)

func nodeOf(pod *corev1.Pod) []string {
	if pod.Spec.NodeName == "" {
		return nil
	}
	return []string{pod.Spec.NodeName}
}

func finishedOf(pod *corev1.Pod) []string {
	if podstate.Finished(pod) {
		return []string{finished}
	}
	return nil
}

// Tasks returns the controller. Its tasks must run together, as one stage.
func Tasks(opts Options) []run.Task {
	var caches run.Task
	opts.Config, caches = opts.WithDefaults()
	opts.NodeGrace = cmp.Or(opts.NodeGrace, 40*time.Second)
	opts.FinishedPods = cmp.Or(opts.FinishedPods, 12500)
	pods := cache.Of(opts.Caches, client.Pods, cache.Indexes[*corev1.Pod]{byNode: nodeOf, byFinish: finishedOf})
	n := &nodes{
		client:  opts.For("node-controller").Client,
		podGC:   opts.For("pod-garbage-collector").Client,
		nodes:   cache.Of(opts.Caches, client.Nodes, nil),
		leases:  cache.Of(opts.Caches, client.Leases, nil),
		pods:    pods,
		events:  client.NewRecorder(opts.For("node-controller").Client, "node-controller", "", opts.Log),
		grace:   opts.NodeGrace,
		limit:   opts.FinishedPods,
		heard:   map[string]time.Time{},
		missing: map[string]time.Time{},
		waiting: map[types.UID]bool{},
	}
	n.loop = controller.New(controller.Options{
		Name: "nodes", Reconcile: n.reconcile, Workers: opts.Workers, Log: opts.Log,
		Needs: []<-chan struct{}{n.nodes.Ready(), n.leases.Ready(), pods.Ready()},
	})
	n.finish = controller.New(controller.Options{
		Name: "finished-pods", Reconcile: n.removeFinished, Workers: 1, Log: opts.Log,
		Needs: []<-chan struct{}{pods.Ready()},
	})
	n.nodes.Subscribe(func(before, after *corev1.Node) {
		key := controller.KeyOfEither(before, after)
		if after != nil && nodeReady(after) != corev1.ConditionUnknown &&
			(before == nil || !equality.Semantic.DeepEqual(before.Status, after.Status)) {
			n.hear(key.Name) // nodes write their status, too
		}
		if after == nil {
			n.forget(key.Name)
		}
		n.loop.Add(controller.Key{Name: key.Name})
	})
	n.leases.Subscribe(func(before, after *coordinationv1.Lease) {
		if after == nil || after.Namespace != corev1.NamespaceNodeLease || before != nil && equality.Semantic.DeepEqual(before.Spec.RenewTime, after.Spec.RenewTime) {
			return
		}
		n.hear(after.Name)
		// A node that was lost is alive again when it says itself that it is ready.
		if before != nil && leaseSeconds(before) != leaseSeconds(after) {
			n.loop.Add(controller.Key{Name: after.Name}) // it counts as lost at another time
		}
	})
	pods.Subscribe(func(before, after *corev1.Pod) {
		if after == nil {
			n.mu.Lock()
			delete(n.waiting, before.UID)
			n.mu.Unlock()
			return
		}
		if after.Spec.NodeName != "" && (before == nil || before.Spec.NodeName == "" || podstate.Ready(after) != podstate.Ready(before) ||
			(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil)) && n.troubled(after.Spec.NodeName) {
			n.loop.Add(controller.Key{Name: after.Spec.NodeName})
		}
		if podstate.Finished(after) && (before == nil || !podstate.Finished(before)) {
			n.finish.Add(controller.Key{Name: finished})
		}
	})
	return []run.Task{
		caches,
		{Name: "nodes-events", Run: n.events.Run},
		n.loop.Task(),
		n.finish.Task(),
		newTTLs(opts.For(ttlName), n.nodes).loop.Task(),
	}
}

func (n *nodes) hear(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.heard[name] = time.Now()
}

func (n *nodes) forget(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.heard, name)
}

// troubled says that the pods of a node need to be looked at one by one.
func (n *nodes) troubled(name string) bool {
	node, ok := n.nodes.Get("", name)
	return !ok || nodeReady(node) != corev1.ConditionTrue || slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoExecute
	})
}

// leaseSeconds returns how long a lease lasts.
func leaseSeconds(l *coordinationv1.Lease) int32 {
	if l.Spec.LeaseDurationSeconds == nil {
		return 0
	}
	return *l.Spec.LeaseDurationSeconds
}

// silence returns for how much longer a node may be silent: for the grace that all have,
// or for as long as its Lease lasts, if that is longer.
func (n *nodes) silence(name string, now time.Time) time.Duration {
	grace := n.grace
	if l, ok := n.leases.Get(corev1.NamespaceNodeLease, name); ok {
		grace = max(grace, time.Duration(leaseSeconds(l))*time.Second)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	heard, ok := n.heard[name]
	if !ok {
		heard = now // it begins now
		n.heard[name] = now
	}
	return heard.Add(grace).Sub(now)
}

func (n *nodes) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	node, ok := n.nodes.Get("", key.Name)
	if !ok {
		return n.gone(ctx, key.Name)
	}
	n.mu.Lock()
	delete(n.missing, key.Name)
	n.mu.Unlock()

	now := time.Now()
	left := n.silence(node.Name, now)
	var err error
	if left <= 0 && nodeReady(node) != corev1.ConditionUnknown {
		if node, err = n.lose(ctx, node, now); err != nil || node == nil {
			return controller.Result{}, err
		}
	}
	if node, err = n.taint(ctx, node, now); err != nil || node == nil {
		return controller.Result{}, err
	}
	after, err := n.lookAfterPods(ctx, node)
	if left > 0 && (after == 0 || left < after) {
		after = left
	}
	return controller.Result{After: after}, err
}

// lose sets the conditions of a lost node to Unknown. It returns the node as it is then, or nil if it was deleted.
func (n *nodes) lose(ctx context.Context, node *corev1.Node, now time.Time) (*corev1.Node, error) {
	fresh := node.DeepCopy()
	fresh.Status.Conditions = lost(node, now)
	return n.written(ctx, node, func() (*corev1.Node, error) {
		written, err := client.Nodes.Update(ctx, n.client, fresh, "status")
		if err == nil {
			n.events.Event(node, corev1.EventTypeNormal, "NodeNotReady", "Node %s status is now: NodeNotReady", node.Name)
		}
		return written, err
	})
}

// taint writes the taints that follow from the conditions.
func (n *nodes) taint(ctx context.Context, node *corev1.Node, now time.Time) (*corev1.Node, error) {
	taints := taintsFor(node, now)
	if equality.Semantic.DeepEqual(taints, node.Spec.Taints) {
		return node, nil
	}
	fresh := node.DeepCopy()
	fresh.Spec.Taints = taints
	return n.written(ctx, node, func() (*corev1.Node, error) { return client.Nodes.Update(ctx, n.client, fresh, "") })
}

func (n *nodes) written(ctx context.Context, node *corev1.Node, write func() (*corev1.Node, error)) (*corev1.Node, error) {
	fresh, err := write()
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("write node %s: %w", node.Name, err)
	}
	return fresh, n.nodes.Await(ctx, fresh.ResourceVersion)
}

// lookAfterPods takes the pods of a failing node out of service and evicts those whose time
// has come. It returns when the next one's comes.
func (n *nodes) lookAfterPods(ctx context.Context, node *corev1.Node) (after time.Duration, err error) {
	if !n.troubled(node.Name) {
		n.mu.Lock()
		none := len(n.waiting) == 0
		n.mu.Unlock()
		if !none {
			for _, pod := range n.pods.ByIndex(byNode, node.Name) {
				n.wait(pod, false)
			}
		}
		return 0, nil
	}
	unready := nodeReady(node) == corev1.ConditionUnknown || nodeReady(node) == corev1.ConditionFalse
	var errs []error
	for _, pod := range n.pods.ByIndex(byNode, node.Name) {
		if pod.DeletionTimestamp != nil && unready && outOfService(node) {
			errs = append(errs, n.collect(ctx, pod, nil))
			continue
		}
		if podstate.Finished(pod) {
			continue
		}
		if unready && podstate.Ready(pod) {
			errs = append(errs, n.setCondition(ctx, pod, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse}))
			n.events.Event(pod, corev1.EventTypeWarning, "NodeNotReady", "Node is not ready")
		}
		if pod.DeletionTimestamp != nil {
			continue
		}
		now := time.Now()
		due, ever := evictAt(pod, node.Spec.Taints, now)
		n.wait(pod, ever)
		switch wait := due.Sub(now); {
		case !ever:
		case wait > 0:
			if after == 0 || wait < after {
				after = wait
			}
		default:
			errs = append(errs, n.evict(ctx, pod))
		}
	}
	return after, errors.Join(errs...)
}

// wait records whether a pod will be evicted, and reports if it will not be any more.
func (n *nodes) wait(pod *corev1.Pod, will bool) {
	n.mu.Lock()
	was := n.waiting[pod.UID]
	if will {
		n.waiting[pod.UID] = true
	} else {
		delete(n.waiting, pod.UID)
	}
	n.mu.Unlock()
	if was && !will && pod.DeletionTimestamp == nil {
		n.events.Event(pod, corev1.EventTypeNormal, "TaintManagerEviction", "Cancelling deletion of Pod %s/%s", pod.Namespace, pod.Name)
	}
}

func (n *nodes) evict(ctx context.Context, pod *corev1.Pod) error {
	n.events.Event(pod, corev1.EventTypeNormal, "TaintManagerEviction", "Marking for deletion Pod %s/%s", pod.Namespace, pod.Name)
	err := n.setCondition(ctx, pod, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, ObservedGeneration: pod.Generation,
		Reason: "DeletionByTaintManager", Message: "Taint manager: deleting due to NoExecute taint",
	})
	if err != nil {
		return err
	}
	return n.remove(ctx, n.client, pod, nil)
}

// setCondition patches one condition of a pod's status.
func (n *nodes) setCondition(ctx context.Context, pod *corev1.Pod, c corev1.PodCondition) error {
	return n.patchStatus(ctx, n.client, pod, map[string]any{"conditions": []any{patchOf(c)}})
}

func patchOf(c corev1.PodCondition) map[string]any {
	m := map[string]any{"type": c.Type, "status": c.Status, "lastTransitionTime": metav1.NewTime(time.Now().Truncate(time.Second))}
	if c.Reason != "" {
		m["reason"], m["message"] = c.Reason, c.Message
	}
	if c.ObservedGeneration != 0 {
		m["observedGeneration"] = c.ObservedGeneration
	}
	return m
}

func (n *nodes) patchStatus(ctx context.Context, as client.Interface, pod *corev1.Pod, status map[string]any) error {
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return err
	}
	now, err := client.Pods.Patch(ctx, as, pod.Namespace, pod.Name, types.StrategicMergePatchType, data, "status")
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil // it is gone, or another by now
	case err != nil:
		return fmt.Errorf("patch status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return n.pods.Await(ctx, now.ResourceVersion)
}

// remove deletes a pod with the given grace; nil leaves that to the pod.
func (n *nodes) remove(ctx context.Context, as client.Interface, pod *corev1.Pod, grace *int64) error {
	err := client.Pods.Delete(ctx, as, pod.Namespace, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: grace, Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return n.pods.AwaitDeletion(ctx, pod)
}

// collect deletes a pod at once. One that has not finished fails first, with a condition unless that is nil.
func (n *nodes) collect(ctx context.Context, pod *corev1.Pod, c *corev1.PodCondition) error {
	if !podstate.Finished(pod) {
		status := map[string]any{"phase": corev1.PodFailed}
		if c != nil {
			status["conditions"] = []any{patchOf(*c)}
		}
		if err := n.patchStatus(ctx, n.podGC, pod, status); err != nil {
			return err
		}
	}
	return n.remove(ctx, n.podGC, pod, new(int64(0)))
}

// gone deletes the pods of a node that does not exist, after a while.
func (n *nodes) gone(ctx context.Context, name string) (controller.Result, error) {
	pods := n.pods.ByIndex(byNode, name)
	n.mu.Lock()
	since, known := n.missing[name]
	switch {
	case len(pods) == 0:
		delete(n.missing, name)
	case !known:
		since = time.Now()
		n.missing[name] = since
	}
	n.mu.Unlock()
	if len(pods) == 0 {
		return controller.Result{}, nil
	}
	if left := time.Until(since.Add(goneGrace)); left > 0 {
		return controller.Result{After: left}, nil
	}
	if _, err := client.Nodes.Get(ctx, n.podGC, "", name); !apierrors.IsNotFound(err) { // nodelifecycle-N1
		return controller.Result{}, cmp.Or(err, controller.Again("the node exists"))
	}
	var errs []error
	for _, pod := range pods {
		errs = append(errs, n.collect(ctx, pod, &corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, ObservedGeneration: pod.Generation, Reason: "DeletionByPodGC", Message: "PodGC: node no longer exists",
		}))
	}
	return controller.Result{}, errors.Join(errs...)
}

// removeFinished deletes the oldest finished pods beyond the limit.
func (n *nodes) removeFinished(ctx context.Context, _ controller.Key) (controller.Result, error) {
	pods := n.pods.ByIndex(byFinish, finished)
	surplus := len(pods) - n.limit
	if surplus <= 0 {
		return controller.Result{}, nil
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	none := int64(0)
	var errs []error
	for _, pod := range pods[:surplus] {
		errs = append(errs, n.remove(ctx, n.podGC, pod, &none))
	}
	return controller.Result{}, errors.Join(errs...)
}
