package admission

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/catalog"
)

// Storage gives claims that name no class the default class, lets a bound claim grow
// only if its class says that its volumes can, and has claims, volumes and VolumeAttributesClasses protected while they are in use from
// their first moment on: the controllers take that finalizer away.
type Storage struct{ reader Reader }

// NewStorage returns the plug-in.
func NewStorage(r Reader) Storage { return Storage{r} }

// Name implements [Plugin]. Upstream these are three, DefaultStorageClass,
// PersistentVolumeClaimResize and StorageObjectInUseProtection.
func (Storage) Name() string { return "Storage" }

// Admit implements [Mutator].
func (p Storage) Admit(ctx context.Context, a *Attributes) error {
	if a.Operation == Create && a.Subresource == "" {
		switch o := a.Object.(type) {
		case *corev1.PersistentVolume:
			protect(o, "kubernetes.io/pv-protection")
		case *storagev1.VolumeAttributesClass:
			protect(o, "kubernetes.io/vac-protection")
		}
	}
	claim, ok := a.Object.(*corev1.PersistentVolumeClaim)
	if !ok || !a.is("persistentvolumeclaims", "") {
		return nil
	}
	if a.Operation == Create {
		protect(claim, "kubernetes.io/pvc-protection")
		return p.classify(ctx, claim)
	}
	old, ok := a.Old.(*corev1.PersistentVolumeClaim)
	if !ok || claim.Spec.Resources.Requests.Storage().Cmp(*old.Spec.Resources.Requests.Storage()) <= 0 || old.Status.Phase != corev1.ClaimBound {
		return nil
	}
	name := classOf(claim)
	if name == "" {
		return refuse(a, "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize")
	}
	class, err := p.reader.Get(ctx, storageClasses(), "", name)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if c, ok := class.(*storagev1.StorageClass); !ok || c.AllowVolumeExpansion == nil || !*c.AllowVolumeExpansion {
		return refuse(a, "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize")
	}
	return nil
}

func protect(obj catalog.Object, finalizer string) {
	if !slices.Contains(obj.GetFinalizers(), finalizer) {
		obj.SetFinalizers(append(slices.Clone(obj.GetFinalizers()), finalizer))
	}
}

func storageClasses() schema.GroupVersionResource {
	return storagev1.SchemeGroupVersion.WithResource("storageclasses")
}

func classOf(c *corev1.PersistentVolumeClaim) string {
	if name, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return name
	}
	if c.Spec.StorageClassName == nil {
		return ""
	}
	return *c.Spec.StorageClassName
}

// classify gives a claim the default class: the newest, if there are several.
func (p Storage) classify(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if _, old := claim.Annotations[corev1.BetaStorageClassAnnotation]; old || claim.Spec.StorageClassName != nil {
		return nil
	}
	all, err := p.reader.List(ctx, storageClasses(), "", nil)
	if err != nil {
		return err
	}
	newest := newestDefault(all, "storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
	if newest != nil {
		claim.Spec.StorageClassName = new(newest.GetName())
	}
	return nil
}
