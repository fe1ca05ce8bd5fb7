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

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/cpumanager"
	"github.com/sampan-io/sampan/node/criclient"
	"github.com/sampan-io/sampan/node/crispec"
	"github.com/sampan-io/sampan/node/kubeletconfig"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/node/podcgroup"
)

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
	n.capacity.Pin(cpus)
	return nil
}

// spec returns what the limits of a container depend on.
func (n *Node) spec(uid types.UID, container string) crispec.Capacity {
	spec := n.machine.spec()
	spec.CPUs, spec.Exclusive = n.capacity.Processors(uid, container)
	return spec
}

// pin has the runtime move the running containers that have other processors than they should. A failure is tried again after
// cpuManagerReconcilePeriod.
func (w *worker) pin(now time.Time) {
	if !w.n.capacity.Pinning() {
		return
	}
	for i := range w.view.Containers {
		c := &w.view.Containers[i]
		cpus := w.n.spec(w.uid, c.Name).CPUs
		a := lifecycle.Action{Verb: lifecycle.Update, Container: c.Name, ID: c.ID}
		if c.State != lifecycle.Running || cpus == w.attempts.pinned[c.ID] || w.busy[a.Key()] != nil {
			continue
		}
		w.begin(a, now, func(ctx context.Context) func() {
			err := w.n.opts.Runtime.UpdateContainerResources(ctx, a.ID, &cri.LinuxContainerResources{CpusetCpus: cpus})
			return func() {
				if err == nil || criclient.IsNotFound(err) {
					w.attempts.pinned[a.ID] = cpus
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
