package podspec

import (
	"net"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	maxPartition = 255
	maxLUN       = 255
	maxTenant    = 64
	maxPortal    = 64 // of the name of the volume, a colon and the portal
)

// The names of iSCSI targets and initiators, by their prefixes.
var iscsiNames = []struct {
	prefix string
	form   *regexp.Regexp
}{
	{"iqn", regexp.MustCompile(`iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`)},
	{"eui", regexp.MustCompile(`^eui.[[:alnum:]]{16}$`)},
	{"naa", regexp.MustCompile(`^naa.[[:alnum:]]{32}$`)},
}

// checkForeignVolume checks what a volume of a pod says of storage outside the cluster, as far as that storage need not
// be asked. It checks the types that look the same in a persistent volume, too.
func (c *checker) checkForeignVolume(name string, s *corev1.VolumeSource, at where) {
	switch {
	case s.GitRepo != nil:
		c.need(at.child("gitRepo"), "repository", s.GitRepo.Repository)
		c.checkDescending(s.GitRepo.Directory, at.child("gitRepo", "directory"))
	case s.ISCSI != nil:
		i := s.ISCSI
		c.checkISCSI(iscsi{i.TargetPortal, i.IQN, i.Lun, i.DiscoveryCHAPAuth || i.SessionCHAPAuth, i.SecretRef != nil, i.InitiatorName}, at.child("iscsi"))
		if i.InitiatorName != nil && len(name)+1+len(i.TargetPortal) > maxPortal {
			c.invalid(at.child("name"), name, longPortal)
		}
	case s.Glusterfs != nil:
		c.need(at.child("glusterfs"), "endpoints", s.Glusterfs.EndpointsName, "path", s.Glusterfs.Path)
	case s.RBD != nil:
		c.checkRBD(s.RBD.CephMonitors, s.RBD.RBDImage, at.child("rbd"))
	case s.FlexVolume != nil:
		c.checkFlex(s.FlexVolume.Driver, s.FlexVolume.Options, at.child("flexVolume"))
	case s.Cinder != nil:
		c.need(at.child("cinder"), "volumeID", s.Cinder.VolumeID)
		c.checkLocalSecret(s.Cinder.SecretRef, at.child("cinder"))
	case s.CephFS != nil:
		c.list(at.child("cephfs", "monitors"), len(s.CephFS.Monitors))
	case s.AzureFile != nil:
		c.need(at.child("azureFile"), "secretName", s.AzureFile.SecretName, "shareName", s.AzureFile.ShareName)
	case s.ScaleIO != nil:
		c.need(at.child("scaleIO"), "gateway", s.ScaleIO.Gateway, "system", s.ScaleIO.System, "volumeName", s.ScaleIO.VolumeName)
	case s.StorageOS != nil:
		c.checkStorageOS(s.StorageOS.VolumeName, s.StorageOS.VolumeNamespace, at.child("storageos"))
		c.checkLocalSecret(s.StorageOS.SecretRef, at.child("storageos"))
	default:
		c.checkShared(s, at)
	}
}

// checkShared checks the types that look the same in a pod and in a persistent volume.
func (c *checker) checkShared(s *corev1.VolumeSource, at where) {
	switch {
	case s.NFS != nil:
		c.need(at.child("nfs"), "server", s.NFS.Server, "path", s.NFS.Path)
		if !path.IsAbs(s.NFS.Path) {
			c.invalid(at.child("nfs", "path"), s.NFS.Path, "must be an absolute path")
		}
	case s.GCEPersistentDisk != nil:
		c.need(at.child("persistentDisk"), "pdName", s.GCEPersistentDisk.PDName)
		c.checkPartition(s.GCEPersistentDisk.Partition, at.child("persistentDisk"))
	case s.AWSElasticBlockStore != nil:
		c.need(at.child("awsElasticBlockStore"), "volumeID", s.AWSElasticBlockStore.VolumeID)
		c.checkPartition(s.AWSElasticBlockStore.Partition, at.child("awsElasticBlockStore"))
	case s.Flocker != nil:
		c.checkFlocker(s.Flocker, at.child("flocker"))
	case s.FC != nil:
		c.checkFibre(s.FC, at.child("fc"))
	case s.AzureDisk != nil:
		c.checkAzureDisk(s.AzureDisk, at.child("azureDisk"))
	case s.VsphereVolume != nil:
		c.need(at.child("vsphereVolume"), "volumePath", s.VsphereVolume.VolumePath)
	case s.Quobyte != nil:
		c.checkQuobyte(s.Quobyte, at.child("quobyte"))
	case s.PhotonPersistentDisk != nil:
		c.need(at.child("photonPersistentDisk"), "pdID", s.PhotonPersistentDisk.PdID)
	case s.PortworxVolume != nil:
		c.need(at.child("portworxVolume"), "volumeID", s.PortworxVolume.VolumeID)
	}
}

