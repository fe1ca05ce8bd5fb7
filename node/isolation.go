package node

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/sorting"
	"github.com/sampan-io/sampan/node/crispec"
	"github.com/sampan-io/sampan/node/deviceplugin"
	"github.com/sampan-io/sampan/node/kubeletconfig"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/node/podcgroup"
)

// openIsolation finds out what pods can be isolated with: which users they may have, and their cgroups.
func (n *Node) openIsolation(ctx context.Context) error {
	if n.opts.RootDir == "" {
		return nil // a simulated runtime has no processes
	}
	status, err := n.opts.Runtime.Status(ctx)
	if err != nil {
		return fmt.Errorf("features of the container runtime: %w", err)
	}
	policy := status.GetFeatures().GetSupplementalGroupsPolicy()
	n.abilities.handlers, n.abilities.features = status.GetRuntimeHandlers(), &corev1.NodeFeatures{SupplementalGroupsPolicy: &policy}
	damaged, err := n.isolation.users.open(func(uid types.UID) (uint32, error) { return n.sandboxUsers(ctx, uid) })
	for _, d := range damaged {
		n.log.Error("the users of a pod are not known: it keeps those of its sandbox, or gets other ones", "err", d)
	}
	if err != nil {
		return err
	}
	n.abilities.appArmor = appArmorEnabled()
	n.openMemoryQoS()
	n.machine.noQuota = !*n.config().CPUCFSQuota
	if n.opts.CgroupRoot == "" {
		n.openSwap("/")
		return nil
	}
	root := podcgroup.Find(n.opts.CgroupRoot)
	if n.opts.Owner != "" && root == "" {
		root = filepath.Join("/", n.opts.CgroupRoot) // the runtime of others has no cgroup of this name before its first pod
	}
	if n.opts.Owner != "" && n.abilities.cgroupDriver == cri.CgroupDriver_SYSTEMD {
		n.openSwap("/")
		n.log.Warn("the container runtime uses systemd's cgroup driver: it limits each container, and nothing limits pods as a whole")
		return nil
	}
	n.openSwap(cmp.Or(root, "/"))
	if root == "" {
		n.log.Warn("the runtime has no cgroup of this name: it limits each container, and nothing limits pods as a whole", "cgroup", n.opts.CgroupRoot)
		return nil
	}
	cgroups, err := podcgroup.Open(root, crispec.NodeResources(n.config().Enforced(n.machine.capacity)), *n.config().PodPidsLimit)
	if err != nil {
		// Pods run, as on a machine that lacks a controller.
		n.log.Warn("cgroups of pods can't be made: nothing limits pods as a whole", "err", err)
		return nil
	}
	n.isolation.cgroups = cgroups
	return nil
}

// appArmorEnabled reports whether the kernel enforces AppArmor profiles.
func appArmorEnabled() bool {
	b, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	return err == nil && strings.HasPrefix(string(b), "Y")
}

// isolated returns why this node cannot give a pod the isolation that it asks for, in kubelet's words; nil if it can.
func (n *Node) isolated(pod *corev1.Pod) *lifecycle.Rejection {
	if err := lifecycle.Sysctls(pod, n.opts.AllowedUnsafeSysctls); err != nil {
		return &lifecycle.Rejection{Reason: "SysctlForbidden", Message: "forbidden sysctl: " + err.Error()}
	}
	if !n.abilities.appArmor && lifecycle.NeedsAppArmor(&pod.Spec) {
		return &lifecycle.Rejection{Reason: "AppArmor", Message: "Cannot enforce AppArmor: AppArmor is not enabled on the host"}
	}
	return nil
}

// refuse ends a pod that was admitted, and that the node turned out to be unable to run.
func (w *worker) refuse(r lifecycle.Rejection) func() {
	w.event(corev1.EventTypeWarning, r.Reason, "%s", r.Message)
	return func() { w.view.Memory.Failed = r.Verdict() }
}

// devicesChanged is called when plug-ins have reported other devices, or another health of them.
func (n *Node) devicesChanged() {
	n.registrar.Outdated()
	n.nudge(n.plugins.devices.Pods())
}

