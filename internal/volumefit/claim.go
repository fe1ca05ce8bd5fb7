package volumefit

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Annotations and finalizers, which the parts of upstream have in common.
const (
	BindCompleted     = "pv.kubernetes.io/bind-completed"      // of claims: they were bound, for good
	BoundByController = "pv.kubernetes.io/bound-by-controller" // of both: who wrote the name was no user
	ProvisionedBy     = "pv.kubernetes.io/provisioned-by"      // of volumes: who made it

	// PreResizeCapacity is an annotation of volumes: the size of the file system, while a node has yet to expand it.
	PreResizeCapacity = "volume.alpha.kubernetes.io/pre-resize-capacity"

	SelectedNode = "volume.kubernetes.io/selected-node" // of claims: where the first consumer is to run
	Provisioner  = "volume.kubernetes.io/storage-provisioner"
	// OldProvisioner is what Provisioner was called before; provisioners may know that name alone.
	OldProvisioner = "volume.beta.kubernetes.io/storage-provisioner"

	// NoProvisioner is the provisioner of classes without dynamic provisioning.
	NoProvisioner = "kubernetes.io/no-provisioner"

	Protection       = "kubernetes.io/pvc-protection" // of claims
	VolumeProtection = "kubernetes.io/pv-protection"
)

// Named returns the name of the claim of a pod's volume, "" if it has none. A generic ephemeral volume has one
// that is named after pod and volume (KEP-1698), which must be the pod's own: see [Owned].
func Named(pod *corev1.Pod, v *corev1.Volume) (name string, ephemeral bool) {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName, false
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name, true
	}
	return "", false
}

// Owned returns an error if the claim of an ephemeral volume is not the pod's own.
func Owned(pod *corev1.Pod, c *corev1.PersistentVolumeClaim) error {
	if !metav1.IsControlledBy(c, pod) {
		return fmt.Errorf("PVC %s/%s was not created for pod %s/%s (pod is not owner)", c.Namespace, c.Name, pod.Namespace, pod.Name)
	}
	return nil
}

// Class returns the name of a claim's class, "" if it has none.
func Class(c *corev1.PersistentVolumeClaim) string {
	if old, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return old
	}
	if c.Spec.StorageClassName == nil {
		return ""
	}
	return *c.Spec.StorageClassName
}

// VolumeClass returns the name of a volume's class, "" if it has none.
func VolumeClass(v *corev1.PersistentVolume) string {
	if old, ok := v.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return old
	}
	return v.Spec.StorageClassName
}

// Delays reports whether claims of a class wait for their first consumer; a nil class does not.
func Delays(class *storagev1.StorageClass) bool {
	return class != nil && class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// Bound reports whether a claim has its volume and the binder is done with it.
func Bound(c *corev1.PersistentVolumeClaim) bool {
	_, complete := c.Annotations[BindCompleted]
	return c.Spec.VolumeName != "" && (complete || c.Status.Phase == corev1.ClaimBound)
}

// ReservedFor reports whether a volume is a claim's, bound already or not (B2).
func ReservedFor(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) bool {
	ref := v.Spec.ClaimRef
	return ref != nil && ref.Name == c.Name && ref.Namespace == c.Namespace && (ref.UID == "" || ref.UID == c.UID)
}

// Reserve returns the volume as it is when it is bound to the claim, and whether that is different. What it is given it leaves
// as it is.
func Reserve(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, bool) {
	if ref := v.Spec.ClaimRef; ref != nil && ref.Name == c.Name && ref.Namespace == c.Namespace && ref.UID == c.UID {
		return v, false
	}
	out := v.DeepCopy()
	if !ReservedFor(v, c) {
		metav1.SetMetaDataAnnotation(&out.ObjectMeta, BoundByController, "yes")
	}
	out.Spec.ClaimRef = &corev1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion,
	}
	return out, true
}

// A Wish is what a claim asks of volumes.
type Wish struct {
	claim    *corev1.PersistentVolumeClaim
	size     resource.Quantity
	selector labels.Selector // nil: any
}

// Ask returns what a claim asks for. The error is about its selector.
func Ask(c *corev1.PersistentVolumeClaim) (Wish, error) {
	w := Wish{claim: c, size: c.Spec.Resources.Requests[corev1.ResourceStorage]}
	if c.Spec.Selector == nil {
		return w, nil
	}
	var err error
	if w.selector, err = metav1.LabelSelectorAsSelector(c.Spec.Selector); err != nil {
		return w, fmt.Errorf("selector of claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	return w, nil
}

// Claim returns whose wish it is.
func (w *Wish) Claim() *corev1.PersistentVolumeClaim { return w.claim }

// Size returns the requested size in bytes.
func (w *Wish) Size() int64 { return w.size.Value() }

// Suits reports whether a volume could be the claim's if it is reserved for it: then class, selector and modes of access do not
// count.
func (w *Wish) Suits(v *corev1.PersistentVolume) bool {
	capacity := v.Spec.Capacity[corev1.ResourceStorage]
	return v.DeletionTimestamp == nil && capacity.Cmp(w.size) >= 0 && SameMode(w.claim, v) && sameAttributes(w.claim, v)
}

// Allows reports whether a volume that suits and is not bound can be taken for the claim.
func (w *Wish) Allows(v *corev1.PersistentVolume) bool {
	return v.Spec.ClaimRef == nil && v.Status.Phase == corev1.VolumeAvailable && VolumeClass(v) == Class(w.claim) &&
		(w.selector == nil || w.selector.Matches(labels.Set(v.Labels))) && Mountable(w.claim, v)
}

// Mountable reports whether a volume can be mounted in all the ways that a claim asks for.
func Mountable(c *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) bool {
	for _, want := range c.Spec.AccessModes {
		found := false
		for _, has := range v.Spec.AccessModes {
			found = found || has == want
		}
		if !found {
			return false
		}
	}
	return true
}

// Smaller orders volumes by capacity, and by name.
func Smaller(a, b *corev1.PersistentVolume) int {
	return cmp.Or(a.Spec.Capacity.Storage().Cmp(*b.Spec.Capacity.Storage()), cmp.Compare(a.Name, b.Name))
}

// Unfit says why a volume that a claim names cannot be bound to it, in the words of upstream's events; "" if it can.
func Unfit(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) string {
	capacity, size := v.Spec.Capacity[corev1.ResourceStorage], c.Spec.Resources.Requests[corev1.ResourceStorage]
	switch {
	case v.DeletionTimestamp != nil:
		return fmt.Sprintf("the volume is marked for deletion %q", v.Name)
	case capacity.Cmp(size) < 0:
		return "requested PV is too small"
	case VolumeClass(v) != Class(c):
		return "storageClassName does not match"
	case !sameAttributes(c, v):
		return "volumeAttributesClassName does not match"
	case !SameMode(c, v):
		return "incompatible volumeMode"
	case !Mountable(c, v):
		return "incompatible accessMode"
	}
	return ""
}

// SameMode reports whether claim and volume agree on being a file system or a block device.
func SameMode(c *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) bool {
	of := func(m *corev1.PersistentVolumeMode) corev1.PersistentVolumeMode {
		if m == nil {
			return corev1.PersistentVolumeFilesystem
		}
		return *m
	}
	return of(c.Spec.VolumeMode) == of(v.Spec.VolumeMode)
}

func sameAttributes(c *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) bool {
	of := func(name *string) string {
		if name == nil {
			return ""
		}
		return *name
	}
	return of(c.Spec.VolumeAttributesClassName) == of(v.Spec.VolumeAttributesClassName)
}
