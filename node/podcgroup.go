package node

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// podCgroup returns the cgroup of a pod in the form that the runtime's cgroup driver wants; empty leaves it to the runtime.
func (n *Node) podCgroup(pod *corev1.Pod) string {
	if n.opts.CgroupRoot == "" {
		return ""
	}
	if n.driver == cri.CgroupDriver_SYSTEMD {
		// systemd nests slices at each dash, so there are none in the parts.
		plain := strings.NewReplacer("-", "_", "/", "_")
		return plain.Replace(n.opts.CgroupRoot) + "-pod" + plain.Replace(string(pod.UID)) + ".slice"
	}
	return filepath.Join("/", n.opts.CgroupRoot, "pods", string(pod.UID))
}

// cgroupMount is where systems mount cgroups: of version 2 at the directory itself, of version 1 each hierarchy below it.
const cgroupMount = "/sys/fs/cgroup"

// cgroupDirs returns the directories of a cgroup in all hierarchies.
func cgroupDirs(path string) []string {
	dirs := []string{filepath.Join(cgroupMount, path)}
	more, err := filepath.Glob(filepath.Join(cgroupMount, "*", path))
	if err != nil {
		return dirs
	}
	return append(dirs, more...)
}

// removePodCgroup removes the empty cgroup that another program's runtime leaves of a pod. systemd removes its slices itself.
func (n *Node) removePodCgroup(uid types.UID) {
	if n.opts.Owner == "" || n.opts.CgroupRoot == "" || n.driver == cri.CgroupDriver_SYSTEMD || uid == "" {
		return
	}
	for _, dir := range cgroupDirs(filepath.Join(n.opts.CgroupRoot, "pods", string(uid))) {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			n.log.Debug("cgroup of a pod not removed", "dir", dir, "err", err)
		}
	}
}

// removeCgroups removes a cgroup and the empty ones below it.
func removeCgroups(root string) {
	for _, dir := range cgroupDirs(root) {
		var all []string
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				all = append(all, path)
			}
			return nil
		})
		for i := len(all) - 1; i >= 0; i-- {
			_ = os.Remove(all[i]) // one with processes stays
		}
	}
}

// setDriver remembers which cgroup driver the runtime uses.
func (n *Node) setDriver(ctx context.Context, rt configurable) error {
	if n.config().CgroupDriver != "systemd" {
		n.driver = cri.CgroupDriver_CGROUPFS // not the zero value
	}
	settings, err := rt.RuntimeConfig(ctx)
	if err == nil {
		n.driver = settings.GetCgroupDriver()
	}
	return err
}
