package podspec

import (
	"fmt"
	"path"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *checker) checkVolumes(at where) {
	c.volumes = map[string]*corev1.VolumeSource{}
	for i := range c.spec.Volumes {
		v, at := &c.spec.Volumes[i], at.index(i)
		c.name(at.child("name"), v.Name, validation.IsDNS1123Label)
		if v.Name != "" && c.volumes[v.Name] != nil {
			c.add(field.Duplicate(at.child("name").path, v.Name))
		}
		c.volumes[v.Name] = &v.VolumeSource
		c.checkVolume(v.Name, &v.VolumeSource, at)
	}
}

// types counts the fields of a source, a pointer to a struct of pointers, that are set,
// and refuses all but the first of them.
func (c *checker) types(source any, at where, tooMany string) (n int) {
	all := reflect.ValueOf(source).Elem()
	for i := range all.NumField() {
		if all.Field(i).IsNil() {
			continue
		}
		if n++; n > 1 {
			typ, _, _ := strings.Cut(all.Type().Field(i).Tag.Get("json"), ",")
			c.forbidden(at.child(typ), tooMany)
		}
	}
	return n
}

// checkVolume checks that a volume is of exactly one type, and that type.
func (c *checker) checkVolume(name string, s *corev1.VolumeSource, at where) {
	if c.types(s, at, "may not specify more than 1 volume type") == 0 {
		c.add(field.Required(at.path, "must specify a volume type"))
		return
	}
	switch {
	case s.EmptyDir != nil:
		if q := s.EmptyDir.SizeLimit; q != nil && q.Sign() < 0 {
			c.forbidden(at.child("emptyDir", "sizeLimit"), "SizeLimit field must be a valid resource quantity")
		}
	case s.HostPath != nil:
		c.checkHostPath(s.HostPath, at.child("hostPath"))
	case s.Secret != nil:
		c.checkFiles(s.Secret.SecretName, "secretName", s.Secret.DefaultMode, s.Secret.Items, at.child("secret"))
	case s.ConfigMap != nil:
		c.checkFiles(s.ConfigMap.Name, "name", s.ConfigMap.DefaultMode, s.ConfigMap.Items, at.child("configMap"))
	case s.DownwardAPI != nil:
		c.checkMode(s.DownwardAPI.DefaultMode, at.child("downwardAPI", "defaultMode"))
		c.checkDownward(s.DownwardAPI.Items, at.child("downwardAPI", "items"))
	case s.Projected != nil:
		c.checkProjected(s.Projected, at.child("projected"))
	case s.PersistentVolumeClaim != nil:
		c.name(at.child("persistentVolumeClaim", "claimName"), s.PersistentVolumeClaim.ClaimName, validation.IsDNS1123Subdomain)
	case s.Ephemeral != nil:
		c.checkEphemeral(s.Ephemeral, at.child("ephemeral"))
	case s.Image != nil:
		c.checkImageVolume(s.Image, at.child("image"))
	case s.CSI != nil:
		c.name(at.child("csi", "driver"), s.CSI.Driver, func(d string) []string { return validation.IsDNS1123Subdomain(strings.ToLower(d)) })
		if ref := s.CSI.NodePublishSecretRef; ref != nil && ref.Name == "" {
			c.required(at.child("csi", "nodePublishSecretRef", "name"))
		}
	default:
		c.checkForeignVolume(s, at)
	}
}

func (c *checker) checkHostPath(h *corev1.HostPathVolumeSource, at where) {
	if h.Path == "" {
		c.required(at.child("path"))
		return
	}
	if hasBackstep(h.Path) {
		c.invalid(at.child("path"), h.Path, "must not contain '..'")
	}
	if h.Type != nil {
		supported(&c.report, at.child("type"), *h.Type,
			corev1.HostPathBlockDev, corev1.HostPathCharDev, corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate,
			corev1.HostPathFile, corev1.HostPathFileOrCreate, corev1.HostPathSocket)
	}
}

const badMode = "must be a number between 0 and 0777 (octal), both inclusive"

