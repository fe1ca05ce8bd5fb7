package node

import (
	"cmp"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/static"
)

// statics are the static pods of a node. Its fields are guarded by workers.mu.
type statics struct {
	wanted  map[types.NamespacedName]*corev1.Pod
	running map[types.NamespacedName]*worker
	mirrors map[types.NamespacedName]*corev1.Pod // the mirror pods that there are
	ran     map[types.NamespacedName]bool        // the agent has run a pod of this name
	again   map[types.NamespacedName]bool        // the pod that runs is ending, and is wanted again with the same UID
	// Outdated are the mirror pods of earlier runs, by UID. They are deleted, and show no status.
	outdated map[types.NamespacedName]types.UID
	wake     run.Bell // rung when mirror pods may have to be created or deleted
}

// wantStatic makes the static pods those given.
func (n *Node) wantStatic(wanted map[types.NamespacedName]*corev1.Pod) {
	n.workers.mu.Lock()
	defer n.workers.mu.Unlock()
	n.workers.statics.wanted = wanted
	n.syncStatic()
}

// staticPods returns the static pods.
func (n *Node) staticPods() static.Pods {
	n.workers.mu.Lock()
	defer n.workers.mu.Unlock()
	s := &n.workers.statics
	now := static.Pods{All: maps.Clone(s.wanted), Mirrored: maps.Clone(s.wanted), Outdated: maps.Clone(s.outdated)}
	for key := range now.Mirrored {
		if w := s.running[key]; w != nil && w.leaving() {
			delete(now.Mirrored, key) // it will be another run
		}
	}
	return now
}

// staticReader reads the directory of static pods.
func (n *Node) staticReader() *static.Reader {
	return &static.Reader{
		Dir: n.opts.StaticPodPath, Node: n.opts.Name, ReadPod: n.opts.ReadPod, Found: n.wantStatic, Event: n.event, Log: n.log,
	}
}

// mirrors keeps the mirror pods of static pods.
func (n *Node) mirrors() *static.Mirrors {
	return &static.Mirrors{
		Node: n.opts.Name, Client: n.opts.Client, Pods: n.api.pods, Self: n.api.self, Ready: n.Ready(), Wake: n.workers.statics.wake,
		Static: n.staticPods, Log: n.log,
	}
}

// syncStatic starts the workers of wanted static pods and stops the others. The caller holds mu.
func (n *Node) syncStatic() {
	s := &n.workers.statics
	for key, w := range s.running {
		if n.workers.all[w.uid] != w {
			delete(s.running, key)
		} else if pod := s.wanted[key]; pod == nil || pod.UID != w.uid {
			w.leave()
		}
	}
	maps.DeleteFunc(s.again, func(key types.NamespacedName, _ bool) bool { return s.wanted[key] == nil })
	for key, pod := range s.wanted {
		if w := s.running[key]; w != nil {
			s.again[key] = w.uid == pod.UID && w.leaving()
			continue
		}
		if s.again[key] {
			n.metrics.Pods.Restarted.Inc()
		}
		delete(s.again, key)
		if m := s.mirrors[key]; m != nil && s.ran[key] {
			s.outdated[key] = m.UID
		}
		s.ran[key] = true
		rejection := n.capacity.Admit(pod, n.object())
		f := n.workers.found[pod.UID]
		delete(n.workers.found, pod.UID)
		w := n.startWorker(pod, f, rejection)
		w.mirrored(s.mirrorFor(w, s.mirrors[key]))
		s.running[key] = w
	}
	s.wake.Ring()
}

// mirrorFor returns a mirror pod if it is the copy of the static pod of a worker, and otherwise nil. Any user who may create pods can
// write the annotations of a mirror pod: it counts only with the name of the static pod as well.
// The caller holds workers.mu.
func (s *statics) mirrorFor(w *worker, pod *corev1.Pod) *corev1.Pod {
	if w == nil || pod == nil || static.RunOf(pod) != w.uid || s.outdated[w.key] == pod.UID {
		return nil
	}
	return pod
}

// mirrorChanged is called when a mirror pod has changed; pod is nil if it was deleted. The caller holds mu.
func (n *Node) mirrorChanged(old, pod *corev1.Pod) {
	named := cmp.Or(pod, old)
	key := types.NamespacedName{Namespace: named.Namespace, Name: named.Name}
	if pod == nil {
		delete(n.workers.statics.mirrors, key)
		delete(n.workers.statics.outdated, key)
	} else {
		n.workers.statics.mirrors[key] = pod
	}
	if w := n.workers.statics.running[key]; w != nil {
		w.mirrored(n.workers.statics.mirrorFor(w, pod))
	}
	n.workers.statics.wake.Ring()
}

// mirrored passes the newest version of the mirror pod to the worker of a static pod; nil if there is none.
func (w *worker) mirrored(pod *corev1.Pod) {
	w.inbox.mu.Lock()
	w.inbox.mirror = pod
	w.inbox.mu.Unlock()
	w.nudge()
}
