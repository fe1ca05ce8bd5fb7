package volumes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/mounts"
	"github.com/sampan-io/sampan/internal/volumefit"
	"github.com/sampan-io/sampan/node/credentials"
	"github.com/sampan-io/sampan/node/csi"
	"github.com/sampan-io/sampan/node/metrics"
	"github.com/sampan-io/sampan/node/volume"
)

const (
	// attachLimit is how long the agent waits for a volume to be attached before it reports that and tries again, as in kubelet.
	attachLimit = 2*time.Minute + 3*time.Second

	// revisit is how often the agent looks again at volumes that change while a pod has them: whose driver wants that
	// (requiresRepublish), or that can be expanded. It is how often kubelet looks at a pod.
	revisit = time.Minute
)

// A driverVolume is a volume of a pod that a CSI driver mounts.
type driverVolume struct {
	csi.Volume
	at     *corev1.Volume                // in the pod
	claim  *corev1.PersistentVolumeClaim // nil: it is defined in the pod
	pv     *corev1.PersistentVolume      // of the claim
	driver *storagev1.CSIDriver          // nil: there is no such object
}

// mountError is an error about a volume, in the words of kubelet's events.
func mountError(what, name string, err error) error {
	return fmt.Errorf("%s failed for volume %q : %w", what, name, err)
}

// MountDrivers mounts the volumes of a pod, of those in used, whose mount may take long, because a driver does it or a file system is
// made, and returns when to look at them again (zero: never). Needed is when the pod first needed them. Errors are for users.
func (f *Files) MountDrivers(ctx context.Context, pod *corev1.Pod, needed time.Time, used map[string]bool) (next time.Time, err error) {
	if f.root == "" {
		return next, nil
	}
	for i := range pod.Spec.Volumes {
		if !used[pod.Spec.Volumes[i].Name] {
			continue
		}
		changes, err := f.mountByDriver(ctx, pod, &pod.Spec.Volumes[i], needed, false)
		if err != nil {
			return next, err
		}
		if changes {
			next = time.Now().Add(revisit)
		}
	}
	return next, nil
}

// RevisitDrivers looks again at the volumes of a running pod that [Files.MountDrivers] has mounted: their drivers may want to publish them
// again, and they may have to be expanded. It goes on after a volume that fails, and returns when to look again (zero: never). The
// errors are for users.
func (f *Files) RevisitDrivers(ctx context.Context, pod *corev1.Pod) (next time.Time, errs []error) {
	if f.root == "" {
		return next, nil
	}
	used := volume.Used(&pod.Spec)
	for i := range pod.Spec.Volumes {
		if !used[pod.Spec.Volumes[i].Name] {
			continue
		}
		changes, err := f.mountByDriver(ctx, pod, &pod.Spec.Volumes[i], time.Time{}, true)
		if err != nil {
			errs = append(errs, err)
		}
		if changes {
			next = time.Now().Add(revisit)
		}
	}
	return next, errs
}

// mountByDriver mounts one volume, if a driver does it or a file system is made, and reports whether it may change while the pod has it. If
// again is true the pod runs already.
func (f *Files) mountByDriver(ctx context.Context, pod *corev1.Pod, at *corev1.Volume, needed time.Time, again bool) (changes bool, err error) {
	claim, pv, err := f.claimAt(ctx, pod, at)
	if err != nil {
		return false, mountError("MountVolume.SetUp", at.Name, err)
	}
	if pv != nil {
		f.node.Metrics.Claim(pod.UID, at.Name, pv)
	}
	if isDisk(pv) {
		return true, f.mountDisk(ctx, pod, at, claim, pv)
	}
	if f.csi == nil {
		return false, nil
	}
	v, err := f.driverVolume(ctx, pod, at, claim, pv)
	if err != nil {
		return false, mountError("MountVolume.SetUp", at.Name, err)
	}
	if v == nil {
		return false, nil
	}
	return v.republished() || v.expandable(), f.mountMeasured(ctx, pod, v, needed, again)
}

