package volumes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/sampan-io/sampan/internal/volumefit"
)

// An event is an event to write about a claim or a volume.
type event struct{ kind, reason, message string }

func normal(reason, format string, args ...any) *event {
	return &event{corev1.EventTypeNormal, reason, fmt.Sprintf(format, args...)}
}

func warning(reason, format string, args ...any) *event {
	return &event{corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...)}
}

// A claimView is the state of the cluster that matters for a claim.
type claimView struct {
	class    *storagev1.StorageClass    // of the claim; nil if it does not exist
	named    *corev1.PersistentVolume   // that the claim names; nil if there is none
	volumes  []*corev1.PersistentVolume // all, in any order
	pods     []string                   // names of pods that use the claim and have no node yet
	standard string                     // the default class; empty if there is none
}

// A claimPlan is the changes of a claim.
type claimPlan struct {
	bind        *corev1.PersistentVolume // to this volume; then there is nothing else
	phase       corev1.PersistentVolumeClaimPhase
	class       string // to be given to the claim; then there is nothing else
	provisioner string // to be asked for a volume
	event       *event
}

// planClaim returns the changes of a claim.
func planClaim(c *corev1.PersistentVolumeClaim, v claimView) claimPlan {
	if _, complete := c.Annotations[volumefit.BindCompleted]; complete {
		return planBound(c, v)
	}
	if c.DeletionTimestamp != nil {
		return claimPlan{phase: c.Status.Phase}
	}
	if c.Spec.VolumeName != "" {
		return planNamed(c, v)
	}
	pending := claimPlan{phase: corev1.ClaimPending}
	delays := volumefit.Delays(v.class)
	if found := match(c, v.volumes, delays); found != nil {
		return claimPlan{bind: found}
	}
	_, old := c.Annotations[corev1.BetaStorageClassAnnotation]
	switch class := volumefit.Class(c); {
	case c.Spec.StorageClassName == nil && !old && v.standard != "":
		return claimPlan{class: v.standard}
	case delays && c.Annotations[volumefit.SelectedNode] == "":
		pending.event = waitsFor(v.pods)
	case class == "":
		pending.event = normal("FailedBinding", "no persistent volumes available for this claim and no storage class is set")
	case v.class == nil:
		pending.event = warning("ProvisioningFailed", "storageclass.storage.k8s.io %q not found", class)
	case strings.HasPrefix(v.class.Provisioner, "kubernetes.io/"):
		pending.event = warning("ProvisioningFailed", "no volume plugin matched name: %s", v.class.Provisioner)
	default:
		pending.provisioner = v.class.Provisioner
		pending.event = normal("ExternalProvisioning", "Waiting for a volume to be created either by the external provisioner '%s' or manually by the system administrator. "+
			"If volume creation is delayed, please verify that the provisioner is running and correctly registered.", v.class.Provisioner)
	}
	return pending
}

// waitsFor says for whom a claim waits.
func waitsFor(pods []string) *event {
	switch len(pods) {
	case 0:
		return normal("WaitForFirstConsumer", "waiting for first consumer to be created before binding")
	case 1:
		return normal("WaitForPodScheduled", "waiting for pod %s to be scheduled", pods[0])
	}
	return normal("WaitForPodScheduled", "waiting for pods %s to be scheduled", strings.Join(pods, ","))
}

// planNamed is planClaim for a claim that wants a certain volume.
func planNamed(c *corev1.PersistentVolumeClaim, v claimView) claimPlan {
	pending := claimPlan{phase: corev1.ClaimPending}
	switch {
	case v.named == nil:
	case volumefit.ReservedFor(v.named, c):
		return claimPlan{bind: v.named}
	case v.named.Spec.ClaimRef != nil:
		pending.event = warning("FailedBinding", "volume %q already bound to a different claim.", v.named.Name)
	default:
		why := volumefit.Unfit(v.named, c)
		if why == "" {
			return claimPlan{bind: v.named}
		}
		pending.event = warning("VolumeMismatch", "Cannot bind to requested volume %q: %s", v.named.Name, why)
	}
	return pending
}

