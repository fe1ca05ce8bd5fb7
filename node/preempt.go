package node

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/node/eviction"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// Preemption: a critical pod that lacks nothing but resources is admitted all the same, and pods that it may preempt end for it.
// They no longer count from the decision on, so that two critical pods choose different ones. The worker of the critical pod
// waits until they have ended, or until their grace periods and evictionWait are over.

// makeRoom decides again about a critical pod that was rejected, and remembers the pods that have to end for it. The caller holds
// mu.
func (n *Node) makeRoom(pod *plugin.Pod, rejection *lifecycle.Rejection) *lifecycle.Rejection {
	node := n.taken.Snapshot.Node(n.opts.Name)
	var needs eviction.Needs
	lifecycle.Lacking(pod, node, func(name corev1.ResourceName, amount int64) {
		needs = append(needs, eviction.Need{Resource: name, Amount: amount})
	})
	if len(needs) == 0 || !eviction.Critical(pod.Pod) {
		return rejection
	}
	if other := lifecycle.AdmitWithout(pod, node); other != nil {
		return other
	}
	var list []eviction.Candidate
	for _, p := range node.Pods {
		if w := n.workers[p.UID]; w != nil {
			list = append(list, eviction.Candidate{Pod: p.Pod, Class: lifecycle.QOS(p.Pod)})
		}
	}
	victims, suffice := eviction.Preempt(pod.Pod, list, needs)
	if !suffice {
		return &lifecycle.Rejection{
			Reason: "UnexpectedAdmissionError",
			Message: fmt.Sprintf("Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: "+
				"no set of running pods found to reclaim resources: %v", needs),
		}
	}
	for _, v := range victims {
		w := n.workers[v.UID]
		n.taken.Unplace(v.UID)
		n.rooms[pod.UID] = append(n.rooms[pod.UID], w)
		n.metrics.Pods.Preemptions.WithLabelValues(string(needs[0].Resource)).Inc()
		w.preempt()
	}
	return nil
}

// preempt ends a pod within its own grace period because a critical pod needs its resources. It may be called from any goroutine.
func (w *worker) preempt() {
	w.log.Info("ending a pod for a critical one")
	w.post(func() {
		if w.view.Finished() || w.view.Deleting() {
			return
		}
		w.event(corev1.EventTypeWarning, eviction.Preempting, eviction.PreemptedMessage)
		w.fail(lifecycle.Verdict{Reason: eviction.Preempting, Message: eviction.PreemptedMessage, Disrupted: true, Because: eviction.PreemptedBecause}, time.Now())
	})
}

// awaitRoom waits until the pods have ended that end for this one.
func (w *worker) awaitRoom(ctx context.Context) {
	w.n.mu.Lock()
	victims := w.n.rooms[w.uid]
	delete(w.n.rooms, w.uid)
	w.n.mu.Unlock()
	if len(victims) == 0 {
		return
	}
	var longest time.Duration
	for _, v := range victims {
		state, _ := v.status()
		longest = max(longest, (&lifecycle.View{Pod: state.pod}).Grace())
	}
	limited, cancel := context.WithTimeout(ctx, longest+evictionWait)
	defer cancel()
	for _, v := range victims {
		w.n.awaitEnd(limited, v)
	}
}