func (v *driverVolume) republished() bool {
	return v.driver != nil && v.driver.Spec.RequiresRepublish != nil && *v.driver.Spec.RequiresRepublish
}

func (v *driverVolume) expandable() bool {
	return v.pv != nil && !v.ReadOnly
}

// claimOf returns the claim of a pod's volume, and its volume, if they may be used. A claim that is being deleted may be used by a pod that
// has its volume: the deletion waits for the pod.
func (f *Files) claimOf(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume, error) {
	name, ephemeral := volumefit.Named(pod, v)
	c, err := client.PersistentVolumeClaims.Get(ctx, f.node.Client, pod.Namespace, name)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("failed to fetch PVC from API server: %w", err)
	case ephemeral && volumefit.Owned(pod, c) != nil:
		return nil, nil, volumefit.Owned(pod, c)
	case c.DeletionTimestamp != nil && !f.linked(pod, v):
		return nil, nil, errors.New("PVC is being deleted")
	case !volumefit.Bound(c) || c.Status.Phase != corev1.ClaimBound:
		return nil, nil, errors.New("PVC is not bound")
	}
	pv, err := client.PersistentVolumes.Get(ctx, f.node.Client, "", c.Spec.VolumeName)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("failed to fetch PV %s from API server: %w", c.Spec.VolumeName, err)
	case pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != c.UID:
		return nil, nil, fmt.Errorf("PV %s is bound to another claim", pv.Name)
	}
	return c, pv, nil
}

// claimAt is claimOf for any volume: nil if it has no claim.
func (f *Files) claimAt(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume, error) {
	name, _ := volumefit.Named(pod, v)
	if name == "" {
		return nil, nil, nil
	}
	claim, pv, err := f.claimOf(ctx, pod, v)
	if err != nil {
		return nil, nil, fmt.Errorf("error processing PVC %s/%s: %w", pod.Namespace, name, err)
	}
	return claim, pv, nil
}

// driverVolume describes a volume, with its claim if it has one, to its driver, without secrets and tokens; nil if it has no driver.
func (f *Files) driverVolume(ctx context.Context, pod *corev1.Pod, at *corev1.Volume, claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) (*driverVolume, error) {
	v := &driverVolume{at: at, claim: claim, pv: pv, Volume: csi.Volume{Pod: pod.UID, Own: true}}
	switch {
	case at.CSI != nil:
		v.describeEphemeral(pod, at.CSI)
	case pv != nil && pv.Spec.CSI != nil:
		v.describeClaimed(at)
	default:
		return nil, nil
	}
	driver, err := client.CSIDrivers.Get(ctx, f.node.Client, "", v.Driver)
	switch {
	case apierrors.IsNotFound(err):
		if v.Ephemeral {
			return nil, fmt.Errorf("kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: volume mode %q not supported by driver %s (no CSIDriver object)",
				storagev1.VolumeLifecycleEphemeral, v.Driver)
		}
	case err != nil:
		return nil, err
	default:
		v.driver = driver
		mode := storagev1.VolumeLifecyclePersistent
		if v.Ephemeral {
			mode = storagev1.VolumeLifecycleEphemeral
		}
		if !slices.Contains(driver.Spec.VolumeLifecycleModes, mode) {
			return nil, fmt.Errorf("kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: volume mode %q not supported by driver %s (only supports %q)",
				mode, v.Driver, driver.Spec.VolumeLifecycleModes)
		}
	}
	v.Attached = !v.Ephemeral && (v.driver == nil || v.driver.Spec.AttachRequired == nil || *v.driver.Spec.AttachRequired)
	if s := pod.Spec.SecurityContext; s != nil && s.FSGroup != nil {
		v.Group = s.FSGroup
		v.Own = v.owned()
		v.OwnOnMismatch = s.FSGroupChangePolicy != nil && *s.FSGroupChangePolicy == corev1.FSGroupChangeOnRootMismatch
	}
	return v, nil
}

