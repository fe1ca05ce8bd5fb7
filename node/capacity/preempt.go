package capacity

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/node/eviction"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// Preemption: a critical pod that lacks nothing but resources is admitted all the same, and pods that it may preempt end for it.
// They no longer count from the decision on, so that two critical pods choose different ones. The worker of the critical pod
// waits until they have ended, or until their grace periods and EndLimit are over.

// EndLimit is how long the node waits for a pod to end after its grace period before it goes on without, as in Kubernetes.
const EndLimit = 30 * time.Second

// makeRoom decides again about a critical pod that was rejected, and remembers the pods that have to end for it. The caller holds
// mu.
func (l *Ledger) makeRoom(pod *plugin.Pod, rejection *lifecycle.Rejection) *lifecycle.Rejection {
	node := l.taken.Snapshot.Node(l.node.Name)
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
		if l.pods[p.UID] != nil {
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
		victim := l.pods[v.UID]
		l.taken.Unplace(v.UID)
		l.victims[pod.UID] = append(l.victims[pod.UID], victim)
		l.node.Metrics.Pods.Preemptions.WithLabelValues(string(needs[0].Resource)).Inc()
		victim.Preempt()
	}
	return nil
}

// AwaitRoom waits until the pods have ended that end for a critical pod, if there are any, or for a limited time.
func (l *Ledger) AwaitRoom(ctx context.Context, uid types.UID) {
	l.mu.Lock()
	victims := l.victims[uid]
	delete(l.victims, uid)
	l.mu.Unlock()
	if len(victims) == 0 {
		return
	}
	var longest time.Duration
	for _, v := range victims {
		longest = max(longest, v.Grace())
	}
	limited, cancel := context.WithTimeout(ctx, longest+EndLimit)
	defer cancel()
	for _, v := range victims {
		v.AwaitEnd(limited)
	}
}