// checkForeignSource checks what a persistent volume says of storage outside the cluster. name is the volume's, or
// empty.
func (c *checker) checkForeignSource(name string, s *corev1.PersistentVolumeSource, at where) {
	switch {
	case s.CSI != nil:
		c.checkCSISource(s.CSI, at.child("csi"))
	case s.ISCSI != nil:
		i := s.ISCSI
		c.checkISCSI(iscsi{i.TargetPortal, i.IQN, i.Lun, i.DiscoveryCHAPAuth || i.SessionCHAPAuth, i.SecretRef != nil, i.InitiatorName}, at.child("iscsi"))
		if i.InitiatorName != nil && len(name)+1+len(i.TargetPortal) > maxPortal {
			c.invalid(at.child("iscsi", "targetportal"), i.TargetPortal, longPortal)
		}
		if i.SecretRef != nil {
			c.need(at.child("iscsi", "secretRef"), "name", i.SecretRef.Name)
		}
	case s.Glusterfs != nil:
		c.need(at.child("glusterfs"), "endpoints", s.Glusterfs.EndpointsName, "path", s.Glusterfs.Path)
		c.checkEndpointsNamespace(s.Glusterfs.EndpointsNamespace, at.child("glusterfs", "endpointsNamespace"))
	case s.RBD != nil:
		c.checkRBD(s.RBD.CephMonitors, s.RBD.RBDImage, at.child("rbd"))
	case s.FlexVolume != nil:
		c.checkFlex(s.FlexVolume.Driver, s.FlexVolume.Options, at.child("flexVolume"))
	case s.Cinder != nil:
		c.need(at.child("cinder"), "volumeID", s.Cinder.VolumeID)
		c.needSecret(s.Cinder.SecretRef, at.child("cinder"))
	case s.CephFS != nil:
		c.list(at.child("cephfs", "monitors"), len(s.CephFS.Monitors))
	case s.AzureFile != nil:
		c.need(at.child("azureFile"), "secretName", s.AzureFile.SecretName, "shareName", s.AzureFile.ShareName)
		if n := s.AzureFile.SecretNamespace; n != nil && *n == "" {
			c.required(at.child("azureFile", "secretNamespace"))
		}
	case s.ScaleIO != nil:
		c.need(at.child("scaleIO"), "gateway", s.ScaleIO.Gateway, "system", s.ScaleIO.System, "volumeName", s.ScaleIO.VolumeName)
	case s.StorageOS != nil:
		c.checkStorageOS(s.StorageOS.VolumeName, s.StorageOS.VolumeNamespace, at.child("storageos"))
		if ref := s.StorageOS.SecretRef; ref != nil {
			c.need(at.child("storageos", "secretRef"), "name", ref.Name, "namespace", ref.Namespace)
		}
	default:
		c.checkShared(&corev1.VolumeSource{
			NFS: s.NFS, FC: s.FC, GCEPersistentDisk: s.GCEPersistentDisk, AWSElasticBlockStore: s.AWSElasticBlockStore,
			AzureDisk: s.AzureDisk, VsphereVolume: s.VsphereVolume, Quobyte: s.Quobyte, PhotonPersistentDisk: s.PhotonPersistentDisk,
			PortworxVolume: s.PortworxVolume, Flocker: s.Flocker,
		}, at)
	}
}

