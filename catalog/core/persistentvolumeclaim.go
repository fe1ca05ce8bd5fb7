package core

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/podspec"
)

func persistentVolumeClaims() *catalog.Kind {
	spec, status := corev1.PersistentVolumeClaimSpec{}.SwaggerDoc(), corev1.PersistentVolumeClaimStatus{}.SwaggerDoc()
	text := func(name, description string, cell func(c *corev1.PersistentVolumeClaim) string) catalog.Column {
		return catalog.Text(name, description, cell)
	}
	return &catalog.Kind{
		GroupVersionKind: gvk("PersistentVolumeClaim"),
		Resource:         "persistentvolumeclaims",
		Lifecycle:        catalog.Lifecycle{AnswersDeleted: true},
		Warn:             catalog.Warn(warnOfClaim),
		Singular:         "persistentvolumeclaim",
		ShortNames:       []string{"pvc"},
		Namespaced:       true,
		New:              func() catalog.Object { return &corev1.PersistentVolumeClaim{} },
		NewList:          func() runtime.Object { return &corev1.PersistentVolumeClaimList{} },
		Default: catalog.Default(func(c *corev1.PersistentVolumeClaim) {
			podspec.DefaultClaim(&c.Spec)
			c.Status.Phase = cmp.Or(c.Status.Phase, corev1.ClaimPending)
		}),
		Prepare: catalog.Prepare(func(c, old *corev1.PersistentVolumeClaim) {
			c.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
			var was *corev1.PersistentVolumeClaimSpec
			if old != nil {
				c.Status, was = old.Status, &old.Spec
			}
			prepareSources(&c.Spec, was)
		}),
		Validate: catalog.Validate(validateClaim),
		Columns: []catalog.Column{
			text("Status", status["phase"], func(c *corev1.PersistentVolumeClaim) string {
				if c.DeletionTimestamp != nil {
					return "Terminating"
				}
				return string(c.Status.Phase)
			}),
			text("Volume", spec["volumeName"], func(c *corev1.PersistentVolumeClaim) string { return c.Spec.VolumeName }),
			text("Capacity", status["capacity"], func(c *corev1.PersistentVolumeClaim) string {
				if c.Spec.VolumeName == "" {
					return ""
				}
				return c.Status.Capacity.Storage().String()
			}),
			text("Access Modes", status["accessModes"], func(c *corev1.PersistentVolumeClaim) string {
				if c.Spec.VolumeName == "" {
					return ""
				}
				return accessModes(c.Status.AccessModes)
			}),
			text("StorageClass", spec["storageClassName"], func(c *corev1.PersistentVolumeClaim) string { return class(c.Annotations, c.Spec.StorageClassName) }),
			text("VolumeAttributesClass", spec["volumeAttributesClassName"], func(c *corev1.PersistentVolumeClaim) string {
				return orUnset(c.Spec.VolumeAttributesClassName)
			}),
			catalog.Age(),
			text("VolumeMode", spec["volumeMode"], func(c *corev1.PersistentVolumeClaim) string { return orUnset(c.Spec.VolumeMode) }).Wide(),
		},
		Fields: map[string]func(catalog.Object) string{"name": catalog.Object.GetName}, // from times before metadata.name
		Subresources: []catalog.Subresource{{
			Name:  "status",
			Verbs: readWrite,
			Shape: catalog.Part{
				Prepare: catalog.Prepare(func(c, old *corev1.PersistentVolumeClaim) {
					c.Spec = old.Spec
					if old.Status.HealthStatus == nil {
						c.Status.HealthStatus = nil // a gate that is closed by default in v1.37
					}
				}),
				Validate: catalog.Validate(validateClaimStatus),
			},
		}},
	}
}

// prepareSources drops sources that upstream ignores for the sake of old clients, and gives dataSource and
// dataSourceRef the same value. Old is nil on creation.
func prepareSources(s, old *corev1.PersistentVolumeClaimSpec) {
	// A source in another namespace is behind a gate that is closed by default in v1.37.
	if ref := s.DataSourceRef; ref != nil && ref.Namespace != nil && *ref.Namespace != "" && (old == nil || old.DataSourceRef == nil) {
		s.DataSourceRef = nil
	}
	had := old != nil && (old.DataSource != nil || old.DataSourceRef != nil)
	if !had && s.DataSourceRef == nil && s.DataSource != nil && !isOldSource(s.DataSource) {
		s.DataSource = nil
	}
	matchSources(s)
}

// isOldSource reports whether dataSource could name d before there was dataSourceRef.
func isOldSource(d *corev1.TypedLocalObjectReference) bool {
	group := ""
	if d.APIGroup != nil {
		group = *d.APIGroup
	}
	return d.Kind == "PersistentVolumeClaim" && group == "" || d.Kind == "VolumeSnapshot" && group == "snapshot.storage.k8s.io"
}

// matchSources copies the source of a claim to the field that lacks it.
func matchSources(s *corev1.PersistentVolumeClaimSpec) {
	switch d, ref := s.DataSource, s.DataSourceRef; {
	case d != nil && ref == nil:
		s.DataSourceRef = &corev1.TypedObjectReference{APIGroup: d.APIGroup, Kind: d.Kind, Name: d.Name}
	case d == nil && ref != nil && (ref.Namespace == nil || *ref.Namespace == ""):
		s.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ref.APIGroup, Kind: ref.Kind, Name: ref.Name}
	}
}