func (v *driverVolume) describeEphemeral(pod *corev1.Pod, s *corev1.CSIVolumeSource) {
	v.Name, v.Driver, v.Handle, v.Ephemeral = v.at.Name, s.Driver, csi.EphemeralHandle(pod.UID, v.at.Name), true
	v.ReadOnly, v.Attributes, v.AccessMode = s.ReadOnly != nil && *s.ReadOnly, s.VolumeAttributes, corev1.ReadWriteOnce
	if s.FSType != nil {
		v.FSType = *s.FSType
	}
}

func (v *driverVolume) describeClaimed(at *corev1.Volume) {
	s := v.pv.Spec.CSI
	v.Name, v.Driver, v.Handle, v.FSType, v.Attributes = v.pv.Name, s.Driver, s.VolumeHandle, s.FSType, s.VolumeAttributes
	v.MountOptions, v.AccessMode = v.pv.Spec.MountOptions, corev1.ReadWriteOnce
	if len(v.pv.Spec.AccessModes) > 0 {
		v.AccessMode = v.pv.Spec.AccessModes[0]
	}
	v.ReadOnly = at.PersistentVolumeClaim != nil && at.PersistentVolumeClaim.ReadOnly
	v.Block = isBlock(v.pv)
}

func isBlock(pv *corev1.PersistentVolume) bool {
	return pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == corev1.PersistentVolumeBlock
}

// owned reports whether the agent gives the files to the pod's group, as the policy of the driver says.
func (v *driverVolume) owned() bool {
	policy := storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	if v.driver != nil && v.driver.Spec.FSGroupPolicy != nil {
		policy = *v.driver.Spec.FSGroupPolicy
	}
	switch {
	case policy == storagev1.NoneFSGroupPolicy || v.ReadOnly:
		return false
	case policy == storagev1.FileFSGroupPolicy:
		return true
	case v.FSType == "":
		return false
	}
	return v.Ephemeral || slices.Contains(v.pv.Spec.AccessModes, corev1.ReadWriteOnce) || slices.Contains(v.pv.Spec.AccessModes, corev1.ReadWriteOncePod)
}

// usedAs checks that containers use a volume as what it is: a block device or a file system.
func usedAs(pod *corev1.Pod, name string, block bool) error {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if block && slices.ContainsFunc(list[i].VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == name }) {
				return fmt.Errorf("volume %s has volumeMode %s, but is specified in volumeMounts", name, corev1.PersistentVolumeBlock)
			}
			if !block && slices.ContainsFunc(list[i].VolumeDevices, func(d corev1.VolumeDevice) bool { return d.Name == name }) {
				return fmt.Errorf("volume %s has volumeMode %s, but is specified in volumeDevices", name, corev1.PersistentVolumeFilesystem)
			}
		}
	}
	return nil
}

// mountMeasured is mountDriver, and records how long it took after the volume was attached.
func (f *Files) mountMeasured(ctx context.Context, pod *corev1.Pod, v *driverVolume, needed time.Time, again bool) error {
	plugin, began := metrics.CSIPlugin(v.Driver), time.Now()
	attached := func(err error) {
		f.node.Metrics.Operation(plugin, metrics.VerifyAttached, began, err)
		began = time.Now()
	}
	err := f.mountDriver(ctx, pod, v, again, attached)
	switch {
	case v.Block:
		f.node.Metrics.Operation(plugin, metrics.MapVolume, began, err)
	default:
		f.node.Metrics.Mounted(plugin, needed, began, err)
	}
	return err
}

