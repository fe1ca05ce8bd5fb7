package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/podfeature"
	"github.com/sampan-io/sampan/internal/volumefit"
	"github.com/sampan-io/sampan/node/pluginregistry"
	"github.com/sampan-io/sampan/node/volume"
)

// isHosted reports whether the content of a volume is not among the pod's files: it is a path of the node, or mounted
// by the node or a driver.
func isHosted(v *corev1.Volume) bool {
	return v.HostPath != nil || v.PersistentVolumeClaim != nil || v.Ephemeral != nil || v.NFS != nil || v.CSI != nil
}

// hosted makes the link to a volume that lies elsewhere in the node's file system, for [Files.Mounts] to find. Only the link
// belongs to the pod: it is removed with the pod, and its target stays.
func (f *Files) hosted(ctx context.Context, pod *corev1.Pod, v *corev1.Volume, gid int) error {
	limited, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	path := ""
	switch {
	case v.HostPath != nil:
		path = f.hostPath(v.HostPath.Path)
		if err := findHostPath(path, v.HostPath.Type); err != nil {
			return err
		}
	case v.CSI != nil:
		if f.csi == nil {
			return errors.New("CSI drivers are not supported on this node")
		}
		path = f.csi.Path(pod.UID, v.Name) // its driver has mounted it
	case v.NFS != nil:
		path = f.Path(pod, v) + mountSuffix
		if err := mountNFS(limited, v.NFS, nil, path); err != nil {
			return err
		}
	case isHosted(v):
		name, _ := volumefit.Named(pod, v)
		_, pv, err := f.claimOf(limited, pod, v)
		if err == nil {
			pv = f.placed(pv)
			path, err = f.claimed(limited, pod, v, pv)
		}
		if err == nil && pv.Spec.Local != nil && !isBlock(pv) {
			err = f.give(ctx, pod, v, pv, path, gid)
		}
		if err != nil {
			return fmt.Errorf("error processing PVC %s/%s: %w", pod.Namespace, name, err)
		}
	default:
		return errors.New("unsupported volume type: " + podfeature.KnownVolumes)
	}
	return link(filepath.Clean(path), f.Path(pod, v))
}

// placed returns a volume with the path that it has on this machine.
func (f *Files) placed(pv *corev1.PersistentVolume) *corev1.PersistentVolume {
	if f.node.LocalVolume == nil || pv.Spec.Local == nil {
		return pv
	}
	path := f.node.LocalVolume(pv)
	if path != pv.Spec.Local.Path {
		pv = pv.DeepCopy()
		pv.Spec.Local.Path = path
	}
	return pv
}

// mountSuffix is the end of the directories at which file systems of other machines and of block devices are mounted; no volume
// has a dot in its name. They are unmounted with the pod.
const mountSuffix = ".mount"

// claimed returns the path of the volume of a claim.
func (f *Files) claimed(ctx context.Context, pod *corev1.Pod, v *corev1.Volume, pv *corev1.PersistentVolume) (string, error) {
	switch {
	case pv.Spec.CSI != nil && f.csi == nil:
		return "", errors.New("CSI drivers are not supported on this node")
	case pv.Spec.CSI != nil && isBlock(pv):
		return f.csi.Device(pod.UID, pv.Name), nil // its driver has made it
	case pv.Spec.CSI != nil:
		return f.csi.Path(pod.UID, pv.Name), nil // its driver has mounted it
	case isBlock(pv) && pv.Spec.Local == nil:
		return "", fmt.Errorf("PV %s has the unsupported volumeMode Block: want Filesystem", pv.Name)
	case isBlock(pv):
		if err := usedAs(pod, v.Name, true); err != nil {
			return "", err
		}
		return pv.Spec.Local.Path, findDevice(pv.Spec.Local.Path)
	case pv.Spec.HostPath != nil:
		path := f.hostPath(pv.Spec.HostPath.Path)
		return path, findHostPath(path, pv.Spec.HostPath.Type)
	case pv.Spec.NFS != nil:
		path := f.Path(pod, v) + mountSuffix
		return path, mountNFS(ctx, pv.Spec.NFS, pv.Spec.MountOptions, path)
	case pv.Spec.Local == nil:
		return "", fmt.Errorf("PV %s has an unsupported volume type: want csi, hostPath, local or nfs", pv.Name)
	case isDisk(pv):
		path := f.Path(pod, v) + mountSuffix
		mounted, err := mountinfo.Mounted(path)
		if err == nil && !mounted {
			err = fmt.Errorf("device %s is not mounted", pv.Spec.Local.Path) // it has just appeared
		}
		return path, err
	}
	info, err := os.Stat(pv.Spec.Local.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("path %q does not exist", pv.Spec.Local.Path)
	case err != nil:
		return "", err
	case !info.IsDir():
		return "", fmt.Errorf("path %q is not a directory or a block device", pv.Spec.Local.Path)
	}
	return pv.Spec.Local.Path, nil
}

