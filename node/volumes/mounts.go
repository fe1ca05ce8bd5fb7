package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/internal/mounts"
	"github.com/sampan-io/sampan/node/crispec"
	"github.com/sampan-io/sampan/node/volume"
)

// Mounts returns the mounts of one attempt at a container.
func (f *Files) Mounts(pod *corev1.Pod, c *corev1.Container, attempt int32, ips []string, images map[string]string, env func(string) (string, bool)) ([]*cri.Mount, error) {
	if f.root == "" {
		return nil, nil
	}
	var list []*cri.Mount
	hosts := true
	for i, vm := range c.VolumeMounts {
		var m *cri.Mount
		var err error
		if id, ok := images[vm.Name]; ok {
			m, err = imageMount(id, vm, env)
		} else {
			m, err = f.mount(pod, c, attempt, i, vm, env)
		}
		if err != nil {
			return nil, err
		}
		hosts = hosts && filepath.Clean(vm.MountPath) != "/etc/hosts"
		list = append(list, m)
	}
	if !hosts {
		return list, nil
	}
	path := filepath.Join(f.Dir(pod.UID), "hosts")
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil { // containers' users reach their own files
		return nil, err
	}
	own := ""
	if pod.Spec.HostNetwork {
		b, err := os.ReadFile("/etc/hosts")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		own = string(b)
	}
	// Written in place: running containers have this very file mounted.
	if err := os.WriteFile(path, []byte(crispec.Hosts(pod, ips, f.node.ClusterDomain, own)), 0o644); err != nil { // containers of any user read it
		return nil, err
	}
	return append(list, &cri.Mount{ContainerPath: "/etc/hosts", HostPath: path}), nil
}

// BlockDevices adds the volumes that a container uses as block devices.
func (f *Files) BlockDevices(pod *corev1.Pod, c *corev1.Container, config *cri.ContainerConfig) error {
	if f.root == "" {
		return nil
	}
	for _, d := range c.VolumeDevices {
		i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == d.Name })
		if i < 0 {
			return fmt.Errorf("container %q uses volume %q, which the pod does not have", c.Name, d.Name)
		}
		v := &pod.Spec.Volumes[i]
		path, err := filepath.EvalSymlinks(f.Path(pod, v))
		if err != nil {
			return err
		}
		info, err := os.Stat(path)
		if err == nil && info.Mode().Type()&fs.ModeDevice == 0 {
			err = fmt.Errorf("volume %q is %s, want a block device", d.Name, info.Mode().Type())
		}
		if err != nil {
			return err
		}
		rights := "mrw"
		if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly {
			rights = "mr"
		}
		config.Devices = append(config.Devices, &cri.Device{HostPath: path, ContainerPath: d.DevicePath, Permissions: rights})
	}
	return nil
}

// containerPath returns where a container has a volume. As for kubelet a relative path begins at the root.
func containerPath(vm corev1.VolumeMount) string {
	if filepath.IsAbs(vm.MountPath) {
		return vm.MountPath
	}
	return "/" + vm.MountPath
}

// imageMount returns the mount of an image, or of a directory or file in it. Images are mounted read-only, and the runtime
// sees that the path stays in the image.
func imageMount(id string, vm corev1.VolumeMount, env func(string) (string, bool)) (*cri.Mount, error) {
	part, err := subPath(vm, env)
	if err != nil {
		return nil, err
	}
	return &cri.Mount{ContainerPath: containerPath(vm), Image: &cri.ImageSpec{Image: id}, ImageSubPath: part, Readonly: true}, nil
}

