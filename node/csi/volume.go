package csi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/internal/volumefit"
	"github.com/sampan-io/sampan/node/volume"
)

// A Volume describes a volume of a pod to its driver.
type Volume struct {
	Pod            types.UID
	Name           string // of the PersistentVolume, or in the pod if Ephemeral
	Driver, Handle string
	Ephemeral      bool // it is defined in the pod, and is not staged
	Block          bool // a block device
	Attached       bool // it has a VolumeAttachment
	ReadOnly       bool
	FSType         string
	MountOptions   []string
	AccessMode     corev1.PersistentVolumeAccessMode

	Attributes     map[string]string
	PodAttributes  map[string]string // in addition, when it is published
	PublishContext map[string]string // from the VolumeAttachment
	StageSecrets   map[string]string
	PublishSecrets map[string]string

	Group *int64 // of the files; a driver that can sets it (VOLUME_MOUNT_GROUP)
	// Own means that the agent sets the group of the files if the driver does not. With OwnOnMismatch it does so only
	// if the root directory does not have the group.
	Own, OwnOnMismatch bool
}

func (v *Volume) check() error {
	switch {
	case v.Driver == "" || !driverName.MatchString(v.Driver):
		return fmt.Errorf("%q is not the name of a CSI driver", v.Driver)
	case v.Handle == "":
		return errors.New("missing volume id")
	case len(v.Handle) > maxHandle:
		return fmt.Errorf("the volumeHandle has %d bytes, want at most %d", len(v.Handle), maxHandle)
	case v.Name == "" || v.Name == "." || v.Name == ".." || strings.ContainsAny(v.Name, "/\x00"):
		return fmt.Errorf("%q is not the name of a volume", v.Name)
	case v.Pod == "" || v.Pod == "." || v.Pod == ".." || strings.ContainsAny(string(v.Pod), "/\x00"):
		return fmt.Errorf("%q is not the UID of a pod", v.Pod)
	}
	return nil
}

// blockName returns the name of the volume if it is a block device, otherwise "".
func (v *Volume) blockName() string {
	if v.Block {
		return v.Name
	}
	return ""
}

// blockName returns the name of the volume of a record if it is a block device, otherwise "".
func (r record) blockName() string {
	if r.Mode == blockMode {
		return r.Name
	}
	return ""
}

// blockMode is the mode in the records of block devices; others have kubelet's.
const blockMode = "Block"

func (v *Volume) record(node string) record {
	r := record{Handle: v.Handle, Driver: v.Driver, Name: v.Name, Node: node, Mode: string(storagev1.VolumeLifecyclePersistent)}
	if v.Ephemeral {
		r.Mode = string(storagev1.VolumeLifecycleEphemeral)
	}
	if v.Block {
		r.Mode = blockMode
	}
	if v.Attached {
		r.AttachmentID = volumefit.AttachmentName(v.Handle, v.Driver, node)
	}
	return r
}

// stagingPath returns where a volume is staged; block is its name if it is a block device.
func (m *Manager) stagingPath(k key, block string) string {
	if block != "" {
		return filepath.Join(m.opts.Root, "plugins", pluginName, "volumeDevices", "staging", block)
	}
	return filepath.Join(m.staged(k.driver, k.handle), "globalmount")
}

// Device returns where the driver makes the device of a block volume for a pod.
func (m *Manager) Device(pod types.UID, name string) string {
	return filepath.Join(m.opts.Root, "plugins", pluginName, "volumeDevices", "publish", name, string(pod))
}

func (m *Manager) target(pod types.UID, name string, block bool) string {
	if block {
		return m.Device(pod, name)
	}
	return m.Path(pod, name)
}