// give gives the files of a local volume at dir to the pod's group; gid -1 means that it has none. As in kubelet that happens once, when the
// volume is mounted for the pod, and not while another pod of the node uses it: that one may have changed the modes of its files.
func (f *Files) give(ctx context.Context, pod *corev1.Pod, v *corev1.Volume, pv *corev1.PersistentVolume, dir string, gid int) error {
	return f.uses.Take(ctx, pod.UID, v.Name, filepath.Clean(pv.Spec.Local.Path), func(shared bool) error {
		if gid < 0 {
			return nil
		}
		if shared {
			if has, err := volume.Group(dir); err != nil {
				return fmt.Errorf("failed to check fsGroup for %s (%w)", pv.Spec.Local.Path, err)
			} else if has != gid {
				f.node.Recorder.Event(pod, corev1.EventTypeWarning, "AlreadyMountedVolume",
					"The requested fsGroup is %d, but the volume %s has GID %d. The volume may not be shareable.", gid, pv.Name, has)
			}
			return nil
		}
		if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly {
			return nil
		}
		if policy := pod.Spec.SecurityContext.FSGroupChangePolicy; policy != nil && *policy == corev1.FSGroupChangeOnRootMismatch && volume.Owned(dir, gid) {
			return nil
		}
		return volume.Own(ctx, dir, gid)
	})
}

// findDevice checks that a path is that of a block device.
func findDevice(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("path %q does not exist", path)
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeDevice:
		return fmt.Errorf("path %q is not a block device", path)
	}
	return nil
}

// hostPath returns the path on this machine of a path in a pod: what kubelet keeps in /var/lib/kubelet is in the agent's own
// directory, where drivers and plug-ins find it by their unchanged manifests (decision 0065).
func (f *Files) hostPath(path string) string {
	clean := filepath.Clean(path)
	if f.csi == nil || clean != pluginregistry.KubeletDir && !strings.HasPrefix(clean, pluginregistry.KubeletDir+"/") {
		return path
	}
	rest := strings.TrimPrefix(strings.TrimPrefix(clean, pluginregistry.KubeletDir), "/")
	for name, dir := range map[string]string{"device-plugins": f.node.DevicePluginDir, "seccomp": f.node.SeccompRoot} {
		if below, is := strings.CutPrefix(rest, name); is && dir != "" && (below == "" || below[0] == '/') {
			return filepath.Join(dir, below)
		}
	}
	return filepath.Join(f.root, rest)
}

// findHostPath checks that a path is of the type that was asked for, and makes it where that says so. Of a path without a type
// nothing is asked; one that is not there becomes a directory, as containerd has it.
func findHostPath(path string, t *corev1.HostPathType) error {
	kind := corev1.HostPathUnset
	if t != nil {
		kind = *t
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if kind == corev1.HostPathUnset || kind == corev1.HostPathDirectoryOrCreate {
			return os.MkdirAll(path, 0o755) // as kubelet has it
		}
		if kind == corev1.HostPathFileOrCreate {
			return os.WriteFile(path, nil, 0o644) // as kubelet has it
		}
		return fmt.Errorf("hostPath type check failed: %s is not a %s", path, hostPathWord(kind))
	}
	if err != nil {
		return err
	}
	mode := info.Mode()
	is := true
	switch kind {
	case corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate:
		is = mode.IsDir()
	case corev1.HostPathFile, corev1.HostPathFileOrCreate:
		is = mode.IsRegular()
	case corev1.HostPathSocket:
		is = mode&fs.ModeSocket != 0
	case corev1.HostPathCharDev:
		is = mode&fs.ModeCharDevice != 0
	case corev1.HostPathBlockDev:
		is = mode&fs.ModeDevice != 0 && mode&fs.ModeCharDevice == 0
	case corev1.HostPathUnset:
	}
	if !is {
		return fmt.Errorf("hostPath type check failed: %s is not a %s", path, hostPathWord(kind))
	}
	return nil
}

func hostPathWord(kind corev1.HostPathType) string {
	switch kind {
	case corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate:
		return "directory"
	case corev1.HostPathSocket:
		return "socket file"
	case corev1.HostPathCharDev:
		return "character device"
	case corev1.HostPathBlockDev:
		return "block device"
	case corev1.HostPathFile, corev1.HostPathFileOrCreate, corev1.HostPathUnset:
	}
	return "file"
}

// linked reports whether the pod has a volume that lies elsewhere.
func (f *Files) linked(pod *corev1.Pod, v *corev1.Volume) bool {
	_, err := os.Readlink(f.Path(pod, v))
	return err == nil
}

// link makes at a link to path, in one step.
func link(path, at string) error {
	if now, err := os.Readlink(at); err == nil && now == path {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o711); err != nil { // containers' users reach their own files
		return err
	}
	fresh := at + ".new" // no volume has a dot in its name
	if err := remove(fresh); err != nil {
		return err
	}
	if err := os.Symlink(path, fresh); err != nil {
		return err
	}
	return os.Rename(fresh, at)
}
