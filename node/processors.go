package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/cpumanager"
	"github.com/sampan-io/sampan/node/criclient"
	"github.com/sampan-io/sampan/node/crispec"
	"github.com/sampan-io/sampan/node/kubeletconfig"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/node/podcgroup"
)

// Processors of containers, by the policy static of the CPU manager: the admission of a pod gives its containers processors, and the
// end of its containers frees them. Each container is created with its processors. When the shared ones change, every worker has the
// runtime move its containers. Exclusive processors are in an annotation of the container in the runtime, from which another agent
// goes on.

// openProcessors starts the policy static, if the configuration has it.
func (n *Node) openProcessors() error {
	c := n.config()
	if n.opts.RootDir == "" || c.CPUManagerPolicy != kubeletconfig.StaticPolicy { // a simulated runtime has no processes
		return nil
	}
	if root := cmp.Or(podcgroup.Find(n.opts.CgroupRoot), "/"); !podcgroup.LimitsProcessors(root) {
		return errors.New("cpuManagerPolicy is static, but the kernel does not let containers have processors: the cgroup controller cpuset is missing")
	}
	machine, err := cpumanager.Discover(cpumanager.Directory)
	if err != nil {
		return err
	}
	cpus, err := cpumanager.New(machine, c.CPUManager())
	if err != nil {
		return fmt.Errorf("cpuManagerPolicy is static, but the node is %w", err)
	}
	n.cpus = cpus
	return nil
}

// adoptProcessors reads from the runtime which containers have processors for themselves. Running ones come first: an earlier attempt
// may have had others.
func (n *Node) adoptProcessors(containers []*cri.Container) {
	if n.cpus == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, running := range []bool{true, false} {
		for _, c := range containers {
			cpus, err := cpuset.Parse(c.GetAnnotations()[crispec.ExclusiveCPUs])
			if err == nil && running == (c.GetState() == cri.ContainerState_CONTAINER_RUNNING) {
				n.cpus.Adopt(types.UID(c.GetLabels()[crispec.PodUID]), c.GetLabels()[crispec.ContainerName], cpus)
			}
		}
	}
	n.repin()
}

// giveProcessors gives the containers of a pod their processors, and returns why the node rejects the pod otherwise, in the words
// of upstream's kubelet. The caller holds mu.
func (n *Node) giveProcessors(pod *corev1.Pod) *lifecycle.Rejection {
	if n.cpus == nil {
		return nil
	}
	pinned := n.cpus.Pins(pod.UID)
	err := n.cpus.Allocate(pod, lifecycle.ClassOf(pod))
	if err != nil || n.cpus.Pins(pod.UID) && !pinned {
		n.metrics.Processors.Asked(err)
	}
	n.repin()
	if aligned := (*cpumanager.AlignmentError)(nil); errors.As(err, &aligned) {
		return &lifecycle.Rejection{Reason: "SMTAlignmentError", Message: err.Error()}
	}
	if err != nil {
		return &lifecycle.Rejection{Reason: "UnexpectedAdmissionError", Message: fmt.Sprintf("Allocate failed due to %v, which is unexpected", err)}
	}
	return nil
}

// freeProcessors frees the processors of a pod. The caller holds mu.
func (n *Node) freeProcessors(uid types.UID) {
	if n.cpus != nil && n.cpus.Pins(uid) {
		n.cpus.Release(uid)
		n.repin()
	}
}

// repin has the workers move their containers, if the shared processors have changed. The caller holds mu.
func (n *Node) repin() {
	shared := n.cpus.Shared().String()
	if shared == n.shared {
		return
	}
	n.shared = shared
	n.metrics.Processors.Sized(n.cpus.Free(), n.cpus.Allocatable().Size())
	for _, w := range n.workers {
		w.nudge()
	}
}

// exclusive returns the processors that a container has for itself.
func (n *Node) exclusive(uid types.UID, container string) cpuset.CPUSet {
	if n.cpus == nil {
		return cpuset.CPUSet{}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cpus.Exclusive(uid, container)
}

// pins reports whether a container of a pod has processors for itself.
func (n *Node) pins(uid types.UID) bool {
	if n.cpus == nil {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cpus.Pins(uid)
}

// spec returns what the limits of a container depend on.
func (n *Node) spec(uid types.UID, container string) crispec.Capacity {
	spec := n.machine.spec()
	if n.cpus == nil {
		return spec
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	spec.CPUs = n.shared
	if own := n.cpus.Exclusive(uid, container); !own.IsEmpty() {
		spec.CPUs, spec.Exclusive = own.String(), true
	}
	return spec
}

// pin has the runtime move the running containers that have other processors than they should. A failure is tried again after
// cpuManagerReconcilePeriod.
func (w *worker) pin(now time.Time) {
	if w.n.cpus == nil {
		return
	}
	for i := range w.view.Containers {
		c := &w.view.Containers[i]
		cpus := w.n.spec(w.uid, c.Name).CPUs
		a := lifecycle.Action{Verb: lifecycle.Update, Container: c.Name, ID: c.ID}
		if c.State != lifecycle.Running || cpus == w.pinned[c.ID] || w.busy[a.Key()] != nil {
			continue
		}
		w.begin(a, now, func(ctx context.Context) func() {
			err := w.n.opts.Runtime.UpdateContainerResources(ctx, a.ID, &cri.LinuxContainerResources{CpusetCpus: cpus})
			return func() {
				if err == nil || criclient.IsNotFound(err) {
					w.pinned[a.ID] = cpus
				} else if ctx.Err() == nil {
					w.log.Warn("processors of a container not changed, will try again", "container", a.Container, "processors", cpus, "err", err)
					w.holdBack(a.Key(), w.n.config().CPUManagerReconcilePeriod.Duration)
				}
			}
		})
	}
}

// holdBack holds back actions with a key for a time.
func (w *worker) holdBack(key string, pause time.Duration) {
	w.busy[key] = &operation{cancel: func() {}}
	w.ops.Go(func(ctx context.Context) {
		run.Pause(ctx, pause)
		w.post(func() { delete(w.busy, key) })
	})
}

// unresizable returns why the node will never grant a pod the resources of its specification; nil if there is no such reason. The
// words are upstream's.
func (w *worker) unresizable() *lifecycle.Rejection {
	pod, same := w.view.Pod, true
	lifecycle.EachResizable(pod, func(c *corev1.Container) {
		granted := w.view.Memory.Resize.Allocated[c.Name].Requests[corev1.ResourceCPU]
		same = same && granted.Cmp(c.Resources.Requests[corev1.ResourceCPU]) == 0
	})
	if same || w.n.config().CPUManagerPolicy != kubeletconfig.StaticPolicy || lifecycle.ClassOf(pod) != corev1.PodQOSGuaranteed {
		return nil
	}
	w.n.metrics.Resizes.Infeasible.WithLabelValues("guaranteed_pod_cpu_manager_static_policy").Inc()
	return &lifecycle.Rejection{Reason: corev1.PodReasonInfeasible, Message: `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`}
}
