package core

import (
	"crypto/tls"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog/podspec"
)

// The messages are those of Kubernetes.

// warnOfEndpoints warns of addresses that users have written in a way that some readers misunderstand.
func warnOfEndpoints(e *corev1.Endpoints) (all []string) {
	if e.Labels[discoveryv1.LabelManagedBy] == "endpoint-controller" || e.Labels["endpoints.kubernetes.io/managed-by"] == "endpoint-controller" {
		return nil
	}
	for i, s := range e.Subsets {
		at := field.NewPath("subsets").Index(i)
		for j, a := range s.Addresses {
			all = append(all, validation.GetWarningsForIP(at.Child("addresses").Index(j).Child("ip"), a.IP)...)
		}
		for j, a := range s.NotReadyAddresses {
			all = append(all, validation.GetWarningsForIP(at.Child("notReadyAddresses").Index(j).Child("ip"), a.IP)...)
		}
	}
	return all
}

func warnOfNode(n *corev1.Node) (all []string) {
	if n.Spec.ConfigSource != nil {
		all = append(all, "spec.configSource: the feature is removed")
	}
	if n.Spec.DoNotUseExternalID != "" {
		all = append(all, "spec.externalID: this field is deprecated, and is unused by Kubernetes")
	}
	for i, c := range n.Spec.PodCIDRs {
		all = append(all, validation.GetWarningsForCIDR(field.NewPath("spec", "podCIDRs").Index(i), c)...)
	}
	return all
}

func warnOfVolume(v *corev1.PersistentVolume) (all []string) {
	warn := func(at *field.Path, text string) { all = append(all, at.String()+": "+text) }
	for _, old := range [][2]string{
		{corev1.BetaStorageClassAnnotation, `deprecated since v1.8; use "storageClassName" attribute instead`},
		{corev1.MountOptionAnnotation, `deprecated since v1.31; use "mountOptions" attribute instead`},
	} {
		if _, has := v.Annotations[old[0]]; has {
			warn(field.NewPath("metadata", "annotations").Key(old[0]), old[1])
		}
	}
	spec := field.NewPath("spec")
	if v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		warn(spec.Child("persistentVolumeReclaimPolicy"), "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.")
	}
	if a := v.Spec.NodeAffinity; a != nil && a.Required != nil {
		for i := range a.Required.NodeSelectorTerms {
			all = append(all, podspec.TermWarnings(&a.Required.NodeSelectorTerms[i], false, spec.Child("nodeAffinity", "required", "nodeSelectorTerms").Index(i))...)
		}
	}
	// These sources are out of date in the volumes of pods in the same way, where they have other types.
	s := corev1.VolumeSource{PhotonPersistentDisk: v.Spec.PhotonPersistentDisk}
	if v.Spec.CephFS != nil {
		s.CephFS = &corev1.CephFSVolumeSource{}
	}
	if v.Spec.ScaleIO != nil {
		s.ScaleIO = &corev1.ScaleIOVolumeSource{}
	}
	if v.Spec.StorageOS != nil {
		s.StorageOS = &corev1.StorageOSVolumeSource{}
	}
	if v.Spec.Glusterfs != nil {
		s.Glusterfs = &corev1.GlusterfsVolumeSource{}
	}
	if v.Spec.RBD != nil {
		s.RBD = &corev1.RBDVolumeSource{}
	}
	for _, old := range podspec.OldVolumes(&s) {
		warn(spec.Child(old.Field), old.Why)
	}
	return all
}

func warnOfClaim(c *corev1.PersistentVolumeClaim) (all []string) {
	if _, has := c.Annotations[corev1.BetaStorageClassAnnotation]; has {
		at := field.NewPath("metadata", "annotations").Key(corev1.BetaStorageClassAnnotation)
		all = append(all, at.String()+`: deprecated since v1.8; use "storageClassName" attribute instead`)
	}
	return append(all, podspec.ClaimWarnings(&c.Spec, field.NewPath("spec"))...)
}

// warnOfSecret warns of a key that does not belong to its certificate.
func warnOfSecret(s *corev1.Secret) []string {
	if s.Type != corev1.SecretTypeTLS {
		return nil
	}
	if _, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]); err != nil {
		return []string{err.Error()}
	}
	return nil
}

const mountableSecrets = "kubernetes.io/enforce-mountable-secrets"

func warnOfAccount(a, old *corev1.ServiceAccount) []string {
	if old != nil {
		if _, had := old.Annotations[mountableSecrets]; had {
			return nil
		}
	}
	if _, has := a.Annotations[mountableSecrets]; !has {
		return nil
	}
	return []string{fmt.Sprintf("metadata.annotations[%s]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets", mountableSecrets)}
}

func warnOfServiceStatus(s *corev1.Service) (all []string) {
	for i, in := range s.Status.LoadBalancer.Ingress {
		if in.IP != "" {
			all = append(all, validation.GetWarningsForIP(field.NewPath("status", "loadBalancer", "ingress").Index(i), in.IP)...)
		}
	}
	return all
}
