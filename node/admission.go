package node

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/node/references"
	"github.com/sampan-io/sampan/node/static"
)

// arrive records a change of a pod before the first list is complete. The caller holds mu.
func (n *Node) arrive(old, pod *corev1.Pod) {
	if old != nil {
		delete(n.workers.arrivals, old.UID)
	}
	if pod != nil {
		n.workers.arrivals[pod.UID] = pod
	}
}

// takeArrivals gives the pods of the first list their workers.
func (n *Node) takeArrivals() {
	n.workers.mu.Lock()
	defer n.workers.mu.Unlock()
	var before, fresh []*corev1.Pod
	for _, pod := range n.workers.arrivals {
		if static.IsMirror(pod) {
			n.mirrorChanged(nil, pod)
		} else if n.admitted(pod) {
			before = append(before, pod)
		} else {
			fresh = append(fresh, pod)
		}
	}
	n.workers.arrivals = nil
	slices.SortFunc(fresh, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name))
	})
	for _, pod := range slices.Concat(before, fresh) {
		n.take(pod)
	}
}

// take gives a pod that is new to the agent a worker. The caller holds mu.
func (n *Node) take(pod *corev1.Pod) {
	if ended(pod) {
		return
	}
	var rejection *lifecycle.Rejection
	switch {
	case !n.admitted(pod):
		rejection = n.capacity.Admit(pod, n.object())
	case !podstate.Finished(pod):
		n.capacity.Adopt(pod)
	}
	f := n.workers.found[pod.UID]
	delete(n.workers.found, pod.UID)
	n.startWorker(pod, f, rejection)
}

// admitted reports whether a pod needs no decision: the node has admitted it before, or it is being deleted, or it
// has ended. The caller holds mu.
func (n *Node) admitted(pod *corev1.Pod) bool {
	return n.workers.found[pod.UID] != nil || pod.Status.StartTime != nil || !podstate.Active(pod)
}

// refuse returns why the node can't run a pod at all; nil if it can.
func (n *Node) refuse(pod *corev1.Pod) *lifecycle.Rejection {
	if rejection := lifecycle.Affordable(&pod.Spec); rejection != nil {
		return rejection
	}
	if rejection := references.TooMany(pod); rejection != nil {
		return rejection
	}
	if n.opts.RootDir == "" { // a simulated runtime has none
		return nil
	}
	if rejection := lifecycle.Supported(pod); rejection != nil {
		return rejection
	}
	return n.isolated(pod)
}

// object returns the last version of the Node object, with the resources that the agent computes. It must not be
// changed.
func (n *Node) object() *corev1.Node {
	node, ok := n.api.self.Get("", n.opts.Name)
	if !ok {
		node = n.registrar.Object()
	}
	return n.withCapacity(node)
}

func (n *Node) withCapacity(node *corev1.Node) *corev1.Node {
	current := *node
	current.Status.Allocatable = maps.Clone(node.Status.Allocatable)
	if current.Status.Allocatable == nil {
		current.Status.Allocatable = corev1.ResourceList{}
	}
	_, allocatable := n.withDevices(n.machine.capacity, n.machine.allocatable)
	maps.Copy(current.Status.Allocatable, allocatable)
	return &current
}

// decide carries out the rejection of the pod, if it is rejected. It is called once, before anything else is done for the
// pod.
func (w *worker) decide(ctx context.Context, rejection *lifecycle.Rejection) {
	if rejection != nil && rejection.Outdated() {
		rejection = w.n.reconsider(ctx, w)
	}
	w.n.capacity.AwaitRoom(ctx, w.uid)
	if rejection == nil || ctx.Err() != nil {
		return
	}
	w.n.metrics.Pods.Rejected(rejection.Reason)
	w.view.Memory.Failed = rejection.Verdict()
	w.event(corev1.EventTypeWarning, rejection.Reason, "%s", rejection.Message)
}

// reconsider decides again about a pod that was rejected for the labels of the node: the pod may have been bound after a
// change of the labels that the agent has not seen yet.
func (n *Node) reconsider(ctx context.Context, w *worker) *lifecycle.Rejection {
	limited, cancel := context.WithTimeout(ctx, lookup)
	defer cancel()
	node, err := client.Nodes.Get(limited, n.opts.Client, "", n.opts.Name)
	n.workers.mu.Lock()
	defer n.workers.mu.Unlock()
	if err != nil {
		w.log.Debug("node not read, labels seen last decide", "err", err)
		return n.capacity.Admit(w.view.Pod, n.object())
	}
	return n.capacity.Admit(w.view.Pod, n.withCapacity(node))
}
