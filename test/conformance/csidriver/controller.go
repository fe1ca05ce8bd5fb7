package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// ControllerGetCapabilities implements the controller service.
func (d *driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	all := []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME, csi.ControllerServiceCapability_RPC_GET_CAPACITY,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT, csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}
	if d.attachable {
		all = append(all, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME)
	}
	if d.modifiable {
		all = append(all, csi.ControllerServiceCapability_RPC_MODIFY_VOLUME)
	}
	r := &csi.ControllerGetCapabilitiesResponse{}
	for _, c := range all {
		r.Capabilities = append(r.Capabilities, &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{
			Rpc: &csi.ControllerServiceCapability_RPC{Type: c},
		}})
	}
	return r, nil
}

// isBlock reports whether capabilities ask for a block device. It is an error if they ask for both modes, or for neither.
func isBlock(capabilities []*csi.VolumeCapability) (bool, error) {
	block := slices.ContainsFunc(capabilities, func(c *csi.VolumeCapability) bool { return c.GetBlock() != nil })
	mount := slices.ContainsFunc(capabilities, func(c *csi.VolumeCapability) bool { return c.GetMount() != nil })
	if block == mount {
		return false, status.Error(codes.InvalidArgument, "the volume must be either mounted or a block device")
	}
	return block, nil
}

// CreateVolume makes a volume, empty or as a copy, unless there is one of its name.
func (d *driver) CreateVolume(_ context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	block, err := isBlock(r.GetVolumeCapabilities())
	if err != nil {
		return nil, err
	}
	if r.GetName() == "" {
		return nil, status.Error(codes.InvalidArgument, "the name must not be empty")
	}
	if err := d.checkMutable(r.GetMutableParameters()); err != nil {
		return nil, err
	}
	size, err := requestedSize(r.GetCapacityRange())
	if err != nil {
		return nil, err
	}
	for _, v := range d.state.Volumes {
		if v.Name == r.GetName() {
			if v.Size < size {
				return nil, status.Errorf(codes.AlreadyExists, "volume %s has %d bytes, want %d", v.Name, v.Size, size)
			}
			return d.created(v, r), nil
		}
	}
	v := &volume{ID: uuid.NewString(), Name: r.GetName(), Size: size, Block: block, Mutable: r.GetMutableParameters()}
	if err := d.populate(v, r.GetVolumeContentSource()); err != nil {
		return nil, errors.Join(err, os.RemoveAll(d.path(v.ID)))
	}
	d.state.Volumes[v.ID] = v
	return d.created(v, r), d.save()
}

// created returns the answer to a request that made a volume.
func (d *driver) created(v *volume, r *csi.CreateVolumeRequest) *csi.CreateVolumeResponse {
	a := &csi.Volume{VolumeId: v.ID, CapacityBytes: v.Size, VolumeContext: r.GetParameters(), ContentSource: r.GetVolumeContentSource()}
	if t := d.topology(); t != nil {
		a.AccessibleTopology = []*csi.Topology{t}
	}
	return &csi.CreateVolumeResponse{Volume: a}
}

// populate makes the directory or file of a volume, empty or as a copy of a source.
func (d *driver) populate(v *volume, from *csi.VolumeContentSource) error {
	source, size, block := "", int64(0), v.Block
	switch {
	case from.GetVolume() != nil:
		o, err := d.find(from.GetVolume().GetVolumeId())
		if err != nil {
			return err
		}
		source, size, block = o.ID, o.Size, o.Block
	case from.GetSnapshot() != nil:
		o := d.state.Snapshots[from.GetSnapshot().GetSnapshotId()]
		if o == nil {
			return status.Errorf(codes.NotFound, "snapshot %s not found", from.GetSnapshot().GetSnapshotId())
		}
		source, size, block = o.ID, o.Size, o.Block
	}
	if block != v.Block {
		return status.Errorf(codes.InvalidArgument, "%s has another mode than volume %s", source, v.ID)
	}
	if size > v.Size {
		return status.Errorf(codes.OutOfRange, "%s has %d bytes, and volume %s only %d", source, size, v.ID, v.Size)
	}
	if source != "" {
		if err := copyContents(d.path(source), d.path(v.ID)); err != nil {
			return err
		}
	}
	if v.Block {
		return truncate(d.path(v.ID), v.Size)
	}
	if err := os.MkdirAll(d.path(v.ID), 0o777); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	if source == "" { // the umask may have taken from the mode
		return os.Chmod(d.path(v.ID), 0o777) // for pods of any user
	}
	return nil
}