// mountDriver mounts one volume. It calls attached when it knows whether the volume is attached, if that is necessary.
func (f *Files) mountDriver(ctx context.Context, pod *corev1.Pod, v *driverVolume, again bool, attached func(error)) error {
	setUp, device := "MountVolume.SetUp", "MountVolume.MountDevice"
	if v.Block {
		setUp, device = "MapVolume.MapPodDevice", "MapVolume.SetUpDevice"
	}
	if err := usedAs(pod, v.at.Name, v.Block); err != nil {
		return mountError(setUp, v.Name, err)
	}
	if err := f.csi.Hold(&v.Volume); err != nil {
		return mountError(setUp, v.Name, err)
	}
	if v.Attached {
		err := f.awaitAttached(ctx, v)
		if attached(err); err != nil {
			return err
		}
	}
	if !v.Ephemeral {
		able, err := f.csi.Abilities(v.Driver)
		if err == nil && able.Stage && v.pv.Spec.CSI.NodeStageSecretRef != nil {
			v.StageSecrets, err = f.credentials(ctx, "NodeStageSecretRef", v.pv.Spec.CSI.NodeStageSecretRef)
			if err != nil {
				return mountError(device, v.Name, err)
			}
		}
		if err := f.csi.Stage(ctx, &v.Volume); err != nil {
			return mountError(device, v.Name, err)
		}
	}
	if err := f.describePod(ctx, pod, v); err != nil {
		return mountError(setUp, v.Name, err)
	}
	if err := f.csi.Publish(ctx, &v.Volume, again && v.republished()); err != nil {
		return mountError(setUp, v.Name, err)
	}
	if v.claim != nil {
		f.expand(ctx, pod, v)
	}
	return nil
}

// awaitAttached waits until the volume is in use and attached, as the Node object says, and reads what the attacher
// says to the driver. The controller does not detach what is in use.
func (f *Files) awaitAttached(ctx context.Context, v *driverVolume) error {
	limited, cancel := context.WithTimeout(ctx, attachLimit)
	defer cancel()
	name := volumefit.UniqueName(v.Driver, v.Handle)
	for {
		changed := f.selfChanges.next()
		node, ok := f.node.Self()
		if ok && slices.Contains(node.Status.VolumesInUse, name) &&
			slices.ContainsFunc(node.Status.VolumesAttached, func(a corev1.AttachedVolume) bool { return a.Name == name }) {
			break
		}
		select {
		case <-changed:
		case <-limited.Done():
			if ctx.Err() == nil && f.exceeded(ctx, v) {
				return tooManyVolumes(v.at.Name, context.Cause(limited))
			}
			return fmt.Errorf("Unable to attach or mount volumes: unmounted volumes=[%[1]s], unattached volumes=[%[1]s], failed to process volumes=[]: %[2]w", //nolint:staticcheck // kubelet's words
				v.at.Name, context.Cause(limited))
		}
	}
	attachment, err := client.VolumeAttachments.Get(ctx, f.node.Client, "", volumefit.AttachmentName(v.Handle, v.Driver, f.node.Name))
	if err == nil && !attachment.Status.Attached {
		err = fmt.Errorf("volume %s has GET error for volume attachment %s: it is not attached", v.Handle, attachment.Name)
	}
	if err != nil {
		return mountError("MountVolume.WaitForAttach", v.Name, err)
	}
	v.PublishContext = attachment.Status.AttachmentMetadata
	return nil
}

// credentials returns the data of a secret for a driver.
func (f *Files) credentials(ctx context.Context, field string, ref *corev1.SecretReference) (map[string]string, error) {
	s, err := client.Secrets.Get(ctx, f.node.Client, ref.Namespace, ref.Name)
	if err != nil {
		return nil, fmt.Errorf("fetching %[1]s %[2]s/%[3]s failed: kubernetes.io/csi: failed to find the secret %[3]s in the namespace %[2]s with error: %[4]w",
			field, ref.Namespace, ref.Name, err)
	}
	data := make(map[string]string, len(s.Data))
	for k, v := range s.Data {
		data[k] = string(v)
	}
	return data, nil
}

