package podspec

import (
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// DefaultClaim fills in the optional fields of a claim of storage.
func DefaultClaim(s *corev1.PersistentVolumeClaimSpec) {
	setDefault(&s.VolumeMode, corev1.PersistentVolumeFilesystem)
	RoundUp(s.Resources.Limits)
	RoundUp(s.Resources.Requests)
}

// DefaultVolume fills in the optional fields of a persistent volume.
func DefaultVolume(s *corev1.PersistentVolumeSpec) {
	setDefault(&s.VolumeMode, corev1.PersistentVolumeFilesystem)
	if s.PersistentVolumeReclaimPolicy == "" {
		s.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	}
	if s.HostPath != nil {
		setDefault(&s.HostPath.Type, corev1.HostPathUnset)
	}
	if s.ISCSI != nil {
		orDefault(&s.ISCSI.ISCSIInterface, defaultISCSIInterface)
	}
	if s.RBD != nil {
		orDefault(&s.RBD.RBDPool, defaultRBDPool)
		orDefault(&s.RBD.RadosUser, defaultRBDUser)
		orDefault(&s.RBD.Keyring, defaultRBDKeyring)
	}
	defaultAzureDisk(s.AzureDisk)
	if s.ScaleIO != nil {
		orDefault(&s.ScaleIO.StorageMode, defaultScaleIOStorage)
		orDefault(&s.ScaleIO.FSType, defaultScaleIOFS)
	}
	RoundUp(s.Capacity)
}

// ValidateClaim returns the faults of a claim of storage: an object, or a
// template of claims.
func ValidateClaim(s *corev1.PersistentVolumeClaimSpec, at *field.Path) field.ErrorList {
	return faults(at, func(at where) field.ErrorList {
		var r report
		r.checkClaim(s, at)
		return r.errs
	})
}

func (r *report) checkClaim(s *corev1.PersistentVolumeClaimSpec, at where) {
	if len(s.AccessModes) == 0 {
		r.add(field.Required(at.child("accessModes").path, "at least 1 access mode is required"))
	}
	r.checkAccessModes(s.AccessModes, at)
	r.add(metav1validation.ValidateLabelSelector(s.Selector, metav1validation.LabelSelectorValidationOptions{}, at.child("selector").path)...)
	if size, ok := s.Resources.Requests[corev1.ResourceStorage]; !ok {
		r.required(at.child("resources").key(string(corev1.ResourceStorage)))
	} else if size.Sign() <= 0 {
		r.invalid(at.child("resources").key(string(corev1.ResourceStorage)), size.String(), "must be greater than zero")
	}
	if s.StorageClassName != nil && *s.StorageClassName != "" {
		r.each(at.child("storageClassName"), *s.StorageClassName, validation.IsDNS1123Subdomain(*s.StorageClassName))
	}
	r.checkVolumeMode(s.VolumeMode, at)
	if d := s.DataSource; d != nil {
		r.checkDataSource(d.APIGroup, d.Kind, d.Name, at.child("dataSource"))
	}
	if d := s.DataSourceRef; d != nil {
		r.checkDataSource(d.APIGroup, d.Kind, d.Name, at.child("dataSourceRef"))
		if d.Namespace != nil && *d.Namespace != "" {
			r.each(at.child("dataSourceRef", "namespace"), *d.Namespace, validation.IsDNS1123Label(*d.Namespace))
		}
	}
	if d, ref := s.DataSource, s.DataSourceRef; d != nil && ref != nil {
		switch {
		case ref.Namespace != nil && *ref.Namespace != "":
			r.add(field.Invalid(at.path, at.child("dataSource").path, "may not be specified when dataSourceRef.namespace is specified"))
		case d.Kind != ref.Kind || d.Name != ref.Name || !equality.Semantic.DeepEqual(d.APIGroup, ref.APIGroup):
			r.add(field.Invalid(at.path, at.child("dataSource").path, "must match dataSourceRef"))
		}
	}
	if name := s.VolumeAttributesClassName; name != nil && *name != "" {
		r.each(at.child("volumeAttributesClassName"), *name, validation.IsDNS1123Subdomain(*name))
	}
}

func (r *report) checkAccessModes(modes []corev1.PersistentVolumeAccessMode, at where) {
	known := []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod}
	alone, others := false, false
	for _, mode := range modes {
		switch {
		case mode == corev1.ReadWriteOncePod:
			alone = true
		case slices.Contains(known, mode):
			others = true
		default:
			r.add(field.NotSupported(at.child("accessModes").path, mode, known))
		}
	}
	if alone && others {
		r.forbidden(at.child("accessModes"), "may not use ReadWriteOncePod with other access modes")
	}
}

func (r *report) checkVolumeMode(mode *corev1.PersistentVolumeMode, at where) {
	if mode != nil && *mode != corev1.PersistentVolumeBlock && *mode != corev1.PersistentVolumeFilesystem {
		r.add(field.NotSupported(at.child("volumeMode").path, *mode, []corev1.PersistentVolumeMode{corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem}))
	}
}

