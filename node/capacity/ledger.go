package capacity

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/internal/reserved"
	"github.com/sampan-io/sampan/node/cpumanager"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/node/metrics"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// A Pod is a pod of the node with a worker. Its methods do not block, except for AwaitEnd, and may be called under the lock of the
// ledger.
type Pod interface {
	// Look has the worker compare the processors of its containers with the ones in the ledger.
	Look()
	// Regrant has the worker ask again for the resources of the pod's specification: they have been granted.
	Regrant()
	// Preempt ends the pod within its own grace period because a critical pod needs its resources.
	Preempt()
	// Grace returns how long the pod may take to end.
	Grace() time.Duration
	// AwaitEnd waits until the pod has ended, or until ctx is cancelled.
	AwaitEnd(ctx context.Context)
}

// Node holds what the ledger needs of the node.
type Node struct {
	Name     string
	OwnPorts reserved.Ports // of the cluster's own servers on this host
	// Refuse returns why the node can't run a pod at all, whatever resources are left; nil if it can. It is called under the lock of the
	// ledger, and does no I/O.
	Refuse func(pod *corev1.Pod) *lifecycle.Rejection
	// Features returns the features that the node declares, see package nodefeature.
	Features func() []string
	Metrics  *metrics.Metrics
	Log      *slog.Logger
}

// A Ledger has the pods that take resources of the node. All that is decided about these, the admission of pods, their processors, and
// resizes that wait, is decided under one lock.
type Ledger struct {
	node Node
	cpus *cpumanager.Static // its content is guarded by mu; nil: the policy is none; written before any pod is admitted

	mu    sync.Mutex
	pods  map[types.UID]Pod // guarded by mu; those with workers
	taken plugin.Cluster    // guarded by mu; the active pods, and what they take of the node
	// shared are the processors of containers without exclusive ones; empty: those of the machine.
	shared string // guarded by mu
	// deferred are the resizes of pods that wait for resources.
	deferred map[types.UID]*deferral // guarded by mu
	// victims are the pods that end for a critical pod, by its UID, until its worker has waited for them.
	victims    map[types.UID][]Pod        // guarded by mu
	closing    bool                       // guarded by mu; the machine is shutting down
	conditions []corev1.NodeConditionType // guarded by mu; of pressure, that are True
}

// New returns a ledger without pods.
func New(n Node) *Ledger {
	return &Ledger{node: n, pods: map[types.UID]Pod{}, deferred: map[types.UID]*deferral{}, victims: map[types.UID][]Pod{}}
}

// Join adds a pod whose worker begins.
func (l *Ledger) Join(uid types.UID, pod Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pods[uid] = pod
}

// Leave ends the count of a pod whose worker has ended, and frees its processors.
func (l *Ledger) Leave(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pods, uid)
	l.freed(uid, metrics.PodsRemoved)
	l.freeProcessors(uid)
}

// Uncount ends the count of a pod that the API server has deleted. Its processors are free when its worker ends.
func (l *Ledger) Uncount(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.freed(uid, metrics.PodsRemoved)
}

// Free ends the count of a pod whose containers have ended.
func (l *Ledger) Free(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.freed(uid, metrics.PodTerminated)
	l.freeProcessors(uid)
}

// Closing reports whether the machine is shutting down.
func (l *Ledger) Closing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closing
}

// SetClosing has pods rejected, or not any more, because the machine is shutting down.
func (l *Ledger) SetClosing(closing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closing = closing
}

// Pressure returns which conditions of pressure hold.
func (l *Ledger) Pressure() []corev1.NodeConditionType {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conditions
}

// SetPressure makes the conditions of pressure those given, and returns the earlier ones.
func (l *Ledger) SetPressure(conditions []corev1.NodeConditionType) (old []corev1.NodeConditionType) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old, l.conditions = l.conditions, conditions
	return old
}
