package capacity

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"

	"github.com/sampan-io/sampan/node/cpumanager"
	"github.com/sampan-io/sampan/node/crispec"
	"github.com/sampan-io/sampan/node/lifecycle"
)

// Processors of containers, by the policy static of the CPU manager: the admission of a pod gives its containers processors, and the
// end of its containers frees them. Each container is created with its processors. When the shared ones change, every worker has the
// runtime move its containers. Exclusive processors are in an annotation of the container in the runtime, from which another agent
// goes on.

// Pin gives the ledger the processors of the node, before any pod is admitted.
func (l *Ledger) Pin(cpus *cpumanager.Static) { l.cpus = cpus }

// Pinning reports whether containers can have processors for themselves.
func (l *Ledger) Pinning() bool { return l.cpus != nil }

// AdoptProcessors reads from the runtime which containers have processors for themselves. Running ones come first: an earlier attempt
// may have had others.
func (l *Ledger) AdoptProcessors(containers []*cri.Container) {
	if l.cpus == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, running := range []bool{true, false} {
		for _, c := range containers {
			cpus, err := cpuset.Parse(c.GetAnnotations()[crispec.ExclusiveCPUs])
			if err == nil && running == (c.GetState() == cri.ContainerState_CONTAINER_RUNNING) {
				l.cpus.Adopt(types.UID(c.GetLabels()[crispec.PodUID]), c.GetLabels()[crispec.ContainerName], cpus)
			}
		}
	}
	l.repin()
}

// giveProcessors gives the containers of a pod their processors, and returns why the node rejects the pod otherwise, in the words
// of upstream's kubelet. The caller holds mu.
func (l *Ledger) giveProcessors(pod *corev1.Pod) *lifecycle.Rejection {
	if l.cpus == nil {
		return nil
	}
	pinned := l.cpus.Pins(pod.UID)
	err := l.cpus.Allocate(pod, lifecycle.ClassOf(pod))
	if err != nil || l.cpus.Pins(pod.UID) && !pinned {
		l.node.Metrics.Processors.Asked(err)
	}
	l.repin()
	if aligned := (*cpumanager.AlignmentError)(nil); errors.As(err, &aligned) {
		return &lifecycle.Rejection{Reason: "SMTAlignmentError", Message: err.Error()}
	}
	if err != nil {
		return &lifecycle.Rejection{Reason: "UnexpectedAdmissionError", Message: fmt.Sprintf("Allocate failed due to %v, which is unexpected", err)}
	}
	return nil
}

// freeProcessors frees the processors of a pod. The caller holds mu.
func (l *Ledger) freeProcessors(uid types.UID) {
	if l.cpus != nil && l.cpus.Pins(uid) {
		l.cpus.Release(uid)
		l.repin()
	}
}

// repin has the workers of all pods move their containers, if the shared processors have changed. The caller holds mu.
func (l *Ledger) repin() {
	shared := l.cpus.Shared().String()
	if shared == l.shared {
		return
	}
	l.shared = shared
	l.node.Metrics.Processors.Sized(l.cpus.Free(), l.cpus.Allocatable().Size())
	for _, p := range l.pods {
		p.Look()
	}
}

// Exclusive returns the processors that a container has for itself.
func (l *Ledger) Exclusive(uid types.UID, container string) cpuset.CPUSet {
	if l.cpus == nil {
		return cpuset.CPUSet{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cpus.Exclusive(uid, container)
}

// Pins reports whether a container of a pod has processors for itself.
func (l *Ledger) Pins(uid types.UID) bool {
	if l.cpus == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cpus.Pins(uid)
}

// AllocatableProcessors returns the processors that containers can have for themselves, free or not.
func (l *Ledger) AllocatableProcessors() cpuset.CPUSet {
	if l.cpus == nil {
		return cpuset.CPUSet{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cpus.Allocatable()
}

// Processors returns the processors of a container, and whether it has them for itself. They are empty if containers run on all.
func (l *Ledger) Processors(uid types.UID, container string) (cpus string, exclusive bool) {
	if l.cpus == nil {
		return "", false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if own := l.cpus.Exclusive(uid, container); !own.IsEmpty() {
		return own.String(), true
	}
	return l.shared, false
}
