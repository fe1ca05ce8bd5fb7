package podspec

import (
	"path"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *checker) checkVolumes(at *field.Path) {
	c.volumes = map[string]*corev1.VolumeSource{}
	for i := range c.spec.Volumes {
		v, at := &c.spec.Volumes[i], at.Index(i)
		c.name(at.Child("name"), v.Name, validation.IsDNS1123Label)
		if v.Name != "" && c.volumes[v.Name] != nil {
			c.add(field.Duplicate(at.Child("name"), v.Name))
		}
		c.volumes[v.Name] = &v.VolumeSource
		c.checkVolume(v.Name, &v.VolumeSource, at)
	}
}

// types counts the fields of a source, a pointer to a struct of pointers, that are set,
// and refuses all but the first of them.
func (c *checker) types(source any, at *field.Path, tooMany string) (n int) {
	for f, v := range reflect.ValueOf(source).Elem().Fields() {
		if v.IsNil() {
			continue
		}
		typ, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if n++; n > 1 {
			c.forbidden(at.Child(typ), tooMany)
		}
	}
	return n
}

// checkVolume checks that a volume is of exactly one type, and that type.
func (c *checker) checkVolume(name string, s *corev1.VolumeSource, at *field.Path) {
	if c.types(s, at, "may not specify more than 1 volume type") == 0 {
		c.add(field.Required(at, "must specify a volume type"))
		return
	}
	switch {
	case s.EmptyDir != nil:
		if q := s.EmptyDir.SizeLimit; q != nil && q.Sign() < 0 {
			c.forbidden(at.Child("emptyDir", "sizeLimit"), "SizeLimit field must be a valid resource quantity")
		}
	case s.HostPath != nil:
		c.checkHostPath(s.HostPath, at.Child("hostPath"))
	case s.Secret != nil:
		c.checkFiles(s.Secret.SecretName, "secretName", s.Secret.DefaultMode, s.Secret.Items, at.Child("secret"))
	case s.ConfigMap != nil:
		c.checkFiles(s.ConfigMap.Name, "name", s.ConfigMap.DefaultMode, s.ConfigMap.Items, at.Child("configMap"))
	case s.DownwardAPI != nil:
		c.checkMode(s.DownwardAPI.DefaultMode, at.Child("downwardAPI", "defaultMode"))
		c.checkDownward(s.DownwardAPI.Items, at.Child("downwardAPI", "items"))
	case s.Projected != nil:
		c.checkProjected(s.Projected, at.Child("projected"))
	case s.PersistentVolumeClaim != nil:
		c.name(at.Child("persistentVolumeClaim", "claimName"), s.PersistentVolumeClaim.ClaimName, validation.IsDNS1123Subdomain)
	case s.Ephemeral != nil:
		c.checkEphemeral(s.Ephemeral, at.Child("ephemeral"))
	case s.Image != nil:
		c.checkImageVolume(s.Image, at.Child("image"))
	case s.CSI != nil:
		c.name(at.Child("csi", "driver"), s.CSI.Driver, func(d string) []string { return validation.IsDNS1123Subdomain(strings.ToLower(d)) })
		if ref := s.CSI.NodePublishSecretRef; ref != nil && ref.Name == "" {
			c.required(at.Child("csi", "nodePublishSecretRef", "name"))
		}
	default:
		c.checkForeignVolume(s, at)
	}
}

func (c *checker) checkHostPath(h *corev1.HostPathVolumeSource, at *field.Path) {
	if h.Path == "" {
		c.required(at.Child("path"))
		return
	}
	if hasBackstep(h.Path) {
		c.invalid(at.Child("path"), h.Path, "must not contain '..'")
	}
	if h.Type != nil {
		supported(&c.report, at.Child("type"), *h.Type,
			corev1.HostPathBlockDev, corev1.HostPathCharDev, corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate,
			corev1.HostPathFile, corev1.HostPathFileOrCreate, corev1.HostPathSocket)
	}
}

const badMode = "must be a number between 0 and 0777 (octal), both inclusive"

func (c *checker) checkMode(mode *int32, at *field.Path) {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		c.invalid(at, *mode, badMode)
	}
}

// checkFiles checks the files that a config map or secret gives.
func (c *checker) checkFiles(name, nameField string, mode *int32, items []corev1.KeyToPath, at *field.Path) {
	if name == "" {
		c.required(at.Child(nameField))
	}
	c.checkMode(mode, at.Child("defaultMode"))
	c.checkItems(items, at.Child("items"))
}

func (c *checker) checkItems(items []corev1.KeyToPath, at *field.Path) {
	for i, item := range items {
		at := at.Index(i)
		if item.Key == "" {
			c.required(at.Child("key"))
		}
		c.checkFilePath(item.Path, at.Child("path"))
		c.checkMode(item.Mode, at.Child("mode"))
	}
}