// copyContents copies a directory or a file, with owners, modes and links.
func copyContents(from, to string) error {
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		return status.Errorf(codes.Internal, "cp: %s: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// truncate gives a file a size, and makes the file if there is none. The file has holes where nothing was written.
func truncate(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		err = errors.Join(f.Truncate(size), f.Close())
	}
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}

// DeleteVolume removes a volume that is not in use.
func (d *driver) DeleteVolume(_ context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	v, err := d.findIfExists(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if v == nil {
		return &csi.DeleteVolumeResponse{}, nil
	}
	unused := !v.Attached && v.Staged == "" && len(v.Published) == 0
	if err := d.require(unused, v, "is in use: attached %t, staged at %q, published at %q", v.Attached, v.Staged, v.Published); err != nil {
		return nil, err
	}
	return &csi.DeleteVolumeResponse{}, d.remove(v)
}

// remove removes a volume and its contents.
func (d *driver) remove(v *volume) error {
	if err := os.RemoveAll(d.path(v.ID)); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	delete(d.state.Volumes, v.ID)
	return d.save()
}

// ControllerPublishVolume attaches a volume.
func (d *driver) ControllerPublishVolume(_ context.Context, r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	if r.GetNodeId() != d.node {
		return nil, status.Errorf(codes.NotFound, "node %s not found", r.GetNodeId())
	}
	v, err := d.find(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if v.Attached && v.ReadOnly != r.GetReadonly() {
		return nil, status.Errorf(codes.AlreadyExists, "volume %s is attached in another mode", v.ID)
	}
	attached := int64(0)
	for _, o := range d.state.Volumes {
		if o.Attached && o != v {
			attached++
		}
	}
	if d.attachLimit > 0 && attached >= d.attachLimit {
		return nil, status.Errorf(codes.ResourceExhausted, "%d volumes are attached", attached)
	}
	v.Attached, v.ReadOnly = true, r.GetReadonly()
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{}}, d.save()
}

// ControllerUnpublishVolume detaches a volume.
func (d *driver) ControllerUnpublishVolume(_ context.Context, r *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	v, err := d.findIfExists(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if v == nil {
		return &csi.ControllerUnpublishVolumeResponse{}, nil
	}
	if err := d.require(v.Staged == "" && len(v.Published) == 0, v, "is in use: staged at %q, published at %q", v.Staged, v.Published); err != nil {
		return nil, err
	}
	v.Attached = false
	return &csi.ControllerUnpublishVolumeResponse{}, d.save()
}

// ValidateVolumeCapabilities reports whether a volume can be used in the modes of a request.
func (d *driver) ValidateVolumeCapabilities(_ context.Context, r *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	block, err := isBlock(r.GetVolumeCapabilities())
	if err != nil {
		return nil, err
	}
	v, err := d.find(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if block != v.Block {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: "the volume has another mode"}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: r.GetVolumeContext(), VolumeCapabilities: r.GetVolumeCapabilities(), Parameters: r.GetParameters(),
	}}, nil
}

// GetCapacity returns the largest size of a volume, because directories have no size of their own.
func (d *driver) GetCapacity(context.Context, *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	return &csi.GetCapacityResponse{AvailableCapacity: largestVolume}, nil
}

// ControllerExpandVolume makes a volume larger.
func (d *driver) ControllerExpandVolume(_ context.Context, r *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	size, err := requestedSize(r.GetCapacityRange())
	if err != nil {
		return nil, err
	}
	v, err := d.find(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if size > v.Size {
		if v.Block {
			if err := truncate(d.path(v.ID), size); err != nil {
				return nil, err
			}
		}
		v.Size = size
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: v.Size, NodeExpansionRequired: d.nodeExpansion}, d.save()
}

// ControllerModifyVolume changes parameters of a volume.
func (d *driver) ControllerModifyVolume(_ context.Context, r *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse, error) {
	if err := d.checkMutable(r.GetMutableParameters()); err != nil {
		return nil, err
	}
	v, err := d.find(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	v.Mutable = r.GetMutableParameters()
	return &csi.ControllerModifyVolumeResponse{}, d.save()
}

// proto returns a snapshot as the answers of the driver have it.
func (s *snapshot) proto() *csi.Snapshot {
	return &csi.Snapshot{SnapshotId: s.ID, SourceVolumeId: s.Source, SizeBytes: s.Size, CreationTime: timestamppb.New(time.Unix(s.Created, 0)), ReadyToUse: true}
}

// CreateSnapshot copies a volume, unless there is a snapshot of that name.
func (d *driver) CreateSnapshot(_ context.Context, r *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	for _, s := range d.state.Snapshots {
		if s.Name == r.GetName() {
			if s.Source != r.GetSourceVolumeId() {
				return nil, status.Errorf(codes.AlreadyExists, "snapshot %s is of another volume", s.Name)
			}
			return &csi.CreateSnapshotResponse{Snapshot: s.proto()}, nil
		}
	}
	v, err := d.find(r.GetSourceVolumeId())
	if err != nil {
		return nil, err
	}
	s := &snapshot{ID: uuid.NewString(), Name: r.GetName(), Source: v.ID, Size: v.Size, Created: time.Now().Unix(), Block: v.Block}
	if err := copyContents(d.path(v.ID), d.path(s.ID)); err != nil {
		return nil, err
	}
	d.state.Snapshots[s.ID] = s
	return &csi.CreateSnapshotResponse{Snapshot: s.proto()}, d.save()
}

// DeleteSnapshot removes a snapshot.
func (d *driver) DeleteSnapshot(_ context.Context, r *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	s := d.state.Snapshots[r.GetSnapshotId()]
	if s == nil {
		return &csi.DeleteSnapshotResponse{}, nil
	}
	if err := os.RemoveAll(d.path(s.ID)); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	delete(d.state.Snapshots, s.ID)
	return &csi.DeleteSnapshotResponse{}, d.save()
}

// ListSnapshots lists all snapshots on one page, or the wanted ones.
func (d *driver) ListSnapshots(_ context.Context, r *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	a := &csi.ListSnapshotsResponse{}
	for _, s := range d.state.Snapshots {
		if (r.GetSnapshotId() == "" || r.GetSnapshotId() == s.ID) && (r.GetSourceVolumeId() == "" || r.GetSourceVolumeId() == s.Source) {
			a.Entries = append(a.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: s.proto()})
		}
	}
	return a, nil
}
