package volumes

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/node/csi"
)

// Expansion on the node is the second half of a larger claim: the resizer of the driver has made the volume larger, and
// its driver on the node makes the file system larger. status.allocatedResourceStatuses of the claim says which of the
// two is at work (KEP-1790), so that a claim can be made smaller again if the node can't do it:
//
//	NodeResizePending     the resizer leaves the rest to the node
//	NodeResizeInProgress  the node has begun, and tries again after failures
//	NodeResizeInfeasible  the node has given up; the resizer begins again with the size that the claim asks for
//
// A resizer that does not write the status leaves it empty.

// grown reports whether a volume is larger than its claim says.
func grown(c *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) bool {
	size := pv.Spec.Capacity[corev1.ResourceStorage]
	return size.Cmp(c.Status.Capacity[corev1.ResourceStorage]) > 0
}

// expansionDue reports whether the node is to have the driver of a volume expand it.
func expansionDue(c *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) bool {
	if !grown(c, pv) {
		return false
	}
	switch c.Status.AllocatedResourceStatuses[corev1.ResourceStorage] {
	case "", corev1.PersistentVolumeClaimNodeResizePending, corev1.PersistentVolumeClaimNodeResizeInProgress:
		return true
	case corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimControllerResizeInfeasible,
		corev1.PersistentVolumeClaimNodeResizeInfeasible:
	}
	return false
}

// A claimChange is a change of the status of a claim, as a strategic merge patch.
type claimChange map[string]any

// expansionBegun returns the change that says that the node has begun; nil if the claim says so, or its resizer does
// not write the status.
func expansionBegun(c *corev1.PersistentVolumeClaim) claimChange {
	if c.Status.AllocatedResourceStatuses[corev1.ResourceStorage] != corev1.PersistentVolumeClaimNodeResizePending {
		return nil
	}
	return claimChange{"allocatedResourceStatuses": map[string]any{"storage": corev1.PersistentVolumeClaimNodeResizeInProgress}}
}

// expansionFailed returns the change that says that a driver did not expand a volume to a size; nil if the driver may
// still be at work, or if the resizer does not write the status: it would not begin again. The node gives up if the
// driver can't ever do it, or has failed again after the claim was changed to another size.
func expansionFailed(c *corev1.PersistentVolumeClaim, size resource.Quantity, err error, now time.Time) claimChange {
	outcome := csi.OutcomeOf(err)
	if outcome == csi.Unknown || c.Status.AllocatedResourceStatuses[corev1.ResourceStorage] == "" {
		return nil
	}
	before := slices.IndexFunc(c.Status.Conditions, func(o corev1.PersistentVolumeClaimCondition) bool {
		return o.Type == corev1.PersistentVolumeClaimNodeResizeError && o.Status == corev1.ConditionTrue
	})
	condition := corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimNodeResizeError, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now),
		Message: fmt.Sprintf("failed to expand pvc with %v", err),
	}
	if before >= 0 {
		condition.LastTransitionTime = c.Status.Conditions[before].LastTransitionTime
	}
	change := claimChange{"conditions": []any{condition}}
	other := c.Spec.Resources.Requests.Storage().Cmp(size) != 0
	if outcome == csi.Infeasible || before >= 0 && other {
		change["allocatedResourceStatuses"] = map[string]any{"storage": corev1.PersistentVolumeClaimNodeResizeInfeasible}
	}
	return change
}

// expansionDone returns the change that gives a claim its new size, of which nothing waits any more. The driver may
// have made the volume larger than it had to.
func expansionDone(c *corev1.PersistentVolumeClaim, size resource.Quantity, bytes int64) claimChange {
	if bytes > size.Value() {
		size = *resource.NewQuantity(bytes, resource.BinarySI)
	}
	change := claimChange{"capacity": map[string]any{"storage": size.String()}}
	var gone []any
	for _, condition := range c.Status.Conditions {
		switch condition.Type { //nolint:exhaustive // others stay
		case corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending,
			corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError:
			gone = append(gone, map[string]any{"type": condition.Type, "$patch": "delete"})
		}
	}
	if len(gone) > 0 {
		change["conditions"] = gone
	}
	if len(c.Status.AllocatedResourceStatuses) > 0 {
		change["allocatedResourceStatuses"] = map[string]any{"storage": nil}
	}
	return change
}