// subPath returns the part of a volume that a container mounts, in a form that cannot leave the volume by its names. It is empty for
// the whole volume: never because a variable in subPathExpr has no value. The errors are kubelet's.
func subPath(vm corev1.VolumeMount, env func(string) (string, bool)) (string, error) {
	part := vm.SubPath
	if vm.SubPathExpr != "" {
		missing := map[string]bool{}
		var err error
		if part, err = crispec.Expand(vm.SubPathExpr, func(name string) (string, bool) {
			value, ok := env(name)
			if value == "" {
				missing[name] = true
			}
			return value, ok
		}); err != nil {
			return "", fmt.Errorf("subPathExpr of volume %q %w", vm.Name, err)
		}
		if len(missing) > 0 {
			return "", fmt.Errorf("missing value for %s", strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
		}
	}
	switch {
	case filepath.IsAbs(part):
		return "", fmt.Errorf("error SubPath `%s` must not be an absolute path", part)
	case slices.Contains(strings.Split(part, "/"), ".."):
		return "", fmt.Errorf("unable to provision SubPath `%s`: must not contain '..'", part)
	}
	return part, nil
}

func (f *Files) mount(pod *corev1.Pod, c *corev1.Container, attempt int32, index int, vm corev1.VolumeMount, env func(string) (string, bool)) (*cri.Mount, error) {
	var v *corev1.Volume
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Name == vm.Name {
			v = &pod.Spec.Volumes[i]
		}
	}
	if v == nil {
		return nil, fmt.Errorf("cannot find volume %q to mount into container %q", vm.Name, c.Name) // kubelet's words
	}
	recursive, err := recursiveReadOnly(vm, f.node.RecursiveReadOnly())
	if err != nil {
		return nil, err
	}
	m := &cri.Mount{
		ContainerPath: containerPath(vm), HostPath: f.Path(pod, v), Readonly: vm.ReadOnly || isWritten(v), RecursiveReadOnly: recursive,
	}
	if u := f.node.Users(pod); u.GetMode() == cri.NamespaceMode_POD {
		m.UidMappings, m.GidMappings = u.GetUids(), u.GetGids()
	}
	if vm.MountPropagation != nil {
		switch *vm.MountPropagation {
		case corev1.MountPropagationHostToContainer:
			m.Propagation = cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
		case corev1.MountPropagationBidirectional:
			m.Propagation = cri.MountPropagation_PROPAGATION_BIDIRECTIONAL
		case corev1.MountPropagationNone:
		}
	}
	if isHosted(v) {
		if m.HostPath, err = os.Readlink(m.HostPath); err != nil {
			return nil, err
		}
		m.Readonly = m.Readonly || v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly || v.CSI != nil && v.CSI.ReadOnly != nil && *v.CSI.ReadOnly
	}
	part, err := subPath(vm, env)
	if err != nil {
		return nil, err
	}
	if part == "" {
		return m, nil
	}
	// As by kubelet, a part that is not there is made as a directory in volumes of all types.
	source, err := volume.Subpath(m.HostPath, part)
	if err != nil {
		return nil, fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q: %w", vm.Name, c.Name, err)
	}
	defer source.Close()
	// The part is bind mounted through its descriptor, so that nothing can be put
	// in its place between this look and the start of the container.
	target := f.part(pod, c, attempt, index)
	// An earlier try may have got this far: what it mounted is the volume's, and no
	// place to write to.
	if err := errors.Join(unplace(target), place(source, target)); err != nil {
		return nil, err
	}
	if err := mounts.Bind(fmt.Sprintf("/proc/self/fd/%d", source.Fd()), target); err != nil {
		return nil, fmt.Errorf("subPath %q of volume %q: bind mount: %w", part, vm.Name, err)
	}
	m.HostPath = target
	return m, nil
}

// recursiveReadOnly reports whether everything mounted below a mount is read-only as well. Errors are in kubelet's words.
func recursiveReadOnly(vm corev1.VolumeMount, able bool) (bool, error) {
	switch {
	case vm.RecursiveReadOnly == nil, *vm.RecursiveReadOnly == corev1.RecursiveReadOnlyDisabled:
		return false, nil
	case !vm.ReadOnly:
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not read-only", vm.Name)
	case vm.MountPropagation != nil && *vm.MountPropagation != corev1.MountPropagationNone:
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not compatible with propagation %q", vm.Name, *vm.MountPropagation)
	case *vm.RecursiveReadOnly == corev1.RecursiveReadOnlyIfPossible:
		return able, nil
	case *vm.RecursiveReadOnly != corev1.RecursiveReadOnlyEnabled:
		return false, fmt.Errorf("unknown recursive read-only mode %q", *vm.RecursiveReadOnly)
	case !able:
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not supported by the runtime", vm.Name)
	}
	return true, nil
}

// CatchUp brings those volumes up to date of which a container mounts a part that is not there: the variable that names the part
// may be newer than what was written to the volume, and a missing part is made as a directory.
func (f *Files) CatchUp(ctx context.Context, pod *corev1.Pod, c *corev1.Container, facts crispec.Facts, env func(string) (string, bool)) error {
	if f.root == "" {
		return nil
	}
	for _, vm := range c.VolumeMounts {
		i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == vm.Name && isWritten(&v) })
		if part, err := subPath(vm, env); i < 0 || err != nil || part == "" {
			continue // mounts reports the error
		} else if found, err := volume.Find(f.Path(pod, &pod.Spec.Volumes[i]), part); err == nil {
			_ = found.Close()
			continue
		}
		if _, err := f.volume(ctx, pod, &pod.Spec.Volumes[i], facts, time.Time{}); err != nil {
			return err
		}
	}
	return nil
}

// part returns where the part of a volume is mounted for one attempt at a container.
func (f *Files) part(pod *corev1.Pod, c *corev1.Container, attempt int32, index int) string {
	return filepath.Join(f.Dir(pod.UID), "parts", fmt.Sprintf("%s-%d-%d", c.Name, attempt, index))
}

// unplace undoes place and all mounts on it.
func unplace(target string) error {
	for {
		err := mounts.Detach(target)
		switch {
		case errors.Is(err, unix.ENOENT):
			return nil
		case errors.Is(err, unix.EINVAL): // nothing is mounted there
			return remove(target)
		case err != nil:
			return fmt.Errorf("unmount %s: %w", target, err)
		}
	}
}

// place makes an empty file or directory to mount source on.
func place(source *os.File, target string) error {
	info, err := source.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.MkdirAll(target, 0o755) // is mounted over
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	return os.WriteFile(target, nil, 0o600)
}