func (c *checker) checkMode(mode *int32, at where) {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		c.invalid(at, *mode, badMode)
	}
}

// checkFiles checks the files that a config map or secret gives.
func (c *checker) checkFiles(name, nameField string, mode *int32, items []corev1.KeyToPath, at where) {
	if name == "" {
		c.required(at.child(nameField))
	}
	c.checkMode(mode, at.child("defaultMode"))
	c.checkItems(items, at.child("items"))
}

func (c *checker) checkItems(items []corev1.KeyToPath, at where) {
	for i, item := range items {
		at := at.index(i)
		if item.Key == "" {
			c.required(at.child("key"))
		}
		c.checkFilePath(item.Path, at.child("path"))
		c.checkMode(item.Mode, at.child("mode"))
	}
}

// checkFilePath checks the path of a file within a volume. What begins with two
// dots is kept for replacing all files at once.
func (c *checker) checkFilePath(p string, at where) {
	if p == "" {
		c.required(at)
		return
	}
	c.checkDescending(p, at)
	if strings.HasPrefix(p, "..") && !hasBackstep(p) {
		c.invalid(at, p, "must not start with '..'")
	}
}

func (c *checker) checkDownward(items []corev1.DownwardAPIVolumeFile, at where) {
	for i, f := range items {
		at := at.index(i)
		c.checkFilePath(f.Path, at.child("path"))
		switch {
		case f.FieldRef != nil:
			c.checkFieldRef(f.FieldRef, fileFields, at.child("fieldRef"))
			if f.ResourceFieldRef != nil {
				c.invalid(at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
			}
		case f.ResourceFieldRef != nil:
			c.checkResourceRef(f.ResourceFieldRef, true, at.child("resourceFieldRef"))
		default:
			c.add(field.Required(at.path, "one of fieldRef and resourceFieldRef is required"))
		}
		c.checkMode(f.Mode, at.child("mode"))
	}
}

func (c *checker) checkProjected(p *corev1.ProjectedVolumeSource, at where) {
	c.checkMode(p.DefaultMode, at.child("defaultMode"))
	paths := map[string]bool{}
	claim := func(p string, at where) {
		if p = path.Clean(p); p != "." && paths[p] {
			c.invalid(at, p, "conflicting duplicate paths")
		}
		paths[p] = true
	}
	for i := range p.Sources {
		s, at := &p.Sources[i], at.child("sources").index(i)
		if c.types(s, at, "may not specify more than 1 volume type per source") == 0 {
			c.add(field.Required(at.path, "must specify one of: `secret`, `configMap`, `downwardAPI`, `serviceAccountToken`, `clusterTrustBundle` or `podCertificate`"))
			continue
		}
		c.checkSource(s, claim, at)
	}
}

func (c *checker) checkSource(s *corev1.VolumeProjection, claim func(string, where), at where) {
	items := func(items []corev1.KeyToPath, at where) {
		c.checkItems(items, at)
		for i, item := range items {
			if item.Path != "" {
				claim(item.Path, at.index(i).child("path"))
			}
		}
	}
	if s.Secret != nil {
		if s.Secret.Name == "" {
			c.required(at.child("secret", "name"))
		}
		items(s.Secret.Items, at.child("secret", "items"))
	}
	if s.ConfigMap != nil {
		if s.ConfigMap.Name == "" {
			c.required(at.child("configMap", "name"))
		}
		items(s.ConfigMap.Items, at.child("configMap", "items"))
	}
	if s.DownwardAPI != nil {
		at := at.child("downwardAPI", "items")
		c.checkDownward(s.DownwardAPI.Items, at)
		for i, f := range s.DownwardAPI.Items {
			if f.Path != "" {
				claim(f.Path, at.index(i).child("path"))
			}
		}
	}
	if t := s.ServiceAccountToken; t != nil {
		c.checkToken(t, at.child("serviceAccountToken"))
		if t.Path != "" {
			claim(t.Path, at.child("serviceAccountToken", "path"))
		}
	}
	if b := s.ClusterTrustBundle; b != nil {
		c.checkTrustBundle(b, at.child("clusterTrustBundle"))
		if b.Path != "" {
			claim(b.Path, at.child("clusterTrustBundle", "path"))
		}
	}
	if p := s.PodCertificate; p != nil {
		c.checkCertificate(p, at.child("podCertificate"))
		for name, file := range map[string]string{"credentialBundlePath": p.CredentialBundlePath, "keyPath": p.KeyPath, "certificateChainPath": p.CertificateChainPath} {
			if file != "" {
				c.checkFilePath(file, at.child("podCertificate", name))
				claim(file, at.child("podCertificate", name))
			}
		}
	}
}

const (
	minTokenSeconds = 10 * 60
	maxTokenSeconds = 1 << 32
)

func (c *checker) checkToken(t *corev1.ServiceAccountTokenProjection, at where) {
	switch e := t.ExpirationSeconds; {
	case e == nil:
		c.required(at.child("expirationSeconds"))
	case *e < minTokenSeconds:
		c.invalid(at.child("expirationSeconds"), *e, "may not specify a duration less than 10 minutes")
	case *e > maxTokenSeconds:
		c.invalid(at.child("expirationSeconds"), *e, "may not specify a duration larger than 2^32 seconds")
	}
	c.checkFilePath(t.Path, at.child("path"))
}

func (c *checker) checkTrustBundle(b *corev1.ClusterTrustBundleProjection, at where) {
	named, signed := b.Name != nil && *b.Name != "", b.SignerName != nil && *b.SignerName != ""
	switch {
	case named && signed:
		c.invalid(at, b, "only one of name and signerName may be used")
	case !named && !signed:
		c.add(field.Required(at.path, "either name or signerName must be specified"))
	case named && b.LabelSelector != nil:
		c.invalid(at.child("labelSelector"), b.LabelSelector, "labelSelector must be unset if name is specified")
	}
	c.add(metav1validation.ValidateLabelSelector(b.LabelSelector, metav1validation.LabelSelectorValidationOptions{}, at.child("labelSelector").path)...)
	c.checkFilePath(b.Path, at.child("path"))
}

// Limits of the validity of pod certificates. Signers of Kubernetes issue for a day at most.
const (
	minCertSeconds           = 60 * 60
	maxCertSeconds           = 91 * 24 * 60 * 60
	maxKubernetesCertSeconds = 24 * 60 * 60
)

func (c *checker) checkCertificate(p *corev1.PodCertificateProjection, at where) {
	if p.SignerName == "" {
		c.required(at.child("signerName"))
	}
	requiredOf(&c.report, at.child("keyType"), p.KeyType, "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519", "RSA3072", "RSA4096")
	if s := p.MaxExpirationSeconds; s != nil {
		most := int32(maxCertSeconds)
		if strings.HasPrefix(p.SignerName, "kubernetes.io/") {
			most = maxKubernetesCertSeconds
		}
		switch {
		case *s < minCertSeconds:
			c.invalid(at.child("maxExpirationSeconds"), *s, fmt.Sprintf("if provided, maxExpirationSeconds must be >= %d", minCertSeconds))
		case *s > most:
			c.invalid(at.child("maxExpirationSeconds"), *s, fmt.Sprintf("if provided, maxExpirationSeconds must be <= %d", most))
		}
	}
	if p.CredentialBundlePath == "" && p.KeyPath == "" && p.CertificateChainPath == "" {
		c.add(field.Required(at.path, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"))
	}
}

func (c *checker) checkEphemeral(e *corev1.EphemeralVolumeSource, at where) {
	t := e.VolumeClaimTemplate
	if t == nil {
		c.required(at.child("volumeClaimTemplate"))
		return
	}
	at = at.child("volumeClaimTemplate")
	c.add(metav1validation.ValidateLabels(t.Labels, at.child("metadata", "labels").path)...)
	c.checkClaim(&t.Spec, at.child("spec"))
}

func (c *checker) checkImageVolume(s *corev1.ImageVolumeSource, at where) {
	if s.Reference == "" {
		if c.isPod {
			c.required(at.child("reference"))
		}
	} else if strings.TrimSpace(s.Reference) != s.Reference {
		c.invalid(at.child("reference"), s.Reference, "must not have leading or trailing whitespace")
	}
	supported(&c.report, at.child("pullPolicy"), s.PullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
}

// checkForeignVolume checks that what names storage outside the cluster is
// there. Whether it is right only that storage knows.
func (c *checker) checkForeignVolume(s *corev1.VolumeSource, at where) {
	need := func(typ string, fields ...string) {
		for i := 0; i+1 < len(fields); i += 2 {
			if fields[i+1] == "" {
				c.required(at.child(typ, fields[i]))
			}
		}
	}
	list := func(typ, name string, n int) {
		if n == 0 {
			c.required(at.child(typ, name))
		}
	}
	switch {
	case s.NFS != nil:
		need("nfs", "server", s.NFS.Server, "path", s.NFS.Path)
		if !path.IsAbs(s.NFS.Path) {
			c.invalid(at.child("nfs", "path"), s.NFS.Path, "must be an absolute path")
		}
	case s.GCEPersistentDisk != nil:
		need("gcePersistentDisk", "pdName", s.GCEPersistentDisk.PDName)
	case s.AWSElasticBlockStore != nil:
		need("awsElasticBlockStore", "volumeID", s.AWSElasticBlockStore.VolumeID)
	case s.GitRepo != nil:
		need("gitRepo", "repository", s.GitRepo.Repository)
		if s.GitRepo.Directory != "" {
			c.checkDescending(s.GitRepo.Directory, at.child("gitRepo", "directory"))
		}
	case s.ISCSI != nil:
		need("iscsi", "targetPortal", s.ISCSI.TargetPortal, "iqn", s.ISCSI.IQN)
	case s.Glusterfs != nil:
		need("glusterfs", "endpoints", s.Glusterfs.EndpointsName, "path", s.Glusterfs.Path)
	case s.RBD != nil:
		list("rbd", "monitors", len(s.RBD.CephMonitors))
		need("rbd", "image", s.RBD.RBDImage)
	case s.FlexVolume != nil:
		need("flexVolume", "driver", s.FlexVolume.Driver)
	case s.Cinder != nil:
		need("cinder", "volumeID", s.Cinder.VolumeID)
	case s.CephFS != nil:
		list("cephfs", "monitors", len(s.CephFS.Monitors))
	case s.Flocker != nil:
		if s.Flocker.DatasetName == "" && s.Flocker.DatasetUUID == "" {
			c.add(field.Required(at.child("flocker").path, "one of datasetName and datasetUUID is required"))
		}
	case s.FC != nil:
		if len(s.FC.TargetWWNs) == 0 && len(s.FC.WWIDs) == 0 {
			c.add(field.Required(at.child("fc", "targetWWNs").path, "must specify either targetWWNs or wwids, but not both"))
		}
	case s.AzureFile != nil:
		need("azureFile", "secretName", s.AzureFile.SecretName, "shareName", s.AzureFile.ShareName)
	case s.AzureDisk != nil:
		need("azureDisk", "diskName", s.AzureDisk.DiskName, "diskURI", s.AzureDisk.DataDiskURI)
	case s.VsphereVolume != nil:
		need("vsphereVolume", "volumePath", s.VsphereVolume.VolumePath)
	case s.Quobyte != nil:
		need("quobyte", "registry", s.Quobyte.Registry, "volume", s.Quobyte.Volume)
	case s.PhotonPersistentDisk != nil:
		need("photonPersistentDisk", "pdID", s.PhotonPersistentDisk.PdID)
	case s.PortworxVolume != nil:
		need("portworxVolume", "volumeID", s.PortworxVolume.VolumeID)
	case s.ScaleIO != nil:
		need("scaleIO", "gateway", s.ScaleIO.Gateway, "system", s.ScaleIO.System, "volumeName", s.ScaleIO.VolumeName)
	case s.StorageOS != nil:
		need("storageos", "volumeName", s.StorageOS.VolumeName)
	}
}