// describePod adds what the driver gets to know about the pod, and the secrets with which it publishes the volume.
func (f *Files) describePod(ctx context.Context, pod *corev1.Pod, v *driverVolume) error {
	var ref *corev1.SecretReference
	if v.pv != nil {
		ref = v.pv.Spec.CSI.NodePublishSecretRef
	} else if local := v.at.CSI.NodePublishSecretRef; local != nil {
		ref = &corev1.SecretReference{Namespace: pod.Namespace, Name: local.Name}
	}
	v.PublishSecrets, v.PodAttributes = map[string]string{}, map[string]string{}
	if ref != nil {
		var err error
		if v.PublishSecrets, err = f.credentials(ctx, "NodePublishSecretRef", ref); err != nil {
			return err
		}
	}
	if v.driver == nil {
		return nil
	}
	if info := v.driver.Spec.PodInfoOnMount; info != nil && *info {
		const prefix = "csi.storage.k8s.io/"
		v.PodAttributes[prefix+"pod.name"], v.PodAttributes[prefix+"pod.namespace"], v.PodAttributes[prefix+"pod.uid"] = pod.Name, pod.Namespace, string(pod.UID)
		v.PodAttributes[prefix+"serviceAccount.name"] = pod.Spec.ServiceAccountName
		v.PodAttributes[prefix+"ephemeral"] = strconv.FormatBool(v.Ephemeral)
	}
	if len(v.driver.Spec.TokenRequests) == 0 {
		return nil
	}
	tokens, err := f.driverTokens(ctx, pod, v.driver.Spec.TokenRequests)
	if err != nil {
		return fmt.Errorf("kubernetes.io/csi: mounter.SetUpAt failed to get service accoount token attributes: %w", err)
	}
	const key = "csi.storage.k8s.io/serviceAccount.tokens"
	if secret := v.driver.Spec.ServiceAccountTokenInSecrets; secret != nil && *secret {
		v.PublishSecrets[key] = tokens
	} else {
		v.PodAttributes[key] = tokens
	}
	return nil
}

// driverTokens returns tokens of the pod's service account, in JSON, by audience.
func (f *Files) driverTokens(ctx context.Context, pod *corev1.Pod, requests []storagev1.TokenRequest) (string, error) {
	tokens := map[string]authenticationv1.TokenRequestStatus{}
	for _, r := range requests {
		granted, err := requestToken(ctx, f.node.Client, credentials.Of(pod), r.Audience, r.ExpirationSeconds, "")
		if err != nil {
			return "", err
		}
		tokens[r.Audience] = granted
	}
	b, err := json.Marshal(tokens)
	return string(b), err
}

// ReleaseDrivers has drivers unmount the volumes of a pod, whose containers have ended.
func (f *Files) ReleaseDrivers(ctx context.Context, uid types.UID) error {
	if f.csi == nil || !isDirectory(uid) {
		return nil
	}
	if err := mounts.UnmountBelow(filepath.Join(f.Dir(uid), "parts")); err != nil {
		return err
	}
	return f.csi.Release(ctx, uid)
}

// driverVolumeAt returns the name under which a driver has published a pod's volume; "" if none has.
func (f *Files) driverVolumeAt(pod *corev1.Pod, v *corev1.Volume) string {
	if f.csi == nil {
		return ""
	}
	path, err := os.Readlink(f.Path(pod, v))
	if name := filepath.Base(filepath.Dir(path)); err == nil && path == f.csi.Path(pod.UID, name) {
		return name
	}
	return ""
}

// driverStats returns what the driver of a volume says about its use; nil if it says nothing.
func (f *Files) driverStats(ctx context.Context, pod *corev1.Pod, pv string) *statsapi.FsStats {
	usage, at, err := f.csi.Stats(ctx, pod.UID, pv, f.node.Config.VolumeStatsAggPeriod.Duration)
	if err != nil || len(usage) == 0 {
		return nil
	}
	number := func(v int64) *uint64 { return new(uint64(max(0, v))) }
	s := &statsapi.FsStats{Time: metav1.NewTime(at)}
	for _, u := range usage {
		switch u.GetUnit() {
		case spec.VolumeUsage_BYTES:
			s.CapacityBytes, s.AvailableBytes, s.UsedBytes = number(u.GetTotal()), number(u.GetAvailable()), number(u.GetUsed())
		case spec.VolumeUsage_INODES:
			s.Inodes, s.InodesFree, s.InodesUsed = number(u.GetTotal()), number(u.GetAvailable()), number(u.GetUsed())
		case spec.VolumeUsage_UNKNOWN:
		}
	}
	return s
}
