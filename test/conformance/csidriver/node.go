package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ephemeral is the attribute of volumes that are made for one pod.
const ephemeral = "csi.storage.k8s.io/ephemeral"

// NodeGetInfo describes the node.
func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	limit := d.maxVolumes
	if d.attachLimit > 0 {
		limit = d.attachLimit
	}
	return &csi.NodeGetInfoResponse{NodeId: d.node, MaxVolumesPerNode: limit, AccessibleTopology: d.topology()}, nil
}

// NodeGetCapabilities implements the node service.
func (d *driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	r := &csi.NodeGetCapabilitiesResponse{}
	for _, c := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME, csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		r.Capabilities = append(r.Capabilities, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: c}}})
	}
	return r, nil
}

// NodeStageVolume records that a volume is to be used on the node.
func (d *driver) NodeStageVolume(_ context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	v, err := d.find(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if r.GetStagingTargetPath() == "" || r.GetVolumeCapability() == nil {
		return nil, status.Error(codes.InvalidArgument, "the staging target path and the capability must not be empty")
	}
	if err := d.require(!d.attachable || v.Attached, v, "is not attached"); err != nil {
		return nil, err
	}
	if err := d.require(v.Staged == "" || v.Staged == r.GetStagingTargetPath(), v, "is staged at %q", v.Staged); err != nil {
		return nil, err
	}
	v.Staged = r.GetStagingTargetPath()
	return &csi.NodeStageVolumeResponse{}, d.save()
}

// NodeUnstageVolume undoes NodeStageVolume.
func (d *driver) NodeUnstageVolume(_ context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	v, err := d.find(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if err := d.require(len(v.Published) == 0, v, "is published at %q", v.Published); err != nil {
		return nil, err
	}
	v.Staged = ""
	return &csi.NodeUnstageVolumeResponse{}, d.save()
}

// NodePublishVolume mounts a volume for a pod, or binds its block device.
func (d *driver) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	target := r.GetTargetPath()
	if target == "" || r.GetVolumeCapability() == nil {
		return nil, status.Error(codes.InvalidArgument, "the target path and the capability must not be empty")
	}
	v, err := d.findIfExists(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if v == nil {
		if r.GetVolumeContext()[ephemeral] != "true" {
			return nil, notFound(r.GetVolumeId())
		}
		v = &volume{ID: r.GetVolumeId(), Name: "ephemeral-" + r.GetVolumeId(), Size: 1 << 30, Ephemeral: true} // size
		if err := d.populate(v, nil); err != nil {
			return nil, err
		}
		d.state.Volumes[v.ID] = v
	}
	staged := v.Ephemeral || v.Staged != "" && v.Staged == r.GetStagingTargetPath()
	if err := d.require(staged, v, "is staged at %q, and not at %q", v.Staged, r.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	if v.Block != (r.GetVolumeCapability().GetBlock() != nil) {
		return nil, status.Errorf(codes.InvalidArgument, "volume %s has another mode", v.ID)
	}
	if !slices.Contains(v.Published, target) {
		if err := d.mount(v, target, r.GetReadonly()); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		v.Published = append(v.Published, target)
	}
	return &csi.NodePublishVolumeResponse{}, d.save()
}

// mount makes a bind mount of a volume at a target.
func (d *driver) mount(v *volume, target string, readOnly bool) error {
	source := d.path(v.ID)
	if v.Block {
		device, err := attachLoop(source)
		if err != nil {
			return err
		}
		f, err := os.OpenFile(target, os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_ = f.Close()
		source = device
	} else if err := os.MkdirAll(target, 0o750); err != nil {
		return err
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", source, target, err)
	}
	if !readOnly {
		return nil
	}
	return unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

// NodeUnpublishVolume undoes NodePublishVolume, and removes a volume that was made for the pod.
func (d *driver) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	target := r.GetTargetPath()
	v, err := d.find(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	err = unix.Unmount(target, 0)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // it is not mounted
		return nil, status.Errorf(codes.Internal, "unmount %s: %s", target, err)
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, status.Error(codes.Internal, err.Error())
	}
	v.Published = slices.DeleteFunc(v.Published, func(p string) bool { return p == target })
	if v.Block && len(v.Published) == 0 {
		if err := detachLoops(d.path(v.ID)); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	}
	if v.Ephemeral && len(v.Published) == 0 {
		return &csi.NodeUnpublishVolumeResponse{}, d.remove(v)
	}
	return &csi.NodeUnpublishVolumeResponse{}, d.save()
}

// NodeGetVolumeStats returns the use of the file system that a volume is in, or the size of a block device.
func (d *driver) NodeGetVolumeStats(_ context.Context, r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	v, err := d.find(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if v.Block {
		return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: v.Size}}}, nil
	}
	var s unix.Statfs_t
	if err := unix.Statfs(r.GetVolumePath(), &s); err != nil {
		return nil, status.Errorf(codes.NotFound, "%s: %s", r.GetVolumePath(), err)
	}
	size, free := int64(s.Blocks)*s.Bsize, int64(s.Bavail)*s.Bsize // sizes of disks
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: size, Available: free, Used: size - int64(s.Bfree)*s.Bsize},                        // a size
		{Unit: csi.VolumeUsage_INODES, Total: int64(s.Files), Available: int64(s.Ffree), Used: int64(s.Files) - int64(s.Ffree)}, // numbers of files
	}}, nil
}

// NodeExpandVolume makes a block device as large as its file. Directories need nothing.
func (d *driver) NodeExpandVolume(_ context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	v, err := d.find(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if !slices.Contains(v.Published, r.GetVolumePath()) && v.Staged != r.GetStagingTargetPath() {
		return nil, status.Errorf(codes.NotFound, "volume %s is not at %s", v.ID, r.GetVolumePath())
	}
	if size := r.GetCapacityRange().GetRequiredBytes(); size > v.Size {
		return nil, status.Errorf(codes.OutOfRange, "volume %s has %d bytes, and can't get %d on the node", v.ID, v.Size, size)
	}
	if v.Block {
		if err := resizeLoops(d.path(v.ID)); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: v.Size}, nil
}
