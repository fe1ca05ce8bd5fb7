package rollouts

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
)

// volumes shows the volumes of a template. Sources that pods on a node of ours cannot have
// are shown by the name of their field.
func (s *sheet) volumes(all []corev1.Volume) {
	if len(all) == 0 {
		s.line(1, "Volumes:\t%s", none)
		return
	}
	s.line(1, "Volumes:")
	for _, v := range all {
		s.line(1, " %s:", v.Name)
		s.volume(v.VolumeSource)
	}
}

// fields writes NAME:, tab, value for each pair.
func (s *sheet) fields(pairs ...any) {
	for n := 0; n+1 < len(pairs); n += 2 {
		s.line(2, "%s:\t%v", pairs[n], pairs[n+1])
	}
}

func (s *sheet) volume(v corev1.VolumeSource) {
	switch {
	case v.HostPath != nil:
		kind := none
		if v.HostPath.Type != nil {
			kind = string(*v.HostPath.Type)
		}
		s.fields("Type", "HostPath (bare host directory volume)", "Path", v.HostPath.Path, "HostPathType", kind)
	case v.EmptyDir != nil:
		limit := "<unset>"
		if q := v.EmptyDir.SizeLimit; q != nil && q.Sign() > 0 {
			limit = q.String()
		}
		s.fields("Type", "EmptyDir (a temporary directory that shares a pod's lifetime)", "Medium", v.EmptyDir.Medium, "SizeLimit", limit)
	case v.Secret != nil:
		s.fields("Type", "Secret (a volume populated by a Secret)", "SecretName", v.Secret.SecretName, "Optional", yes(v.Secret.Optional))
	case v.ConfigMap != nil:
		s.fields("Type", "ConfigMap (a volume populated by a ConfigMap)", "Name", v.ConfigMap.Name, "Optional", yes(v.ConfigMap.Optional))
	case v.NFS != nil:
		s.fields("Type", "NFS (an NFS mount that lasts the lifetime of a pod)", "Server", v.NFS.Server, "Path", v.NFS.Path, "ReadOnly", v.NFS.ReadOnly)
	case v.PersistentVolumeClaim != nil:
		s.fields("Type", "PersistentVolumeClaim (a reference to a PersistentVolumeClaim in the same namespace)",
			"ClaimName", v.PersistentVolumeClaim.ClaimName, "ReadOnly", v.PersistentVolumeClaim.ReadOnly)
	case v.Ephemeral != nil:
		s.fields("Type", "EphemeralVolume (an inline specification for a volume that gets created and deleted with the pod)")
		if v.Ephemeral.VolumeClaimTemplate != nil {
			s.claim(v.Ephemeral.VolumeClaimTemplate)
		}
	case v.DownwardAPI != nil:
		s.fields("Type", "DownwardAPI (a volume populated by information about the pod)")
		s.line(2, "Items:")
		for _, i := range v.DownwardAPI.Items {
			if i.FieldRef != nil {
				s.line(3, "%s -> %s", i.FieldRef.FieldPath, i.Path)
			}
			if i.ResourceFieldRef != nil {
				s.line(3, "%s -> %s", i.ResourceFieldRef.Resource, i.Path)
			}
		}
	case v.Projected != nil:
		s.projected(v.Projected)
	case v.CSI != nil:
		fsType := ""
		if v.CSI.FSType != nil {
			fsType = *v.CSI.FSType
		}
		s.fields("Type", "CSI (a Container Storage Interface (CSI) volume source)", "Driver", v.CSI.Driver, "FSType", fsType, "ReadOnly", yes(v.CSI.ReadOnly))
		s.attributes("VolumeAttributes", pairs(v.CSI.VolumeAttributes))
	case v.Image != nil:
		s.fields("Type", "Image (a container image or OCI artifact)", "Reference", v.Image.Reference, "PullPolicy", v.Image.PullPolicy)
	default:
		s.fields("Type", sourceName(v))
	}
}

// attributes writes a column below other fields, with the indentation that kubectl gives
// it.
func (s *sheet) attributes(head string, texts []string) {
	if len(texts) == 0 {
		s.fields(head, none)
		return
	}
	for n, t := range texts {
		head := head + ":"
		if n > 0 {
			head = "    "
		}
		s.line(2, "%s\t    %s", head, t)
	}
}

func (s *sheet) projected(p *corev1.ProjectedVolumeSource) {
	s.fields("Type", "Projected (a volume that contains injected data from multiple sources)")
	for _, from := range p.Sources {
		switch {
		case from.Secret != nil:
			s.fields("SecretName", from.Secret.Name, "Optional", yes(from.Secret.Optional))
		case from.DownwardAPI != nil:
			s.fields("DownwardAPI", true)
		case from.ConfigMap != nil:
			s.fields("ConfigMapName", from.ConfigMap.Name, "Optional", yes(from.ConfigMap.Optional))
		case from.ServiceAccountToken != nil && from.ServiceAccountToken.ExpirationSeconds != nil:
			s.fields("TokenExpirationSeconds", *from.ServiceAccountToken.ExpirationSeconds)
		}
	}
}

func (s *sheet) claim(t *corev1.PersistentVolumeClaimTemplate) {
	class := t.Annotations[corev1.BetaStorageClassAnnotation]
	if class == "" && t.Spec.StorageClassName != nil {
		class = *t.Spec.StorageClassName
	}
	s.fields("StorageClass", class, "Volume", t.Spec.VolumeName)
	for _, c := range []struct {
		head  string
		texts []string
	}{{"Labels", pairs(t.Labels)}, {"Annotations", annotationTexts(t.Annotations)}} {
		if len(c.texts) == 0 {
			c.texts = []string{none}
		}
		s.attributes(c.head, c.texts)
	}
	s.fields("Capacity", "", "Access Modes", "")
	if t.Spec.VolumeMode != nil {
		s.fields("VolumeMode", *t.Spec.VolumeMode)
	}
	if d := t.Spec.DataSource; d != nil {
		s.line(2, "DataSource:")
		if d.APIGroup != nil {
			s.line(3, "APIGroup:\t%s", *d.APIGroup)
		}
		s.line(3, "Kind:\t%s", d.Kind)
		s.line(3, "Name:\t%s", d.Name)
	}
}

// sourceName returns the name of the field with a volume's source.
func sourceName(v corev1.VolumeSource) string {
	fields := reflect.ValueOf(v)
	for n := range fields.NumField() {
		if !fields.Field(n).IsNil() {
			return fields.Type().Field(n).Name
		}
	}
	return "<unknown>"
}
