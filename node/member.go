package node

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/node/eviction"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/node/pressure"
)

// Look implements [capacity.Pod], as the following methods do.
func (w *worker) Look() { w.nudge() }

// Regrant has the worker ask for the resources of the specification.
func (w *worker) Regrant() { w.post(w.allocate) }

// Preempt ends a pod within its own grace period because a critical pod needs its resources. It may be called from any goroutine.
func (w *worker) Preempt() {
	w.log.Info("ending a pod for a critical one")
	w.post(func() {
		if w.view.Finished() || w.view.Deleting() {
			return
		}
		w.event(corev1.EventTypeWarning, eviction.Preempting, eviction.PreemptedMessage)
		w.fail(lifecycle.Verdict{Reason: eviction.Preempting, Message: eviction.PreemptedMessage, Disrupted: true, Because: eviction.PreemptedBecause}, time.Now())
	})
}

// Grace returns how long the pod may take to end.
func (w *worker) Grace() time.Duration {
	state, _ := w.Status()
	return (&lifecycle.View{Pod: state.Pod}).Grace()
}

// AwaitEnd waits until the pod has ended and the API server has its status, or until ctx is cancelled.
func (w *worker) AwaitEnd(ctx context.Context) { w.n.awaitEnd(ctx, w) }

// Evict ends the pod because the node lacks something, or because the pod uses more than it may.
func (w *worker) Evict(signal string, verdict lifecycle.Verdict) {
	w.post(func() {
		if w.view.Finished() {
			return
		}
		w.n.metrics.Pods.Evictions.WithLabelValues(signal).Inc()
		w.event(corev1.EventTypeWarning, verdict.Reason, "%s", verdict.Message)
		w.fail(verdict, time.Now())
	})
}

// evictables yields all pods that have workers.
func (n *Node) evictables(yield func(pressure.Pod) bool) {
	for _, w := range n.allWorkers() {
		if !yield(w) {
			return
		}
	}
}

// evictableOf returns the pod with a UID.
func (n *Node) evictableOf(uid types.UID) (pressure.Pod, bool) {
	n.workers.mu.Lock()
	defer n.workers.mu.Unlock()
	w := n.workers.all[uid]
	return w, w != nil
}