// capability describes the use of a volume.
func (v *Volume) capability(d *driver, group bool) *csi.VolumeCapability {
	mode := csi.VolumeCapability_AccessMode_UNKNOWN
	many := d.can(csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER)
	switch v.AccessMode {
	case corev1.ReadWriteOnce:
		mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
		if many {
			mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
		}
	case corev1.ReadWriteOncePod:
		mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
		if many {
			mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
		}
	case corev1.ReadOnlyMany:
		mode = csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case corev1.ReadWriteMany:
		mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	}
	c := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode}}
	if v.Block {
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		return c
	}
	mount := &csi.VolumeCapability_MountVolume{FsType: v.FSType, MountFlags: v.MountOptions}
	if group && v.Group != nil && d.can(csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP) {
		mount.VolumeMountGroup = strconv.FormatInt(*v.Group, 10)
	}
	c.AccessType = &csi.VolumeCapability_Mount{Mount: mount}
	return c
}

// An Outcome says what a call of a driver that returned an error has done.
type Outcome int

const (
	// Unknown means that the driver may still be at work.
	Unknown Outcome = iota
	// Failed means that nothing was done, and that another try may succeed.
	Failed
	// Infeasible means that the driver does not do what it was asked for.
	Infeasible
)

// OutcomeOf returns what a call did that returned err, by the codes of CSI, as kubelet reads them.
func OutcomeOf(err error) Outcome {
	s, ok := status.FromError(err)
	if !ok {
		return Unknown
	}
	switch s.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return Unknown
	case codes.InvalidArgument, codes.OutOfRange, codes.NotFound:
		return Infeasible
	case codes.OK, codes.Unknown, codes.AlreadyExists, codes.PermissionDenied, codes.FailedPrecondition, codes.Unimplemented, codes.Internal,
		codes.DataLoss, codes.Unauthenticated:
	}
	return Failed
}

// RefusedInUse reports whether NodeExpandVolume returned an error because the driver does not expand volumes that are
// in use.
func RefusedInUse(err error) bool { return status.Code(err) == codes.FailedPrecondition }

// ended reports whether a driver has refused a call or failed, so that it does not work on the call any more.
func ended(err error) bool { return OutcomeOf(err) != Unknown }

// Stage stages a volume that a pod holds, unless it is staged or its driver does not do that. Errors are in kubelet's
// words.
func (m *Manager) Stage(ctx context.Context, v *Volume) error {
	d, err := m.driver(v.Driver)
	if err != nil {
		return fmt.Errorf("%s: attacher.MountDevice failed to create newCsiDriverClient: %w", pluginName, err)
	}
	if v.Ephemeral || !d.can(csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME) {
		return nil
	}
	e, err := m.turn(ctx, v)
	if err != nil {
		return err
	}
	defer e.give()
	m.mu.Lock()
	done, before, others := e.staged, e.recorded, len(e.users) > 1
	if !done {
		e.recorded = true // from here on there may be one
	}
	m.mu.Unlock()
	if done {
		return nil
	}
	dir, target := m.staged(v.Driver, v.Handle), m.stagingPath(e.key, v.blockName())
	if err := errors.Join(m.save(dir, v.record(m.opts.Node)), m.makeDir(target)); err != nil {
		return fmt.Errorf("%s: attacher.MountDevice failed to create dir %q:  %w", pluginName, target, err)
	}
	err = m.call(ctx, d, func(ctx context.Context, node csi.NodeClient) error {
		_, err := node.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
			VolumeId: v.Handle, PublishContext: v.PublishContext, StagingTargetPath: m.shown(d.endpoint, target),
			VolumeCapability: v.capability(d, true), Secrets: v.StageSecrets, VolumeContext: v.Attributes,
		})
		return err
	})
	if err != nil && ended(err) && !before && !others && m.discard(dir, target) == nil {
		m.mu.Lock()
		e.recorded = false
		m.mu.Unlock()
	}
	if err == nil {
		m.mu.Lock()
		e.staged = true
		m.mu.Unlock()
	}
	return err
}