// checkCSISource checks the names that a persistent volume of a CSI driver has. Each secret needs its namespace.
func (c *checker) checkCSISource(s *corev1.CSIPersistentVolumeSource, at where) {
	c.checkDriver(s.Driver, at.child("driver"))
	c.need(at, "volumeHandle", s.VolumeHandle)
	for _, r := range []struct {
		field string
		ref   *corev1.SecretReference
	}{
		{"controllerPublishSecretRef", s.ControllerPublishSecretRef},
		{"controllerExpandSecretRef", s.ControllerExpandSecretRef},
		{"nodePublishSecretRef", s.NodePublishSecretRef},
		{"nodeExpandSecretRef", s.NodeExpandSecretRef},
	} {
		if r.ref != nil {
			c.name(at.child(r.field, "name"), r.ref.Name, validation.IsDNS1123Subdomain)
			c.name(at.child(r.field, "namespace"), r.ref.Namespace, validation.IsDNS1123Label)
		}
	}
}

// need requires fields below at; fields has their names and values in turn.
func (c *checker) need(at where, fields ...string) {
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i+1] == "" {
			c.required(at.child(fields[i]))
		}
	}
}

func (c *checker) list(at where, n int) {
	if n == 0 {
		c.required(at)
	}
}

func (c *checker) checkLocalSecret(ref *corev1.LocalObjectReference, at where) {
	if ref != nil {
		c.need(at.child("secretRef"), "name", ref.Name)
	}
}

func (c *checker) needSecret(ref *corev1.SecretReference, at where) {
	if ref != nil {
		c.need(at.child("secretRef"), "name", ref.Name, "namespace", ref.Namespace)
	}
}

func (c *checker) checkPartition(n int32, at where) {
	if n < 0 || n > maxPartition {
		c.invalid(at.child("partition"), n, validation.InclusiveRangeError(1, maxPartition))
	}
}

const longPortal = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."

// An iscsi is what iSCSI volumes of pods and persistent ones have in common.
type iscsi struct {
	portal, iqn  string
	lun          int32
	chap, secret bool // whether there is authentication, and a secret for it
	initiator    *string
}

func (c *checker) checkISCSI(s iscsi, at where) {
	c.need(at, "targetPortal", s.portal, "iqn", s.iqn)
	if s.iqn != "" {
		c.checkISCSIName(s.iqn, at.child("iqn"))
	}
	if s.lun < 0 || s.lun > maxLUN {
		c.invalid(at.child("lun"), s.lun, validation.InclusiveRangeError(0, maxLUN))
	}
	if s.chap && !s.secret {
		c.required(at.child("secretRef"))
	}
	if s.initiator != nil {
		c.checkISCSIName(*s.initiator, at.child("initiatorname"))
	}
}

func (c *checker) checkISCSIName(name string, at where) {
	for _, known := range iscsiNames {
		if strings.HasPrefix(name, known.prefix) {
			if !known.form.MatchString(name) {
				c.invalid(at, name, "must be valid format")
			}
			return
		}
	}
	c.invalid(at, name, "must be valid format starting with iqn, eui, or naa")
}

func (c *checker) checkEndpointsNamespace(namespace *string, at where) {
	switch {
	case namespace == nil:
	case *namespace == "":
		c.invalid(at, "", "if the endpointnamespace is set, it must be a valid namespace name")
	default:
		c.each(at, *namespace, validation.IsDNS1123Label(*namespace))
	}
}

func (c *checker) checkRBD(monitors []string, image string, at where) {
	c.list(at.child("monitors"), len(monitors))
	c.need(at, "image", image)
}

