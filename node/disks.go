package node

import (
	"context"
	"io/fs"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

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

// mountDisk mounts the file system of a block device where [files.claimed] finds it, and expands it if the volume has become
// larger than the claim says.
func (n *Node) mountDisk(ctx context.Context, pod *corev1.Pod, at *corev1.Volume, claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) error {
	if err := usedAs(pod, at.Name, false); err != nil {
		return mountError("MountVolume.SetUp", pv.Name, err)
	}
	r := blockdevice.Request{
		Device: pv.Spec.Local.Path, Dir: n.files.path(pod, at) + mountSuffix, Options: slices.Clone(pv.Spec.MountOptions),
	}
	if pv.Spec.Local.FSType != nil {
		r.Type = *pv.Spec.Local.FSType
	}
	readOnly := at.PersistentVolumeClaim != nil && at.PersistentVolumeClaim.ReadOnly
	if readOnly {
		r.Options = append(r.Options, "ro")
	}
	if err := n.disks.Mount(ctx, r); err != nil {
		return mountError("MountVolume.MountDevice", pv.Name, err)
	}
	size, grown := growth(claim, pv)
	if readOnly || !grown {
		return nil
	}
	err := blockdevice.Expand(r)
	if err == nil {
		_, err = n.changeClaim(ctx, claim, expansionDone(claim, size, size.Value()))
	}
	n.reportExpansion(ctx, pod, claim, pv, err)
	return nil
}

// growth returns the size of a volume, and whether it is larger than the claim says.
func growth(c *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) (size resource.Quantity, grown bool) {
	size = pv.Spec.Capacity[corev1.ResourceStorage]
	return size, size.Cmp(c.Status.Capacity[corev1.ResourceStorage]) > 0
}

// reportExpansion sends the events about an expansion that has ended.
func (n *Node) reportExpansion(ctx context.Context, pod *corev1.Pod, c *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, err error) {
	switch {
	case ctx.Err() != nil:
	case err != nil:
		n.recorder.Event(pod, corev1.EventTypeWarning, "VolumeResizeFailed", "NodeExpandVolume.NodeExpandVolume failed for volume %q : %v", pv.Name, err)
	default:
		n.recorder.Event(pod, corev1.EventTypeNormal, "FileSystemResizeSuccessful", "MountVolume.NodeExpandVolume succeeded for volume %q %s", pv.Name, n.opts.Name)
		n.recorder.Event(c, corev1.EventTypeNormal, "FileSystemResizeSuccessful", "MountVolume.NodeExpandVolume succeeded for volume %q %s", pv.Name, n.opts.Name)
	}
}
