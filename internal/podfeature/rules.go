package podfeature

import (
	corev1 "k8s.io/api/core/v1"
)

// The tables are constants: nothing changes them.

var podRules = []rule[corev1.PodSpec]{
	{
		field: "os.name", effect: Rejected, because: "the node runs linux",
		asked:  func(s *corev1.PodSpec) (any, bool) { return word(s.OS != nil && s.OS.Name != corev1.Linux, osName(s)) },
		reason: "PodOSNotSupported", words: "Failed to admit pod as the OS field doesn't match node OS",
	},
	{
		field: "securityContext.seLinuxOptions", effect: Ignored, because: noSELinux,
		asked: func(s *corev1.PodSpec) (any, bool) { return nil, labels(podSecurity(s).SELinuxOptions) },
	},
	{
		field: "securityContext.seLinuxChangePolicy", effect: Ignored, because: noSELinux,
		asked: func(s *corev1.PodSpec) (any, bool) { return nil, podSecurity(s).SELinuxChangePolicy != nil },
	},
	{
		field: "securityContext.windowsOptions", effect: Ignored, because: noWindows,
		asked: func(s *corev1.PodSpec) (any, bool) { return nil, windows(podSecurity(s).WindowsOptions) },
	},
}

var containerRules = []rule[container]{
	{
		field: "securityContext.seLinuxOptions", effect: Ignored, because: noSELinux,
		asked: func(c *container) (any, bool) { return nil, labels(c.security().SELinuxOptions) },
	},
	{
		field: "securityContext.windowsOptions", effect: Ignored, because: noWindows,
		asked: func(c *container) (any, bool) { return nil, windows(c.security().WindowsOptions) },
	},
}

var volumeRules = []rule[corev1.Volume]{
	foreign("awsElasticBlockStore", func(v *corev1.Volume) bool { return v.AWSElasticBlockStore != nil }),
	foreign("azureDisk", func(v *corev1.Volume) bool { return v.AzureDisk != nil }),
	foreign("azureFile", func(v *corev1.Volume) bool { return v.AzureFile != nil }),
	foreign("cephfs", func(v *corev1.Volume) bool { return v.CephFS != nil }),
	foreign("cinder", func(v *corev1.Volume) bool { return v.Cinder != nil }),
	foreign("fc", func(v *corev1.Volume) bool { return v.FC != nil }),
	foreign("flexVolume", func(v *corev1.Volume) bool { return v.FlexVolume != nil }),
	foreign("flocker", func(v *corev1.Volume) bool { return v.Flocker != nil }),
	foreign("gcePersistentDisk", func(v *corev1.Volume) bool { return v.GCEPersistentDisk != nil }),
	foreign("gitRepo", func(v *corev1.Volume) bool { return v.GitRepo != nil }),
	foreign("glusterfs", func(v *corev1.Volume) bool { return v.Glusterfs != nil }),
	foreign("iscsi", func(v *corev1.Volume) bool { return v.ISCSI != nil }),
	foreign("photonPersistentDisk", func(v *corev1.Volume) bool { return v.PhotonPersistentDisk != nil }),
	foreign("portworxVolume", func(v *corev1.Volume) bool { return v.PortworxVolume != nil }),
	foreign("quobyte", func(v *corev1.Volume) bool { return v.Quobyte != nil }),
	foreign("rbd", func(v *corev1.Volume) bool { return v.RBD != nil }),
	foreign("scaleIO", func(v *corev1.Volume) bool { return v.ScaleIO != nil }),
	foreign("storageos", func(v *corev1.Volume) bool { return v.StorageOS != nil }),
	foreign("vsphereVolume", func(v *corev1.Volume) bool { return v.VsphereVolume != nil }),
}

const (
	noSELinux = "SELinux labels are not set"
	noWindows = "the node runs linux"

	// KnownVolumes names the types of volumes that a node has, for errors about others.
	KnownVolumes = "volumes are emptyDir, configMap, secret, projected, downwardAPI, hostPath, image, nfs, csi, persistentVolumeClaim or ephemeral"
)

// foreign is the rule about volumes that the node agent cannot mount.
func foreign(field string, asked func(v *corev1.Volume) bool) rule[corev1.Volume] {
	return rule[corev1.Volume]{
		field: field, effect: Rejected, because: KnownVolumes,
		asked: func(v *corev1.Volume) (any, bool) { return nil, asked(v) },
	}
}

func (c *container) security() corev1.SecurityContext {
	if c.SecurityContext == nil {
		return corev1.SecurityContext{}
	}
	return *c.SecurityContext
}

func podSecurity(s *corev1.PodSpec) corev1.PodSecurityContext {
	if s.SecurityContext == nil {
		return corev1.PodSecurityContext{}
	}
	return *s.SecurityContext
}

func osName(s *corev1.PodSpec) string {
	if s.OS == nil {
		return ""
	}
	return string(s.OS.Name)
}

// word returns a value only if it is needed: in an interface it takes memory.
func word(asked bool, value string) (any, bool) {
	if !asked {
		return nil, false
	}
	return value, true
}

// labels reports whether options ask for a label. Charts write empty ones as a default.
func labels(o *corev1.SELinuxOptions) bool { return o != nil && *o != corev1.SELinuxOptions{} }

// windows reports whether options ask for something, which hostProcess: false does not.
func windows(o *corev1.WindowsSecurityContextOptions) bool {
	return o != nil && (o.GMSACredentialSpecName != nil || o.GMSACredentialSpec != nil || o.RunAsUserName != nil || o.HostProcess != nil && *o.HostProcess)
}