func (c *checker) checkFlex(driver string, options map[string]string, at where) {
	c.need(at, "driver", driver)
	for key := range options {
		domain, _, _ := strings.Cut(key, "/")
		if domain = "." + strings.ToLower(domain); strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io") {
			c.invalid(at.child("options").key(key), key, "kubernetes.io and k8s.io namespaces are reserved")
		}
	}
}

func (c *checker) checkStorageOS(name, namespace string, at where) {
	c.name(at.child("volumeName"), name, validation.IsDNS1123Label)
	if namespace != "" {
		c.each(at.child("volumeNamespace"), namespace, validation.IsDNS1123Label(namespace))
	}
}

func (c *checker) checkFlocker(s *corev1.FlockerVolumeSource, at where) {
	switch {
	case s.DatasetName == "" && s.DatasetUUID == "":
		c.add(field.Required(at.path, "one of datasetName and datasetUUID is required"))
	case s.DatasetName != "" && s.DatasetUUID != "":
		c.invalid(at, "resource", "datasetName and datasetUUID can not be specified simultaneously")
	}
	if strings.Contains(s.DatasetName, "/") {
		c.invalid(at.child("datasetName"), s.DatasetName, "must not contain '/'")
	}
}

func (c *checker) checkFibre(s *corev1.FCVolumeSource, at where) {
	switch {
	case len(s.TargetWWNs) == 0 && len(s.WWIDs) == 0:
		c.add(field.Required(at.child("targetWWNs").path, "must specify either targetWWNs or wwids, but not both"))
	case len(s.TargetWWNs) > 0 && len(s.WWIDs) > 0:
		c.invalid(at.child("targetWWNs"), s.TargetWWNs, "targetWWNs and wwids can not be specified simultaneously")
	}
	if len(s.TargetWWNs) == 0 {
		return
	}
	if s.Lun == nil {
		c.add(field.Required(at.child("lun").path, "lun is required if targetWWNs is specified"))
	} else if *s.Lun < 0 || *s.Lun > maxLUN {
		c.invalid(at.child("lun"), *s.Lun, validation.InclusiveRangeError(0, maxLUN))
	}
}

func (c *checker) checkQuobyte(s *corev1.QuobyteVolumeSource, at where) {
	const pairs = "must be a host:port pair or multiple pairs separated by commas"
	switch {
	case s.Registry == "":
		c.add(field.Required(at.child("registry").path, pairs))
	case len(s.Tenant) > maxTenant:
		c.add(field.Required(at.child("tenant").path, "must be a UUID and may not exceed a length of 64 characters"))
	default:
		for pair := range strings.SplitSeq(s.Registry, ",") {
			if _, _, err := net.SplitHostPort(pair); err != nil {
				c.invalid(at.child("registry"), s.Registry, pairs)
				break
			}
		}
	}
	c.need(at, "volume", s.Volume)
}

func (c *checker) checkAzureDisk(s *corev1.AzureDiskVolumeSource, at where) {
	c.need(at, "diskName", s.DiskName, "diskURI", s.DataDiskURI)
	modes := []corev1.AzureDataDiskCachingMode{corev1.AzureDataDiskCachingNone, corev1.AzureDataDiskCachingReadOnly, corev1.AzureDataDiskCachingReadWrite}
	if s.CachingMode != nil && !slices.Contains(modes, *s.CachingMode) {
		c.add(field.NotSupported(at.child("cachingMode").path, *s.CachingMode, modes))
	}
	if s.Kind == nil {
		return
	}
	kinds := []corev1.AzureDataDiskKind{corev1.AzureDedicatedBlobDisk, corev1.AzureManagedDisk, corev1.AzureSharedBlobDisk}
	if !slices.Contains(kinds, *s.Kind) {
		c.add(field.NotSupported(at.child("kind").path, *s.Kind, kinds))
	}
	start, form := "https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
	if *s.Kind == corev1.AzureManagedDisk {
		start, form = "/subscriptions/", "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
	}
	if !strings.HasPrefix(s.DataDiskURI, start) {
		c.add(field.NotSupported(at.child("diskURI").path, s.DataDiskURI, []string{form}))
	}
}