// Publish publishes a volume to the pod that holds it, unless this process has done so. If again is true, it does so
// once more (requiresRepublish). Errors are in kubelet's words.
func (m *Manager) Publish(ctx context.Context, v *Volume, again bool) error {
	d, err := m.driver(v.Driver)
	if err != nil {
		return fmt.Errorf("%s: mounter.SetUpAt failed to get CSI client: %w", pluginName, err)
	}
	e, err := m.turn(ctx, v)
	if err != nil {
		return err
	}
	defer e.give()
	m.mu.Lock()
	done := e.published[v.Pod]
	m.mu.Unlock()
	if done && !again {
		return nil
	}
	dir, target := filepath.Dir(m.Path(v.Pod, v.Name)), m.target(v.Pod, v.Name, v.Block)
	_, err = m.load(dir)
	before := err == nil
	if err := errors.Join(m.save(dir, v.record(m.opts.Node)), m.makeDir(filepath.Dir(target))); err != nil {
		return fmt.Errorf("%s: mounter.SetUpAt failed to create dir %q:  %w", pluginName, dir, err)
	}
	request := &csi.NodePublishVolumeRequest{
		VolumeId: v.Handle, PublishContext: v.PublishContext, TargetPath: m.shown(d.endpoint, target),
		VolumeCapability: v.capability(d, true), Readonly: v.ReadOnly, Secrets: v.PublishSecrets, VolumeContext: merged(v.Attributes, v.PodAttributes),
	}
	if !v.Ephemeral && d.can(csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME) {
		request.StagingTargetPath = m.shown(d.endpoint, m.stagingPath(e.key, v.blockName()))
	}
	err = m.call(ctx, d, func(ctx context.Context, node csi.NodeClient) error {
		_, err := node.NodePublishVolume(ctx, request)
		return err
	})
	if err != nil {
		switch {
		case !ended(err):
			m.mu.Lock()
			m.late[lateTarget{v.Pod, v.Name}] = true
			m.mu.Unlock()
		case !before:
			_ = m.discard(dir, target) // otherwise the driver is asked to unpublish it
		}
		return err
	}
	mounted, err := m.checkTarget(target, v.Block)
	if err != nil {
		return err
	}
	defer mounted.Close()
	if !done && v.Own && v.Group != nil && !v.Block && !d.can(csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP) {
		if err := v.setGroup(ctx, mounted); err != nil {
			return fmt.Errorf("applyFSGroup failed for vol %s: %w", v.Handle, err)
		}
	}
	m.mu.Lock()
	e.published[v.Pod] = true
	m.mu.Unlock()
	return nil
}

// setGroup gives the files of a volume, of which mounted is the root directory, to its group.
func (v *Volume) setGroup(ctx context.Context, mounted *os.File) error {
	path := fmt.Sprintf("/proc/self/fd/%d", mounted.Fd()) // the driver may have put a link in the place of the directory since
	if v.OwnOnMismatch && volume.Owned(path, int(*v.Group)) {
		return nil
	}
	return volume.Own(ctx, path, int(*v.Group))
}

func merged(a, b map[string]string) map[string]string {
	out := make(map[string]string, len(a)+len(b))
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}

