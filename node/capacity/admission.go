package capacity

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/eviction"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// Admission: the node admits or rejects each pod that is new to the agent before anything else happens to it; see
// [lifecycle.Supported], [lifecycle.Affordable], [lifecycle.Allowed], [lifecycle.Featured] and [lifecycle.Admit]. Pods are
// checked one after the other, under the lock of the ledger.
// Ledger.taken counts the active pods: pods that have been admitted, that the API server still has, and that have not
// ended. The pods of the agent's first list are checked together, the oldest first. A pod that the node has admitted once
// is never checked again, even if the node has changed since: it has a sandbox, or a start time, which no pod has before
// its node has seen it.

// Admit decides about a pod, and counts it if it is admitted. For a critical pod it may end others (see
// [Ledger.AwaitRoom]). A panic is a rejection. Node is the Node object with the resources that the agent computes; it
// is not changed.
func (l *Ledger) Admit(pod *corev1.Pod, node *corev1.Node) (rejection *lifecycle.Rejection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := run.Catch(func() error {
		rejection = l.judge(pod, node)
		return nil
	})
	if err != nil {
		l.node.Log.Error("panic at the admission of a pod", "pod", pod.Namespace+"/"+pod.Name, "err", err)
		rejection = &lifecycle.Rejection{Reason: "UnexpectedAdmissionError", Message: err.Error()}
	}
	if rejection != nil {
		l.freeProcessors(pod.UID)
	}
	return rejection
}

// judge is Admit without its ends. The caller holds mu.
func (l *Ledger) judge(pod *corev1.Pod, node *corev1.Node) *lifecycle.Rejection {
	if l.closing {
		return &lifecycle.Rejection{Reason: "NodeShutdown", Message: "Pod was rejected as the node is shutting down."}
	}
	if rejection := l.node.Refuse(pod); rejection != nil {
		return rejection
	}
	if rejection := lifecycle.Pressed(pod, l.conditions); rejection != nil && !eviction.Critical(pod) {
		return rejection
	}
	if rejection := l.giveProcessors(pod); rejection != nil {
		return rejection
	}
	l.taken.SetNode(node)
	counted := plugin.NewPod(pod)
	if rejection := lifecycle.Allowed(counted, l.node.OwnPorts); rejection != nil {
		return rejection
	}
	if rejection := lifecycle.Featured(pod, l.node.Features()); rejection != nil {
		return rejection
	}
	rejection := lifecycle.Admit(counted, l.taken.Snapshot.Node(l.node.Name))
	if rejection != nil {
		rejection = l.makeRoom(counted, rejection)
	}
	if rejection == nil {
		l.taken.Place(counted, l.node.Name)
		l.node.Metrics.Pods.Admitted(pod)
	}
	return rejection
}

// Adopt counts a pod that the node has admitted before.
func (l *Ledger) Adopt(pod *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken.Place(plugin.NewPod(pod), l.node.Name)
	if refusal := l.giveProcessors(pod); refusal != nil {
		l.node.Log.Warn("a pod that runs gets no processors for itself", "pod", pod.Namespace+"/"+pod.Name, "err", refusal.Message)
	}
}
