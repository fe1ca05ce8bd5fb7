package node

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A turn of a worker, and a write of a status, cost as much as the pod has containers, and there are some for each
// container that starts or ends. For pods with many containers several events are therefore handled by one turn, several
// changes are written at once, and several containers are started before the worker decides again: otherwise the cost would be
// the square of their number. The containers themselves start and end one after the other in any case.
//
// Where many such pods share a busy machine, each turn and each write takes longer, and so do the pauses: the pods start
// containers instead of describing how few have started.
const (
	manyContainers = 50 // pods with more of them are slowed down
	startsAtOnce   = 16 // containers of such a pod
)

// A pace is how long the worker of a pod with many containers waits before it repeats something.
type pace struct {
	perContainer time.Duration
	times        time.Duration // how many times as long as it took
	most         time.Duration
}

var (
	turnPace   = pace{200 * time.Microsecond, 5, 2 * time.Second} // for the largest pods on an idle machine 100 ms
	reportPace = pace{time.Millisecond, 50, 10 * time.Second}     // 500 ms
)

// after returns the pause after what took so long; 0 for usual pods.
func (p pace) after(pod *corev1.Pod, took time.Duration) time.Duration {
	n := containersIn(pod)
	if n <= manyContainers {
		return 0
	}
	return min(max(time.Duration(n)*p.perContainer, took*p.times), p.most)
}

// containersIn returns the number of containers of a pod, of all kinds.
func containersIn(pod *corev1.Pod) int {
	return len(pod.Spec.InitContainers) + len(pod.Spec.Containers) + len(pod.Spec.EphemeralContainers)
}

// batch returns how many containers may be started before the worker decides again.
func (w *worker) batch() int {
	if containersIn(w.view.Pod) <= manyContainers {
		return 1
	}
	return startsAtOnce
}