// unpublish undoes Publish.
func (m *Manager) unpublish(ctx context.Context, pod types.UID, name string, r record) (err error) {
	began, operation := time.Now(), "volume_unmount"
	if r.Mode == blockMode {
		operation = "unmap_volume"
	}
	defer func() { m.opts.Done(r.Driver, operation, began, err) }()
	d, err := m.driver(r.Driver)
	if err != nil {
		return fmt.Errorf("%s: Unmounter.TearDownAt failed to get CSI client: %w", pluginName, err)
	}
	m.mu.Lock()
	e := m.at(key{r.Driver, r.Handle})
	e.users[pod] = true
	m.mu.Unlock()
	if err := e.take(ctx); err != nil {
		return err
	}
	defer e.give()
	target := m.target(pod, name, r.Mode == blockMode)
	err = m.call(ctx, d, func(ctx context.Context, node csi.NodeClient) error {
		_, err := node.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: r.Handle, TargetPath: m.shown(d.endpoint, target)})
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: Unmounter.TearDownAt failed: %w", pluginName, err)
	}
	if err := m.discard(filepath.Join(m.published(pod), name), target); err != nil {
		return fmt.Errorf("%s: Unmounter.TearDownAt failed to clean mount dir [%s]: %w", pluginName, target, err)
	}
	if r.Mode == blockMode {
		_ = m.remove(filepath.Dir(target)) // other pods may have the device
	}
	m.mu.Lock()
	delete(e.published, pod)
	m.mu.Unlock()
	m.watchLate(lateTarget{pod, name}, r, target)
	return nil
}

// unstage undoes Stage, unless a pod uses the volume.
func (m *Manager) unstage(ctx context.Context, e *entry) (err error) {
	if err := e.take(ctx); err != nil {
		return err
	}
	defer e.give()
	m.mu.Lock()
	used, block := len(e.users) > 0 || !e.recorded, e.block
	if !used {
		e.staged = false // whatever comes of it
	}
	m.mu.Unlock()
	if used {
		return nil
	}
	began, operation := time.Now(), "unmount_device"
	if block != "" {
		operation = "unmap_device"
	}
	defer func() { m.opts.Done(e.driver, operation, began, err) }()
	d, err := m.driver(e.driver)
	if err != nil {
		return fmt.Errorf("%s: attacher.UnmountDevice failed to create newCsiDriverClient: %w", pluginName, err)
	}
	target := m.stagingPath(e.key, block)
	if d.can(csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME) {
		err = m.call(ctx, d, func(ctx context.Context, node csi.NodeClient) error {
			_, err := node.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: e.handle, StagingTargetPath: m.shown(d.endpoint, target)})
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("%s: attacher.UnmountDevice failed: %w", pluginName, err)
	}
	if err := m.discard(m.staged(e.driver, e.handle), target); err != nil {
		return fmt.Errorf("failed to clean up global mount %s: %w", target, err)
	}
	m.mu.Lock()
	e.recorded, e.expansionRefused = false, false
	m.mu.Unlock()
	return nil
}

// ExpansionRefused reports whether the driver has refused to expand a volume because it is in use. The driver is not to
// be called for it again until the volume has left the node.
func (m *Manager) ExpansionRefused(v *Volume) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.volumes[key{v.Driver, v.Handle}]
	return e != nil && e.expansionRefused
}

// Expand has the driver expand the file system of a volume that is published, and returns its size in bytes. See
// [RefusedInUse].
func (m *Manager) Expand(ctx context.Context, v *Volume, size int64, secrets map[string]string) (int64, error) {
	d, err := m.driver(v.Driver)
	if err != nil {
		return 0, err
	}
	e, err := m.turn(ctx, v)
	if err != nil {
		return 0, err
	}
	defer e.give()
	request := &csi.NodeExpandVolumeRequest{
		VolumeId: v.Handle, VolumePath: m.shown(d.endpoint, m.target(v.Pod, v.Name, v.Block)), CapacityRange: &csi.CapacityRange{RequiredBytes: size},
		VolumeCapability: v.capability(d, false), Secrets: secrets,
	}
	if d.can(csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME) {
		request.StagingTargetPath = m.shown(d.endpoint, m.stagingPath(e.key, v.blockName()))
	}
	err = m.call(ctx, d, func(ctx context.Context, node csi.NodeClient) error {
		answer, err := node.NodeExpandVolume(ctx, request)
		size = max(size, answer.GetCapacityBytes())
		return err
	})
	if RefusedInUse(err) {
		m.mu.Lock()
		e.expansionRefused = true
		m.mu.Unlock()
	}
	return size, err
}