// deviceHolder returns the state of a pod that has devices.
func (n *Node) deviceHolder(uid types.UID) deviceplugin.Holding {
	n.workers.mu.Lock()
	defer n.workers.mu.Unlock()
	switch w := n.workers.all[uid]; {
	case w != nil && w.leaves():
		return deviceplugin.Ending
	case w != nil || n.workers.arrivals != nil:
		return deviceplugin.Active
	case n.workers.found[uid] != nil:
		return deviceplugin.Ending
	}
	return deviceplugin.Gone
}

// releaseDevices takes back the devices of a pod whose containers have ended for good, before the API server learns
// that.
func (w *worker) releaseDevices() {
	making := w.busy["start"] != nil // maybe a container
	if w.n.plugins.devices != nil && w.view.Finished() && !w.view.Alive() && !making {
		w.n.plugins.devices.Release(w.uid)
	}
}

// serveDevicePlugins serves device plug-ins until ctx is cancelled. Without them the node goes on.
func (n *Node) serveDevicePlugins(ctx context.Context) error {
	if err := n.plugins.devices.Run(ctx); err != nil {
		n.log.Error("device plug-ins can't register at this node", "err", err)
		<-ctx.Done()
	}
	return nil
}

// withDevices adds the resources of device plug-ins to lists of resources.
func (n *Node) withDevices(capacity, allocatable corev1.ResourceList) (corev1.ResourceList, corev1.ResourceList) {
	if n.plugins.devices == nil {
		return capacity, allocatable
	}
	all, usable := n.plugins.devices.Resources()
	if len(all) == 0 {
		return capacity, allocatable
	}
	capacity, allocatable = maps.Clone(capacity), maps.Clone(allocatable)
	maps.Copy(capacity, all)
	maps.Copy(allocatable, usable)
	return capacity, allocatable
}

// handler returns the runtime's handler for the pod's RuntimeClass.
func (n *Node) handler(ctx context.Context, pod *corev1.Pod) (string, error) {
	name := pod.Spec.RuntimeClassName
	if name == nil || *name == "" {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookup)
	defer cancel()
	class, err := client.RuntimeClasses.Get(ctx, n.opts.Client, "", *name)
	if apierrors.IsNotFound(err) {
		return "", err
	}
	if err != nil {
		return "", fmt.Errorf("failed to get RuntimeClass %q: %w", *name, err)
	}
	return class.Handler, nil
}

// unified returns the files in the cgroups of containers, beside those of their limits.
func (n *Node) unified() map[string]string {
	if single := n.config().SingleProcessOOMKill; n.isolation.cgroups == nil || !podcgroup.Unified() || single != nil && *single {
		return nil
	}
	return map[string]string{"memory.oom.group": "1"} // all processes of a container end together
}

// openMemoryQoS reads how the memory of pods is throttled and protected.
func (n *Node) openMemoryQoS() {
	c := n.config()
	n.machine.qos = crispec.MemoryQoS{
		Unified: podcgroup.Unified(), Protect: c.MemoryReservationPolicy == kubeletconfig.TieredReservation,
		Allocatable: n.machine.allocatable.Memory().Value(),
	}
	if f := c.MemoryThrottlingFactor; f != nil {
		n.machine.qos.Factor = *f
	}
	if !n.machine.qos.Unified && (n.machine.qos.Protect || n.machine.qos.Factor > 0) {
		n.log.Warn("memoryThrottlingFactor and memoryReservationPolicy have no effect: they need cgroup v2")
	}
}

// handlers are the runtime's handlers, as its status names them.
type handlers []*cri.RuntimeHandler

// feature reports whether a handler has a feature.
func (h handlers) feature(name string, has func(*cri.RuntimeHandlerFeatures) bool) bool {
	i := slices.IndexFunc(h, func(r *cri.RuntimeHandler) bool { return r.GetName() == name })
	return i >= 0 && has(h[i].GetFeatures())
}

// status describes the handlers in the status of the node.
func (h handlers) status() []corev1.NodeRuntimeHandler {
	var list []corev1.NodeRuntimeHandler
	for _, r := range h {
		readOnly, users := r.GetFeatures().GetRecursiveReadOnlyMounts(), r.GetFeatures().GetUserNamespaces()
		list = append(list, corev1.NodeRuntimeHandler{
			Name:     r.GetName(),
			Features: &corev1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: &readOnly, UserNamespaces: &users},
		})
	}
	sorting.Slice(list, func(a, b corev1.NodeRuntimeHandler) int { return strings.Compare(a.Name, b.Name) })
	return list
}
