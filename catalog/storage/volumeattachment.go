package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/declared"
	"github.com/sampan-io/sampan/catalog/podspec"
)

// Bounds of an attacher's reports, in bytes.
const (
	longestAttachment  = 256 << 10
	longestVolumeError = 1024
)

func volumeAttachments() *catalog.Kind {
	spec, source, status := storagev1.VolumeAttachmentSpec{}.SwaggerDoc(), storagev1.VolumeAttachmentSource{}.SwaggerDoc(), storagev1.VolumeAttachmentStatus{}.SwaggerDoc()
	return &catalog.Kind{
		GroupVersionKind: storagev1.SchemeGroupVersion.WithKind("VolumeAttachment"),
		Resource:         "volumeattachments",
		Lifecycle:        catalog.Lifecycle{AnswersDeleted: true},
		Conditional:      true,
		Singular:         "volumeattachment",
		New:              func() catalog.Object { return &storagev1.VolumeAttachment{} },
		NewList:          func() runtime.Object { return &storagev1.VolumeAttachmentList{} },
		Prepare: catalog.Prepare(func(a, old *storagev1.VolumeAttachment) {
			a.Status = storagev1.VolumeAttachmentStatus{}
			if old != nil {
				a.Status = old.Status
			}
		}),
		Validate: declared.With(catalog.Validate(validateAttachment), ""),
		Columns: []catalog.Column{
			catalog.Text("Attacher", spec["attacher"], func(a *storagev1.VolumeAttachment) string { return a.Spec.Attacher }).Declared("string", "name"),
			catalog.Text("PV", source["persistentVolumeName"], func(a *storagev1.VolumeAttachment) string {
				return orUnset(a.Spec.Source.PersistentVolumeName, "")
			}),
			catalog.Text("Node", spec["nodeName"], func(a *storagev1.VolumeAttachment) string { return a.Spec.NodeName }),
			catalog.Flag("Attached", status["attached"], func(a *storagev1.VolumeAttachment) bool { return a.Status.Attached }),
			catalog.Age(),
		},
		Subresources: []catalog.Subresource{{
			Name:  "status",
			Verbs: []string{"get", "patch", "update"},
			Shape: catalog.Part{
				Prepare: catalog.Prepare(func(a, old *storagev1.VolumeAttachment) {
					a.Spec = old.Spec
					metav1.ResetObjectMetaForStatus(&a.ObjectMeta, &old.ObjectMeta)
				}),
				Keeps:    []string{"metadata"},
				Validate: declared.With(catalog.Validate(validateAttachment), "status"),
			},
		}},
	}
}

// validateAttachment checks all but the attacher and changes, for which there are declared rules.
func validateAttachment(a, _ *storagev1.VolumeAttachment) (errs field.ErrorList) {
	at := field.NewPath("spec")
	errs = append(errs, validateAttached(&a.Spec.Source, at.Child("source"))...)
	for _, fault := range validation.IsDNS1123Subdomain(a.Spec.NodeName) {
		errs = append(errs, field.Invalid(at.Child("nodeName"), a.Spec.NodeName, fault))
	}
	status, size := field.NewPath("status"), 0
	for k, v := range a.Status.AttachmentMetadata {
		size += len(k) + len(v)
	}
	if size > longestAttachment {
		errs = append(errs, field.TooLong(status.Child("attachmentMetadata"), "", longestAttachment))
	}
	errs = append(errs, validateVolumeError(a.Status.AttachError, status.Child("attachError"))...)
	errs = append(errs, validateVolumeError(a.Status.DetachError, status.Child("detachError"))...)
	return errs
}

func validateAttached(s *storagev1.VolumeAttachmentSource, at *field.Path) (errs field.ErrorList) {
	const one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
	name := at.Child("persistentVolumeName")
	switch {
	case s.InlineVolumeSpec == nil && s.PersistentVolumeName == nil:
		return field.ErrorList{field.Required(at, one)}
	case s.InlineVolumeSpec != nil && s.PersistentVolumeName != nil:
		return field.ErrorList{field.Forbidden(at, one)}
	case s.InlineVolumeSpec != nil:
		return podspec.ValidateInlineVolume(s.InlineVolumeSpec, at.Child("inlineVolumeSpec"))
	case *s.PersistentVolumeName == "":
		errs = append(errs, field.Required(name, "must specify non empty persistentVolumeName"))
	}
	for _, fault := range validation.IsDNS1123Subdomain(*s.PersistentVolumeName) {
		errs = append(errs, field.Invalid(name, *s.PersistentVolumeName, fault))
	}
	return errs
}
