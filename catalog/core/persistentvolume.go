package core

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/podspec"
)

func persistentVolumes() *catalog.Kind {
	spec, status := corev1.PersistentVolumeSpec{}.SwaggerDoc(), corev1.PersistentVolumeStatus{}.SwaggerDoc()
	text := func(name, description string, cell func(v *corev1.PersistentVolume) string) catalog.Column {
		return catalog.Text(name, description, cell)
	}
	return &catalog.Kind{
		GroupVersionKind: gvk("PersistentVolume"),
		Resource:         "persistentvolumes",
		Lifecycle:        catalog.Lifecycle{AnswersDeleted: true},
		Warn:             catalog.Warn(warnOfVolume),
		Singular:         "persistentvolume",
		ShortNames:       []string{"pv"},
		New:              func() catalog.Object { return &corev1.PersistentVolume{} },
		NewList:          func() runtime.Object { return &corev1.PersistentVolumeList{} },
		Default: catalog.Default(func(v *corev1.PersistentVolume) {
			podspec.DefaultVolume(&v.Spec)
			v.Status.Phase = cmp.Or(v.Status.Phase, corev1.VolumePending)
		}),
		Prepare: catalog.Prepare(func(v, old *corev1.PersistentVolume) {
			if old != nil {
				v.Status = old.Status
				return
			}
			v.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumePending, LastPhaseTransitionTime: new(metav1.NewTime(time.Now()))}
		}),
		Validate: catalog.Validate(validateVolume),
		Columns: []catalog.Column{
			text("Capacity", spec["capacity"], func(v *corev1.PersistentVolume) string { return v.Spec.Capacity.Storage().String() }),
			text("Access Modes", spec["accessModes"], func(v *corev1.PersistentVolume) string { return accessModes(v.Spec.AccessModes) }),
			text("Reclaim Policy", spec["persistentVolumeReclaimPolicy"], func(v *corev1.PersistentVolume) string {
				return string(v.Spec.PersistentVolumeReclaimPolicy)
			}),
			text("Status", status["phase"], func(v *corev1.PersistentVolume) string {
				if v.DeletionTimestamp != nil {
					return "Terminating"
				}
				return string(v.Status.Phase)
			}),
			text("Claim", spec["claimRef"], func(v *corev1.PersistentVolume) string {
				if v.Spec.ClaimRef == nil {
					return ""
				}
				return v.Spec.ClaimRef.Namespace + "/" + v.Spec.ClaimRef.Name
			}),
			text("StorageClass", spec["storageClassName"], func(v *corev1.PersistentVolume) string { return class(v.Annotations, &v.Spec.StorageClassName) }),
			text("VolumeAttributesClass", spec["volumeAttributesClassName"], func(v *corev1.PersistentVolume) string {
				return orUnset(v.Spec.VolumeAttributesClassName)
			}),
			text("Reason", status["reason"], func(v *corev1.PersistentVolume) string { return v.Status.Reason }),
			catalog.Age(),
			text("VolumeMode", spec["volumeMode"], func(v *corev1.PersistentVolume) string { return orUnset(v.Spec.VolumeMode) }).Wide(),
		},
		Subresources: []catalog.Subresource{{
			Name:  "status",
			Verbs: readWrite,
			Shape: catalog.Part{
				Prepare: catalog.Prepare(func(v, old *corev1.PersistentVolume) {
					v.Spec = old.Spec
					switch {
					case v.Status.Phase == old.Status.Phase && v.Status.LastPhaseTransitionTime == nil:
						v.Status.LastPhaseTransitionTime = old.Status.LastPhaseTransitionTime
					case v.Status.Phase != old.Status.Phase && (v.Status.LastPhaseTransitionTime == nil || v.Status.LastPhaseTransitionTime.Equal(old.Status.LastPhaseTransitionTime)):
						v.Status.LastPhaseTransitionTime = new(metav1.NewTime(time.Now()))
					}
				}),
			},
		}},
	}
}

func validateVolume(v, old *corev1.PersistentVolume) field.ErrorList {
	at := field.NewPath("spec")
	if old == nil {
		return podspec.ValidateVolume(v.Name, &v.Spec, at)
	}
	if equality.Semantic.DeepEqual(v.Spec, old.Spec) {
		return nil // a volume that was stored before a rule existed can change elsewhere
	}
	errs := podspec.ValidateVolume(v.Name, &v.Spec, at)
	source := v.Spec.PersistentVolumeSource
	if was := old.Spec.CSI; source.CSI != nil && was != nil && was.ControllerExpandSecretRef == nil && source.CSI.ControllerExpandSecretRef != nil {
		csi := *source.CSI
		csi.ControllerExpandSecretRef = nil // it may be set once
		source.CSI = &csi
	}
	if !equality.Semantic.DeepEqual(source, old.Spec.PersistentVolumeSource) {
		errs = append(errs, field.Forbidden(at.Child("persistentvolumesource"), "spec.persistentvolumesource is immutable after creation"))
	}
	if old.Spec.VolumeAttributesClassName != nil && v.Spec.VolumeAttributesClassName == nil {
		errs = append(errs, field.Forbidden(at.Child("volumeAttributesClassName"), "update from non-nil value to nil is forbidden"))
	}
	errs = append(errs, apivalidation.ValidateImmutableField(v.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...)
	if old.Spec.NodeAffinity != nil {
		errs = append(errs, apivalidation.ValidateImmutableField(v.Spec.NodeAffinity, old.Spec.NodeAffinity, field.NewPath("nodeAffinity"))...)
	}
	return errs
}
