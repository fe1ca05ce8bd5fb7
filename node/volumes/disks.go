package volumes

import (
	"context"
	"io/fs"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/node/blockdevice"
)

// isDisk reports whether a volume is a block device of the node that pods use as a file system. Nil is not one.
func isDisk(pv *corev1.PersistentVolume) bool {
	if pv == nil || pv.Spec.Local == nil || isBlock(pv) {
		return false
	}
	info, err := os.Stat(pv.Spec.Local.Path)
	return err == nil && info.Mode().Type() == fs.ModeDevice
}

// mountDisk mounts the file system of a block device where Files.claimed finds it, and expands it if the volume has become
// larger than the claim says.
func (f *Files) mountDisk(ctx context.Context, pod *corev1.Pod, at *corev1.Volume, claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) error {
	if err := usedAs(pod, at.Name, false); err != nil {
		return mountError("MountVolume.SetUp", pv.Name, err)
	}
	r := blockdevice.Request{
		Device: pv.Spec.Local.Path, Dir: f.Path(pod, at) + mountSuffix, Options: slices.Clone(pv.Spec.MountOptions),
	}
	if pv.Spec.Local.FSType != nil {
		r.Type = *pv.Spec.Local.FSType
	}
	readOnly := at.PersistentVolumeClaim != nil && at.PersistentVolumeClaim.ReadOnly
	if readOnly {
		r.Options = append(r.Options, "ro")
	}
	if err := f.disks.Mount(ctx, r); err != nil {
		return mountError("MountVolume.MountDevice", pv.Name, err)
	}
	if readOnly || !grown(claim, pv) {
		return nil
	}
	err := blockdevice.Expand(r)
	if err == nil {
		err = f.expanded(ctx, claim, pv, 0)
	}
	f.reportExpansion(ctx, pod, claim, pv, err)
	return nil
}
