package node

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/node/podcgroup"
)

// configurable is a runtime that takes the pod network, and returns which cgroup driver it uses.
type configurable interface {
	RuntimeConfig(ctx context.Context) (*cri.LinuxRuntimeConfiguration, error)
	SetPodCIDR(ctx context.Context, cidr string) error
}

// configure exchanges settings with a runtime that others configure: the pod network, and the cgroup driver.
func (n *Node) configure(ctx context.Context) {
	rt, ok := n.opts.Runtime.(configurable)
	if !ok || n.opts.Owner == "" {
		return
	}
	if len(n.opts.PodCIDRs) > 0 {
		if err := rt.SetPodCIDR(ctx, strings.Join(n.opts.PodCIDRs, ",")); err != nil && ctx.Err() == nil {
			n.log.Warn("the container runtime did not accept the pod network", "network", n.opts.PodCIDRs, "err", err)
		}
	}
	if err := n.setDriver(ctx, rt); err != nil && status.Code(err) != codes.Unimplemented && ctx.Err() == nil {
		n.log.Warn("the settings of the container runtime could not be read", "err", err)
	}
}

// podCgroup returns the cgroup of a pod in the form that the runtime's cgroup driver wants; empty leaves it to the runtime.
func (n *Node) podCgroup(pod *corev1.Pod) string {
	if n.opts.CgroupRoot == "" {
		return ""
	}
	if n.abilities.cgroupDriver == cri.CgroupDriver_SYSTEMD {
		// systemd nests slices at each dash, so there are none in the parts.
		plain := strings.NewReplacer("-", "_", "/", "_")
		return plain.Replace(n.opts.CgroupRoot) + "-pod" + plain.Replace(string(pod.UID)) + ".slice"
	}
	return filepath.Join("/", n.opts.CgroupRoot, "pods", string(pod.UID))
}

// removePodCgroup removes the empty cgroup that another program's runtime leaves of a pod. systemd removes its slices itself.
func (n *Node) removePodCgroup(uid types.UID) {
	if n.opts.Owner == "" || n.opts.CgroupRoot == "" || n.abilities.cgroupDriver == cri.CgroupDriver_SYSTEMD || uid == "" {
		return
	}
	for _, dir := range podcgroup.Directories(filepath.Join(n.opts.CgroupRoot, "pods", string(uid))) {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			n.log.Debug("cgroup of a pod not removed", "dir", dir, "err", err)
		}
	}
}

// setDriver remembers which cgroup driver the runtime uses.
func (n *Node) setDriver(ctx context.Context, rt configurable) error {
	if n.config().CgroupDriver != "systemd" {
		n.abilities.cgroupDriver = cri.CgroupDriver_CGROUPFS // not the zero value
	}
	settings, err := rt.RuntimeConfig(ctx)
	if err == nil {
		n.abilities.cgroupDriver = settings.GetCgroupDriver()
	}
	return err
}
