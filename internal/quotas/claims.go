package quotas

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	countClaims = corev1.ResourceName("count/persistentvolumeclaims")

	// ofClass is between the name of a storage class and the name of a resource.
	ofClass = ".storageclass.storage.k8s.io/"
)

func countsForClaims(name corev1.ResourceName) bool {
	switch name {
	case countClaims, corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage:
		return true
	}
	return strings.HasSuffix(string(name), ofClass+string(corev1.ResourcePersistentVolumeClaims)) ||
		strings.HasSuffix(string(name), ofClass+string(corev1.ResourceRequestsStorage))
}

// claimUsage counts a claim and its storage, also for its storage class.
func claimUsage(obj Object, _ time.Time) corev1.ResourceList {
	used := corev1.ResourceList{countClaims: number(1), corev1.ResourcePersistentVolumeClaims: number(1)}
	claim, ok := obj.(*corev1.PersistentVolumeClaim)
	if !ok {
		return used
	}
	storage, requested := claimStorage(claim)
	if requested {
		used[corev1.ResourceRequestsStorage] = storage
	}
	if class := storageClass(claim); class != "" {
		prefix := corev1.ResourceName(class + ofClass)
		used[prefix+corev1.ResourcePersistentVolumeClaims] = number(1)
		if requested {
			used[prefix+corev1.ResourceRequestsStorage] = storage
		}
	}
	return used
}

// claimStorage returns the storage that a claim requests, in whole bytes, or more if more is allocated.
func claimStorage(claim *corev1.PersistentVolumeClaim) (resource.Quantity, bool) {
	q, ok := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if !ok {
		return q, false
	}
	if allocated, ok := claim.Status.AllocatedResources[corev1.ResourceStorage]; ok && allocated.Cmp(q) > 0 {
		q = allocated
	}
	q = q.DeepCopy()
	q.RoundUp(0)
	return q, true
}

func storageClass(claim *corev1.PersistentVolumeClaim) string {
	if class, ok := claim.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return class
	}
	if claim.Spec.StorageClassName != nil {
		return *claim.Spec.StorageClassName
	}
	return ""
}

// claimInScope knows the one scope of claims: the VolumeAttributesClasses that a claim has, or had, or will have.
func claimInScope(s corev1.ScopedResourceSelectorRequirement, obj Object) bool {
	claim, ok := obj.(*corev1.PersistentVolumeClaim)
	if !ok || s.ScopeName != corev1.ResourceQuotaScopeVolumeAttributesClass {
		return false
	}
	var classes []string
	for _, class := range []*string{claim.Spec.VolumeAttributesClassName, claim.Status.CurrentVolumeAttributesClassName} {
		if class != nil && *class != "" {
			classes = append(classes, *class)
		}
	}
	if m := claim.Status.ModifyVolumeStatus; m != nil && m.TargetVolumeAttributesClassName != "" {
		classes = append(classes, m.TargetVolumeAttributesClassName)
	}
	return selects(s, classes...)
}