func (r *report) checkDataSource(group *string, kind, name string, at where) {
	if name == "" {
		r.required(at.child("name"))
	}
	if kind == "" {
		r.required(at.child("kind"))
	}
	switch {
	case group != nil && *group != "":
		r.each(at.child("apiGroup"), *group, validation.IsDNS1123Subdomain(*group))
	case kind != "PersistentVolumeClaim":
		r.invalid(at, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup")
	}
}

// ValidateVolume returns the faults of a persistent volume with a name.
func ValidateVolume(name string, s *corev1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	return faults(at, func(at where) field.ErrorList {
		c := checker{}
		c.checkPersistentVolume(name, s, at)
		return c.errs
	})
}

// ValidateInlineVolume returns the faults of a volume that is part of another object. It must have a source of a CSI
// driver, and may have nothing that only a claim would ask for.
func ValidateInlineVolume(s *corev1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	return faults(at, func(at where) field.ErrorList {
		c := checker{}
		c.checkInlineVolume(s, at)
		return c.errs
	})
}

func (c *checker) checkInlineVolume(s *corev1.PersistentVolumeSpec, at where) {
	const inline = " in the context of inline volumes"
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"claimRef", s.ClaimRef != nil}, {"capacity", len(s.Capacity) > 0}, {"nodeAffinity", s.NodeAffinity != nil}, {"storageClassName", s.StorageClassName != ""},
	} {
		if f.given {
			c.forbidden(at.child(f.name), "may not be specified"+inline)
		}
	}
	if p := s.PersistentVolumeReclaimPolicy; p != "" && p != corev1.PersistentVolumeReclaimRetain {
		c.forbidden(at.child("persistentVolumeReclaimPolicy"), "may only be Retain"+inline)
	}
	if m := s.VolumeMode; m != nil && *m != corev1.PersistentVolumeFilesystem {
		c.forbidden(at.child("volumeMode"), "may not specify volumeMode other than Filesystem"+inline)
	}
	if s.CSI == nil {
		c.add(field.Required(at.child("csi").path, "has to be specified"+inline))
	}
	c.list(at.child("accessModes"), len(s.AccessModes))
	c.checkAccessModes(s.AccessModes, at)
	c.checkAttributesClass(s, at)
	c.checkVolumeType("", s, at)
}

// checkAttributesClass checks the class of the attributes of a volume, which only CSI drivers know.
func (c *checker) checkAttributesClass(s *corev1.PersistentVolumeSpec, at where) {
	class := s.VolumeAttributesClassName
	if class == nil {
		return
	}
	if *class == "" {
		c.add(field.Required(at.child("volumeAttributesClassName").path, "an empty string is disallowed"))
	} else {
		c.name(at.child("volumeAttributesClassName"), *class, validation.IsDNS1123Subdomain)
	}
	if s.CSI == nil {
		c.add(field.Required(at.child("csi").path, "has to be specified when using volumeAttributesClassName"))
	}
}

func (c *checker) checkPersistentVolume(name string, s *corev1.PersistentVolumeSpec, at where) {
	if len(s.AccessModes) == 0 {
		c.required(at.child("accessModes"))
	}
	c.checkAccessModes(s.AccessModes, at)
	if len(s.Capacity) == 0 {
		c.required(at.child("capacity"))
	}
	if _, ok := s.Capacity[corev1.ResourceStorage]; !ok || len(s.Capacity) > 1 {
		c.add(field.NotSupported(at.child("capacity").path, s.Capacity, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	for name, q := range s.Capacity {
		if q.Sign() <= 0 {
			c.invalid(at.child("capacity").key(string(name)), q.String(), "must be greater than zero")
		}
	}
	supported(&c.report, at.child("persistentVolumeReclaimPolicy"), s.PersistentVolumeReclaimPolicy,
		corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain)
	if s.StorageClassName != "" {
		c.each(at.child("storageClassName"), s.StorageClassName, validation.IsDNS1123Subdomain(s.StorageClassName))
	}
	c.checkVolumeMode(s.VolumeMode, at)
	if a := s.NodeAffinity; a != nil {
		terms := at.child("nodeAffinity", "required")
		if a.Required == nil {
			c.add(field.Required(terms.path, "must specify required node constraints"))
		} else {
			c.checkNodeSelector(a.Required, terms)
		}
	}
	c.checkAttributesClass(s, at)
	c.checkVolumeType(name, s, at)
}

// checkVolumeType checks that a volume is of exactly one type, and that type.
func (c *checker) checkVolumeType(name string, s *corev1.PersistentVolumeSpec, at where) {
	if c.types(&s.PersistentVolumeSource, at, "may not specify more than 1 volume type") == 0 {
		c.add(field.Required(at.path, "must specify a volume type"))
		return
	}
	c.checkVolumeSource(name, s, at)
}

func (c *checker) checkVolumeSource(name string, s *corev1.PersistentVolumeSpec, at where) {
	switch {
	case s.HostPath != nil:
		c.checkHostPath(s.HostPath, at.child("hostPath"))
		if path.Clean(s.HostPath.Path) == "/" && s.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
			c.forbidden(at.child("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'")
		}
	case s.Local != nil:
		switch path := at.child("local", "path"); {
		case s.Local.Path == "":
			c.required(path)
		case hasBackstep(s.Local.Path):
			c.invalid(path, s.Local.Path, "must not contain '..'")
		}
		if s.NodeAffinity == nil {
			c.add(field.Required(at.child("nodeAffinity").path, "Local volume requires node affinity"))
		}
	default:
		c.checkForeignSource(name, &s.PersistentVolumeSource, at)
	}
}