// planBound is planClaim for a claim that was bound before.
func planBound(c *corev1.PersistentVolumeClaim, v claimView) claimPlan {
	lost := claimPlan{phase: corev1.ClaimLost}
	switch {
	case c.Spec.VolumeName == "":
		lost.event = warning("ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
	case v.named == nil:
		lost.event = warning("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
	case v.named.Spec.ClaimRef == nil, v.named.Spec.ClaimRef.UID == c.UID:
		return claimPlan{bind: v.named}
	default:
		lost.event = warning("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
	}
	if c.Status.Phase == corev1.ClaimLost {
		lost.event = nil
	}
	return lost
}

// match returns the volume for a claim, or nil (volumes-V1).
func match(c *corev1.PersistentVolumeClaim, volumes []*corev1.PersistentVolume, delays bool) *corev1.PersistentVolume {
	wish, err := volumefit.Ask(c)
	if err != nil {
		return nil // the server has checked the selector
	}
	var best *corev1.PersistentVolume
	reserved := false
	for _, v := range volumes {
		if !wish.Suits(v) || !volumefit.Mountable(c, v) {
			continue
		}
		mine := volumefit.ReservedFor(v, c)
		if !mine && (reserved || delays || !wish.Allows(v)) {
			continue
		}
		if best == nil || mine && !reserved || better(v, best) < 0 {
			best, reserved = v, mine
		}
	}
	return best
}

func better(a, b *corev1.PersistentVolume) int {
	return cmp.Or(len(a.Spec.AccessModes)-len(b.Spec.AccessModes), volumefit.Smaller(a, b))
}

// A volumePlan is the changes of a volume.
type volumePlan struct {
	phase      corev1.PersistentVolumePhase // empty: it is left as it is
	message    string                       // why it failed
	unbind     bool                         // the claim has another volume
	claim      bool                         // the claim is to be looked at: it does the rest
	event      *event
	claimEvent *event // about the claim
}

// planVolume returns the changes of a volume. C is the claim with the name in its claimRef; nil if there is none.
func planVolume(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) volumePlan {
	ref := v.Spec.ClaimRef
	switch {
	case ref == nil:
		return volumePlan{phase: corev1.VolumeAvailable}
	case ref.UID == "":
		return volumePlan{phase: corev1.VolumeAvailable, claim: c != nil}
	case c == nil || c.UID != ref.UID:
		return planReleased(v)
	case c.Spec.VolumeName == "" && !volumefit.SameMode(c, v):
		return volumePlan{
			event:      warning("VolumeMismatch", "Cannot bind PersistentVolume to requested PersistentVolumeClaim %q due to incompatible volumeMode.", c.Name),
			claimEvent: warning("VolumeMismatch", "Cannot bind PersistentVolume %q to requested PersistentVolumeClaim due to incompatible volumeMode.", v.Name),
		}
	case c.Spec.VolumeName == "":
		return volumePlan{claim: true}
	case c.Spec.VolumeName == v.Name:
		return volumePlan{phase: corev1.VolumeBound}
	case v.Annotations[volumefit.ProvisionedBy] != "" && v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete:
		return planReleased(v) // it was made for a claim that has found another
	}
	return volumePlan{phase: corev1.VolumeAvailable, unbind: true}
}

// planReleased is planVolume for a volume whose claim is gone (volumes-V3, volumes-V4).
func planReleased(v *corev1.PersistentVolume) volumePlan {
	released := volumePlan{phase: corev1.VolumeReleased}
	if v.Status.Phase == corev1.VolumeFailed {
		return volumePlan{}
	}
	failed := func(reason, message string) volumePlan {
		return volumePlan{phase: corev1.VolumeFailed, message: message, event: warning(reason, "%s", message)}
	}
	switch v.Spec.PersistentVolumeReclaimPolicy {
	case corev1.PersistentVolumeReclaimRetain:
		return released
	case corev1.PersistentVolumeReclaimRecycle:
		return failed("VolumeFailedRecycle", "No recycler plugin found for the volume!")
	case corev1.PersistentVolumeReclaimDelete:
		by := v.Annotations[volumefit.ProvisionedBy]
		if by != "" && !strings.HasPrefix(by, "kubernetes.io/") || by == "" && v.Spec.CSI != nil {
			return released // its provisioner sees to it
		}
		return failed("VolumeFailedDelete", fmt.Sprintf("error getting deleter volume plugin for volume %q: no deletable volume plugin matched", v.Name))
	}
	return failed("VolumeUnknownReclaimPolicy", "Volume has unrecognized PersistentVolumeReclaimPolicy")
}

// standardClass returns the name of the default class, the newest if there are several; empty if there is none.
func standardClass(classes []*storagev1.StorageClass) string {
	all := slices.DeleteFunc(slices.Clone(classes), func(c *storagev1.StorageClass) bool {
		return c.Annotations["storageclass.kubernetes.io/is-default-class"] != "true" && c.Annotations["storageclass.beta.kubernetes.io/is-default-class"] != "true"
	})
	if len(all) == 0 {
		return ""
	}
	return slices.MinFunc(all, func(a, b *storagev1.StorageClass) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	}).Name
}
