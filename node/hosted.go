package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/volumefit"
	"github.com/sampan-io/sampan/node/volume"
)

// isHosted reports whether a volume is a directory of the node outside of the pod's files.
func isHosted(v *corev1.Volume) bool {
	return v.HostPath != nil || v.PersistentVolumeClaim != nil || v.Ephemeral != nil || v.NFS != nil
}

// hosted makes the link to a volume that lies elsewhere in the node's file system, for [files.mount] to find. Only the link
// belongs to the pod: it is removed with the pod, and its target stays.
func (f *files) hosted(ctx context.Context, pod *corev1.Pod, v *corev1.Volume, gid int) error {
	path := ""
	switch {
	case v.HostPath != nil:
		path = v.HostPath.Path
		if err := findHostPath(v.HostPath); err != nil {
			return err
		}
	case v.NFS != nil:
		path = f.path(pod, v) + mountSuffix
		if err := mountNFS(ctx, v.NFS, nil, path); err != nil {
			return err
		}
	case isHosted(v):
		name, _ := volumefit.Named(pod, v)
		var err error
		if path, err = f.claimed(ctx, pod, v, gid); err != nil {
			return fmt.Errorf("error processing PVC %s/%s: %w", pod.Namespace, name, err)
		}
	default:
		return errors.New("unsupported volume type: want emptyDir, configMap, secret, projected, downwardAPI, hostPath, nfs, ephemeral or persistentVolumeClaim")
	}
	return link(filepath.Clean(path), f.path(pod, v))
}

// mountSuffix is the end of the directories at which file systems of other machines are mounted; no volume has a dot in its
// name. They are unmounted with the pod.
const mountSuffix = ".mount"

// claimed returns the path of the volume of a claim.
func (f *files) claimed(ctx context.Context, pod *corev1.Pod, v *corev1.Volume, gid int) (string, error) {
	name, ephemeral := volumefit.Named(pod, v)
	c, err := client.PersistentVolumeClaims.Get(ctx, f.n.opts.Client, pod.Namespace, name)
	switch {
	case err != nil:
		return "", fmt.Errorf("failed to fetch PVC from API server: %w", err)
	case ephemeral && volumefit.Owned(pod, c) != nil:
		return "", volumefit.Owned(pod, c)
	case c.DeletionTimestamp != nil:
		return "", errors.New("PVC is being deleted")
	case !volumefit.Bound(c) || c.Status.Phase != corev1.ClaimBound:
		return "", errors.New("PVC is not bound")
	}
	pv, err := client.PersistentVolumes.Get(ctx, f.n.opts.Client, "", c.Spec.VolumeName)
	switch {
	case err != nil:
		return "", fmt.Errorf("failed to fetch PV %s from API server: %w", c.Spec.VolumeName, err)
	case pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != c.UID:
		return "", fmt.Errorf("PV %s is bound to another claim", pv.Name)
	case pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == corev1.PersistentVolumeBlock:
		return "", fmt.Errorf("PV %s has the unsupported volumeMode Block: want Filesystem", pv.Name)
	case pv.Spec.HostPath != nil:
		return pv.Spec.HostPath.Path, findHostPath(pv.Spec.HostPath)
	case pv.Spec.NFS != nil:
		path := f.path(pod, v) + mountSuffix
		return path, mountNFS(ctx, pv.Spec.NFS, pv.Spec.MountOptions, path)
	case pv.Spec.Local == nil:
		return "", fmt.Errorf("PV %s has an unsupported volume type: want hostPath, local or nfs", pv.Name)
	}
	info, err := os.Stat(pv.Spec.Local.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("path %q does not exist", pv.Spec.Local.Path)
	case err != nil:
		return "", err
	case !info.IsDir():
		return "", fmt.Errorf("path %q is not a directory", pv.Spec.Local.Path)
	}
	if pod.Spec.SecurityContext != nil && pod.Spec.SecurityContext.FSGroupChangePolicy != nil &&
		*pod.Spec.SecurityContext.FSGroupChangePolicy == corev1.FSGroupChangeOnRootMismatch && volume.Owned(pv.Spec.Local.Path, gid) {
		return pv.Spec.Local.Path, nil
	}
	if gid >= 0 && !(v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly) {
		return pv.Spec.Local.Path, volume.Own(pv.Spec.Local.Path, gid)
	}
	return pv.Spec.Local.Path, nil
}

// findHostPath checks that a path is of the type that was asked for, and makes it where that says so. Of a path without a type
// nothing is asked; one that is not there becomes a directory, as containerd has it.
func findHostPath(h *corev1.HostPathVolumeSource) error {
	kind := corev1.HostPathUnset
	if h.Type != nil {
		kind = *h.Type
	}
	info, err := os.Stat(h.Path)
	if errors.Is(err, fs.ErrNotExist) {
		if kind == corev1.HostPathUnset || kind == corev1.HostPathDirectoryOrCreate {
			return os.MkdirAll(h.Path, 0o755) //nolint:gosec // as kubelet has it
		}
		if kind == corev1.HostPathFileOrCreate {
			return os.WriteFile(h.Path, nil, 0o644) //nolint:gosec // as kubelet has it
		}
		return fmt.Errorf("hostPath type check failed: %s is not a %s", h.Path, hostPathWord(kind))
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
		return fmt.Errorf("hostPath type check failed: %s is not a %s", h.Path, hostPathWord(kind))
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

// link makes at a link to path, in one step.
func link(path, at string) error {
	if now, err := os.Readlink(at); err == nil && now == path {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o711); err != nil { //nolint:gosec // containers' users reach their own files
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