// checkFilePath checks the path of a file within a volume. What begins with two
// dots is kept for replacing all files at once.
func (c *checker) checkFilePath(p string, at *field.Path) {
	if p == "" {
		c.required(at)
		return
	}
	c.checkDescending(p, at)
	if strings.HasPrefix(p, "..") && !hasBackstep(p) {
		c.invalid(at, p, "must not start with '..'")
	}
}

func (c *checker) checkDownward(items []corev1.DownwardAPIVolumeFile, at *field.Path) {
	for i, f := range items {
		at := at.Index(i)
		c.checkFilePath(f.Path, at.Child("path"))
		switch {
		case f.FieldRef != nil:
			c.checkFieldRef(f.FieldRef, fileFields, at.Child("fieldRef"))
			if f.ResourceFieldRef != nil {
				c.invalid(at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
			}
		case f.ResourceFieldRef != nil:
			c.checkResourceRef(f.ResourceFieldRef, true, at.Child("resourceFieldRef"))
		default:
			c.add(field.Required(at, "one of fieldRef and resourceFieldRef is required"))
		}
		c.checkMode(f.Mode, at.Child("mode"))
	}
}

func (c *checker) checkProjected(p *corev1.ProjectedVolumeSource, at *field.Path) {
	c.checkMode(p.DefaultMode, at.Child("defaultMode"))
	paths := map[string]bool{}
	place := func(p string, at *field.Path) {
		if p = path.Clean(p); p != "." && paths[p] {
			c.invalid(at, p, "conflicting duplicate paths")
		}
		paths[p] = true
	}
	for i := range p.Sources {
		s, at := &p.Sources[i], at.Child("sources").Index(i)
		if c.types(s, at, "may not specify more than 1 volume type per source") == 0 {
			c.add(field.Required(at, "must specify one of: `secret`, `configMap`, `downwardAPI`, `serviceAccountToken`, `clusterTrustBundle` or `podCertificate`"))
			continue
		}
		c.checkSource(s, place, at)
	}
}

func (c *checker) checkSource(s *corev1.VolumeProjection, place func(string, *field.Path), at *field.Path) {
	items := func(items []corev1.KeyToPath, at *field.Path) {
		c.checkItems(items, at)
		for i, item := range items {
			if item.Path != "" {
				place(item.Path, at.Index(i).Child("path"))
			}
		}
	}
	if s.Secret != nil {
		if s.Secret.Name == "" {
			c.required(at.Child("secret", "name"))
		}
		items(s.Secret.Items, at.Child("secret", "items"))
	}
	if s.ConfigMap != nil {
		if s.ConfigMap.Name == "" {
			c.required(at.Child("configMap", "name"))
		}
		items(s.ConfigMap.Items, at.Child("configMap", "items"))
	}
	if s.DownwardAPI != nil {
		at := at.Child("downwardAPI", "items")
		c.checkDownward(s.DownwardAPI.Items, at)
		for i, f := range s.DownwardAPI.Items {
			if f.Path != "" {
				place(f.Path, at.Index(i).Child("path"))
			}
		}
	}
	if t := s.ServiceAccountToken; t != nil {
		c.checkToken(t, at.Child("serviceAccountToken"))
		if t.Path != "" {
			place(t.Path, at.Child("serviceAccountToken", "path"))
		}
	}
	if b := s.ClusterTrustBundle; b != nil {
		c.checkTrustBundle(b, at.Child("clusterTrustBundle"))
		if b.Path != "" {
			place(b.Path, at.Child("clusterTrustBundle", "path"))
		}
	}
	if p := s.PodCertificate; p != nil {
		c.checkCertificate(p, at.Child("podCertificate"))
		for name, file := range map[string]string{"credentialBundlePath": p.CredentialBundlePath, "keyPath": p.KeyPath, "certificateChainPath": p.CertificateChainPath} {
			if file != "" {
				c.checkFilePath(file, at.Child("podCertificate", name))
				place(file, at.Child("podCertificate", name))
			}
		}
	}
}

const (
	minTokenSeconds = 10 * 60
	maxTokenSeconds = 1 << 32
)

func (c *checker) checkToken(t *corev1.ServiceAccountTokenProjection, at *field.Path) {
	switch e := t.ExpirationSeconds; {
	case e == nil:
		c.required(at.Child("expirationSeconds"))
	case *e < minTokenSeconds:
		c.invalid(at.Child("expirationSeconds"), *e, "may not specify a duration less than 10 minutes")
	case *e > maxTokenSeconds:
		c.invalid(at.Child("expirationSeconds"), *e, "may not specify a duration larger than 2^32 seconds")
	}
	c.checkFilePath(t.Path, at.Child("path"))
}

func (c *checker) checkTrustBundle(b *corev1.ClusterTrustBundleProjection, at *field.Path) {
	named, signed := b.Name != nil && *b.Name != "", b.SignerName != nil && *b.SignerName != ""
	switch {
	case named && signed:
		c.invalid(at, b, "only one of name and signerName may be used")
	case !named && !signed:
		c.add(field.Required(at, "either name or signerName must be specified"))
	case named && b.LabelSelector != nil:
		c.invalid(at.Child("labelSelector"), b.LabelSelector, "labelSelector must be unset if name is specified")
	}
	c.add(metav1validation.ValidateLabelSelector(b.LabelSelector, metav1validation.LabelSelectorValidationOptions{}, at.Child("labelSelector"))...)
	c.checkFilePath(b.Path, at.Child("path"))
}

const (
	minCertSeconds = 60 * 60
	maxCertSeconds = 91 * 24 * 60 * 60
)

func (c *checker) checkCertificate(p *corev1.PodCertificateProjection, at *field.Path) {
	if p.SignerName == "" {
		c.required(at.Child("signerName"))
	}
	requiredOf(&c.report, at.Child("keyType"), p.KeyType, "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519", "RSA3072", "RSA4096")
	if s := p.MaxExpirationSeconds; s != nil && (*s < minCertSeconds || *s > maxCertSeconds) {
		c.invalid(at.Child("maxExpirationSeconds"), *s, validation.InclusiveRangeError(minCertSeconds, maxCertSeconds))
	}
	if p.CredentialBundlePath == "" && p.KeyPath == "" && p.CertificateChainPath == "" {
		c.add(field.Required(at, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"))
	}
}

func (c *checker) checkEphemeral(e *corev1.EphemeralVolumeSource, at *field.Path) {
	t := e.VolumeClaimTemplate
	if t == nil {
		c.required(at.Child("volumeClaimTemplate"))
		return
	}
	at = at.Child("volumeClaimTemplate")
	c.add(metav1validation.ValidateLabels(t.Labels, at.Child("metadata", "labels"))...)
	at = at.Child("spec")
	if len(t.Spec.AccessModes) == 0 {
		c.add(field.Required(at.Child("accessModes"), "at least 1 access mode is required"))
	}
	for _, mode := range t.Spec.AccessModes {
		supported(&c.report, at.Child("accessModes"), mode,
			corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod)
	}
	size, ok := t.Spec.Resources.Requests[corev1.ResourceStorage]
	switch {
	case !ok:
		c.required(at.Child("resources").Key(string(corev1.ResourceStorage)))
	case size.Sign() <= 0:
		c.invalid(at.Child("resources").Key(string(corev1.ResourceStorage)), size.String(), "must be greater than zero")
	}
}

func (c *checker) checkImageVolume(s *corev1.ImageVolumeSource, at *field.Path) {
	if s.Reference == "" {
		if c.isPod {
			c.required(at.Child("reference"))
		}
	} else if strings.TrimSpace(s.Reference) != s.Reference {
		c.invalid(at.Child("reference"), s.Reference, "must not have leading or trailing whitespace")
	}
	supported(&c.report, at.Child("pullPolicy"), s.PullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
}

// checkForeignVolume checks that what names storage outside the cluster is
// there. Whether it is right only that storage knows.
func (c *checker) checkForeignVolume(s *corev1.VolumeSource, at *field.Path) {
	need := func(typ string, fields ...string) {
		for i := 0; i+1 < len(fields); i += 2 {
			if fields[i+1] == "" {
				c.required(at.Child(typ, fields[i]))
			}
		}
	}
	list := func(typ, name string, n int) {
		if n == 0 {
			c.required(at.Child(typ, name))
		}
	}
	switch {
	case s.NFS != nil:
		need("nfs", "server", s.NFS.Server, "path", s.NFS.Path)
		if s.NFS.Path != "" && !path.IsAbs(s.NFS.Path) {
			c.invalid(at.Child("nfs", "path"), s.NFS.Path, "must be an absolute path")
		}
	case s.GCEPersistentDisk != nil:
		need("gcePersistentDisk", "pdName", s.GCEPersistentDisk.PDName)
	case s.AWSElasticBlockStore != nil:
		need("awsElasticBlockStore", "volumeID", s.AWSElasticBlockStore.VolumeID)
	case s.GitRepo != nil:
		need("gitRepo", "repository", s.GitRepo.Repository)
		if s.GitRepo.Directory != "" {
			c.checkDescending(s.GitRepo.Directory, at.Child("gitRepo", "directory"))
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
			c.add(field.Required(at.Child("flocker"), "one of datasetName and datasetUUID is required"))
		}
	case s.FC != nil:
		if len(s.FC.TargetWWNs) == 0 && len(s.FC.WWIDs) == 0 {
			c.add(field.Required(at.Child("fc", "targetWWNs"), "must specify either targetWWNs or wwids, but not both"))
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