// changeClaim writes a change of the status of a claim, and returns the claim. The write fails if the claim has changed
// since it was read.
func (f *Files) changeClaim(ctx context.Context, c *corev1.PersistentVolumeClaim, change claimChange) (*corev1.PersistentVolumeClaim, error) {
	if change == nil {
		return c, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": c.UID, "resourceVersion": c.ResourceVersion}, "status": change})
	if err != nil {
		return c, err
	}
	now, err := client.PersistentVolumeClaims.Patch(ctx, f.node.Client, c.Namespace, c.Name, types.StrategicMergePatchType, patch, "status")
	if err != nil {
		return c, fmt.Errorf("write status of persistentvolumeclaim %s/%s: %w", c.Namespace, c.Name, err)
	}
	return now, nil
}

// expanded writes the new size of a volume into its claim, of which nothing waits any more.
func (f *Files) expanded(ctx context.Context, c *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, bytes int64) error {
	size := pv.Spec.Capacity[corev1.ResourceStorage]
	return f.endExpansion(ctx, c, pv, func(c *corev1.PersistentVolumeClaim) claimChange { return expansionDone(c, size, bytes) })
}

// notExpanded writes into the claim of a volume that its driver has not expanded it.
func (f *Files) notExpanded(ctx context.Context, c *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, cause error) error {
	size := pv.Spec.Capacity[corev1.ResourceStorage]
	return f.endExpansion(ctx, c, pv, func(c *corev1.PersistentVolumeClaim) claimChange { return expansionFailed(c, size, cause, time.Now()) })
}

// endExpansion writes how an expansion has ended. If the claim has changed since it was read, it is read again, and
// gets the change that it needs now; none if it is another one or is not to be expanded any more.
func (f *Files) endExpansion(ctx context.Context, c *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, change func(*corev1.PersistentVolumeClaim) claimChange) error {
	var err error
	for range conflicts {
		if _, err = f.changeClaim(ctx, c, change(c)); !apierrors.IsConflict(err) {
			return err
		}
		now, failed := client.PersistentVolumeClaims.Get(ctx, f.node.Client, c.Namespace, c.Name)
		switch {
		case apierrors.IsNotFound(failed):
			return nil
		case failed != nil:
			return failed
		case now.UID != c.UID || !expansionDue(now, pv):
			return nil
		}
		c = now
	}
	return err
}

// reportExpansion sends the events about an expansion that has ended.
func (f *Files) reportExpansion(ctx context.Context, pod *corev1.Pod, c *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, err error) {
	switch {
	case ctx.Err() != nil:
	case err != nil:
		f.node.Recorder.Event(pod, corev1.EventTypeWarning, "VolumeResizeFailed", "NodeExpandVolume.NodeExpandVolume failed for volume %q : %v", pv.Name, err)
	default:
		f.node.Recorder.Event(pod, corev1.EventTypeNormal, "FileSystemResizeSuccessful", "MountVolume.NodeExpandVolume succeeded for volume %q %s", pv.Name, f.node.Name)
		f.node.Recorder.Event(c, corev1.EventTypeNormal, "FileSystemResizeSuccessful", "MountVolume.NodeExpandVolume succeeded for volume %q %s", pv.Name, f.node.Name)
	}
}

// expand has the driver expand the file system of a volume that has become larger than the claim says, and writes that
// into the claim. A failure is reported; the volume can be used with its old size.
func (f *Files) expand(ctx context.Context, pod *corev1.Pod, v *driverVolume) {
	if v.ReadOnly || !expansionDue(v.claim, v.pv) || f.csi.ExpansionRefused(&v.Volume) {
		return
	}
	able, err := f.csi.Abilities(v.Driver)
	if err != nil || !able.Expand {
		return // the controller of the driver does all of it
	}
	err = f.expandVolume(ctx, v)
	if csi.RefusedInUse(err) { // not a failure of the pod, as in kubelet
		f.node.Log.Info("volume not expanded while it is in use, as its driver wants it", "volume", v.Name, "driver", v.Driver, "err", err)
		return
	}
	f.reportExpansion(ctx, pod, v.claim, v.pv, err)
}

// expandVolume is expand without its events.
func (f *Files) expandVolume(ctx context.Context, v *driverVolume) (err error) {
	if v.claim, err = f.changeClaim(ctx, v.claim, expansionBegun(v.claim)); err != nil {
		return err
	}
	var secrets map[string]string
	if ref := v.pv.Spec.CSI.NodeExpandSecretRef; ref != nil {
		if secrets, err = f.credentials(ctx, "NodeExpandSecretRef", ref); err != nil {
			return err
		}
	}
	size := v.pv.Spec.Capacity[corev1.ResourceStorage]
	bytes, err := f.csi.Expand(ctx, &v.Volume, size.Value(), secrets)
	if err == nil {
		return f.expanded(ctx, v.claim, v.pv, bytes)
	}
	if failed := f.notExpanded(ctx, v.claim, v.pv, err); failed != nil {
		f.node.Log.WarnContext(ctx, "failed expansion not written into the claim", "claim", v.claim.Namespace+"/"+v.claim.Name, "err", failed)
	}
	return err
}