// accessModes says in short how a volume can be mounted, as kubectl does.
func accessModes(modes []corev1.PersistentVolumeAccessMode) string {
	var words []string
	for _, known := range []struct {
		mode corev1.PersistentVolumeAccessMode
		word string
	}{
		{corev1.ReadWriteOnce, "RWO"},
		{corev1.ReadOnlyMany, "ROX"},
		{corev1.ReadWriteMany, "RWX"},
		{corev1.ReadWriteOncePod, "RWOP"},
	} {
		if slices.Contains(modes, known.mode) {
			words = append(words, known.word)
		}
	}
	return strings.Join(words, ",")
}

// class returns the class of storage, which was an annotation before it was a field.
func class(annotations map[string]string, name *string) string {
	if old, ok := annotations[corev1.BetaStorageClassAnnotation]; ok {
		return old
	}
	if name == nil {
		return ""
	}
	return *name
}

func orUnset[T ~string](v *T) string {
	if v == nil {
		return catalog.Unset
	}
	return string(*v)
}

func validateClaim(c, old *corev1.PersistentVolumeClaim) field.ErrorList {
	at := field.NewPath("spec")
	if old == nil {
		return podspec.ValidateClaim(&c.Spec, at)
	}
	if equality.Semantic.DeepEqual(c.Spec, old.Spec) {
		return nil // a claim that was stored before a rule existed can change elsewhere
	}
	errs := podspec.ValidateClaim(&c.Spec, at)
	bound := old.Status.Phase == corev1.ClaimBound
	allowed := old.Spec.DeepCopy()
	matchSources(allowed)
	if allowed.VolumeName == "" {
		allowed.VolumeName = c.Spec.VolumeName // set by the binder, once
	}
	if class(old.Annotations, old.Spec.StorageClassName) == "" && old.Spec.StorageClassName == nil && !bound {
		allowed.StorageClassName = c.Spec.StorageClassName // a default class that came later
	}
	if bound {
		if allowed.Resources.Requests != nil && c.Spec.Resources.Requests != nil {
			allowed.Resources.Requests[corev1.ResourceStorage] = c.Spec.Resources.Requests[corev1.ResourceStorage]
		}
		allowed.VolumeAttributesClassName = c.Spec.VolumeAttributesClassName
	}
	if !equality.Semantic.DeepEqual(*allowed, c.Spec) {
		errs = append(errs, field.Forbidden(at, "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"))
	}
	size := at.Child("resources", "requests", "storage")
	asked, before, has := c.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage], old.Status.Capacity[corev1.ResourceStorage]
	// What was asked for and could not be had may be taken back, down to what is there.
	if asked.Cmp(before) < 0 && asked.Cmp(has) <= 0 {
		errs = append(errs, field.Forbidden(size, "field can not be less than status.capacity"))
	}
	if name := c.Spec.VolumeAttributesClassName; old.Status.CurrentVolumeAttributesClassName != nil && (name == nil || *name == "") && !equality.Semantic.DeepEqual(name, old.Spec.VolumeAttributesClassName) {
		what := "nil"
		if name != nil {
			what = "empty string"
		}
		errs = append(errs, field.Forbidden(at.Child("volumeAttributesClassName"), "update to "+what+" is forbidden when status.currentVolumeAttributesClassName is not nil"))
	}
	errs = append(errs, apivalidation.ValidateImmutableField(c.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...)
	return errs
}

func validateClaimStatus(c, _ *corev1.PersistentVolumeClaim) (errs field.ErrorList) {
	at := field.NewPath("status")
	if c.ResourceVersion == "" {
		errs = append(errs, field.Required(field.NewPath("resourceVersion"), ""))
	}
	if len(c.Spec.AccessModes) == 0 {
		errs = append(errs, field.Required(field.NewPath("Spec", "accessModes"), ""))
	}
	for name, q := range c.Status.Capacity {
		errs = append(errs, podspec.ValidateQuantity(name, q, at.Child("capacity").Key(string(name)))...)
	}
	statuses := at.Child("allocatedResourceStatuses")
	for _, name := range slices.Sorted(maps.Keys(c.Status.AllocatedResourceStatuses)) {
		errs = append(errs, validateClaimResource(name, statuses)...)
		if !slices.Contains(resizeStatuses, c.Status.AllocatedResourceStatuses[name]) {
			errs = append(errs, field.NotSupported(statuses, name, resizeStatuses))
		}
	}
	allocated := at.Child("allocatedResources")
	for _, name := range slices.Sorted(maps.Keys(c.Status.AllocatedResources)) {
		faults := validateClaimResource(name, allocated)
		if len(faults) == 0 {
			faults = podspec.ValidateQuantity(corev1.ResourceStorage, c.Status.AllocatedResources[name], allocated.Key(string(name)))
		}
		errs = append(errs, faults...)
	}
	return errs
}

// resizeStatuses are how far the resize of a claim can be, sorted.
var resizeStatuses = []corev1.ClaimResourceStatus{
	corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimControllerResizeInfeasible,
	corev1.PersistentVolumeClaimNodeResizeInProgress, corev1.PersistentVolumeClaimNodeResizeInfeasible, corev1.PersistentVolumeClaimNodeResizePending,
}

// validateClaimResource checks the name of something that a claim has got. Of Kubernetes' own resources that is
// storage.
func validateClaimResource(name corev1.ResourceName, at *field.Path) field.ErrorList {
	if bad := validation.IsQualifiedName(string(name)); len(bad) > 0 {
		return faults(bad, at, string(name))
	}
	native := !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
	if native && name != corev1.ResourceStorage {
		return field.ErrorList{field.NotSupported(at, string(name), []corev1.ResourceName{corev1.ResourceStorage})}
	}
	return nil
}
