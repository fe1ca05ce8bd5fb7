package podfeature

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// The tables are constants: nothing changes them.

var podRules = []rule[corev1.PodSpec]{ //nolint:gochecknoglobals // a constant
	{
		field: "hostUsers", effect: Rejected, because: "containers run with the node's users",
		asked: func(s *corev1.PodSpec) (any, bool) { return false, s.HostUsers != nil && !*s.HostUsers },
	},
	{
		field: "os.name", effect: Rejected, because: "the node runs linux",
		asked:  func(s *corev1.PodSpec) (any, bool) { return word(s.OS != nil && s.OS.Name != corev1.Linux, osName(s)) },
		reason: "PodOSNotSupported", words: "Failed to admit pod as the OS field doesn't match node OS",
	},
	{
		field: "runtimeClassName", effect: Rejected, because: "the node's container runtime has only its default handler",
		asked: func(s *corev1.PodSpec) (any, bool) {
			if s.RuntimeClassName == nil {
				return nil, false
			}
			return word(true, *s.RuntimeClassName)
		},
	},
	{
		field: "resourceClaims", effect: Rejected, because: "the node agent talks to no drivers of devices",
		asked: func(s *corev1.PodSpec) (any, bool) { return nil, len(s.ResourceClaims) > 0 },
	},
	{
		field: "resources", effect: Ignored, because: "only the scheduler uses it; the limits of the containers hold",
		asked: func(s *corev1.PodSpec) (any, bool) { return nil, s.Resources != nil },
	},
	{
		field: "securityContext.seccompProfile.type", effect: Rejected, because: noProfiles,
		asked: func(s *corev1.PodSpec) (any, bool) { return seccomp(podSecurity(s).SeccompProfile) },
	},
	{
		field: "securityContext.appArmorProfile.type", effect: Rejected, because: noAppArmor,
		asked: func(s *corev1.PodSpec) (any, bool) { return appArmor(podSecurity(s).AppArmorProfile) },
	},
	{
		field: "securityContext.seLinuxOptions", effect: Ignored, because: noSELinux,
		asked: func(s *corev1.PodSpec) (any, bool) { return nil, podSecurity(s).SELinuxOptions != nil },
	},
	{
		field: "securityContext.seLinuxChangePolicy", effect: Ignored, because: noSELinux,
		asked: func(s *corev1.PodSpec) (any, bool) { return nil, podSecurity(s).SELinuxChangePolicy != nil },
	},
	{
		field: "securityContext.windowsOptions", effect: Ignored, because: noWindows,
		asked: func(s *corev1.PodSpec) (any, bool) { return nil, podSecurity(s).WindowsOptions != nil },
	},
	{
		field: "securityContext.fsGroupChangePolicy", effect: Ignored, because: "the group of all files is set whenever a volume is mounted",
		asked: func(s *corev1.PodSpec) (any, bool) {
			p := podSecurity(s).FSGroupChangePolicy
			return nil, p != nil && *p == corev1.FSGroupChangeOnRootMismatch
		},
	},
}

var sysctlRules = []rule[sysctl]{ //nolint:gochecknoglobals // a constant
	{
		field: "name", effect: Rejected, because: "it is not one of the safe sysctls",
		asked:  func(s *sysctl) (any, bool) { return word(s.namespace == "", s.name) },
		reason: "SysctlForbidden", words: "forbidden sysctl: VALUE not allowlisted",
	},
	{
		field: "name", effect: Rejected, because: "the pod uses the IPC namespace of the node",
		asked:  func(s *sysctl) (any, bool) { return word(s.namespace == "IPC" && s.pod.HostIPC, s.name) },
		reason: "SysctlForbidden", words: "forbidden sysctl: VALUE not allowed with host IPC enabled",
	},
	{
		field: "name", effect: Rejected, because: "the pod uses the network of the node",
		asked:  func(s *sysctl) (any, bool) { return word(s.namespace == "Net" && s.pod.HostNetwork, s.name) },
		reason: "SysctlForbidden", words: "forbidden sysctl: VALUE not allowed with host Net enabled",
	},
}

var containerRules = []rule[container]{ //nolint:gochecknoglobals // a constant
	{
		field: "volumeDevices", effect: Rejected, because: "volumes are directories",
		asked: func(c *container) (any, bool) { return nil, len(c.VolumeDevices) > 0 },
	},
	{
		field: "securityContext.procMount", effect: Rejected, because: "it needs users of the pod's own",
		asked: func(c *container) (any, bool) {
			p := c.security().ProcMount
			return corev1.UnmaskedProcMount, p != nil && *p == corev1.UnmaskedProcMount
		},
	},
	{
		field: "securityContext.seccompProfile.type", effect: Rejected, because: noProfiles,
		asked: func(c *container) (any, bool) { return seccomp(c.security().SeccompProfile) },
	},
	{
		field: "securityContext.appArmorProfile.type", effect: Rejected, because: noAppArmor,
		asked: func(c *container) (any, bool) { return appArmor(c.security().AppArmorProfile) },
	},
	{
		field: "securityContext.seLinuxOptions", effect: Ignored, because: noSELinux,
		asked: func(c *container) (any, bool) { return nil, c.security().SELinuxOptions != nil },
	},
	{
		field: "securityContext.windowsOptions", effect: Ignored, because: noWindows,
		asked: func(c *container) (any, bool) { return nil, c.security().WindowsOptions != nil },
	},
}

var variableRules = []rule[corev1.EnvVar]{ //nolint:gochecknoglobals // a constant
	{
		field: "valueFrom.fileKeyRef", effect: Rejected, because: "variables are not read from files",
		asked: func(e *corev1.EnvVar) (any, bool) { return nil, e.ValueFrom != nil && e.ValueFrom.FileKeyRef != nil },
	},
}

var volumeRules = append([]rule[corev1.Volume]{ //nolint:gochecknoglobals // a constant
	{
		field: "emptyDir.medium", effect: Ignored, because: "the volume is a directory on disk: it is there for \"\" and \"Memory\" alone",
		asked: func(v *corev1.Volume) (any, bool) {
			e := v.EmptyDir
			return nil, e != nil && e.Medium != corev1.StorageMediumDefault && e.Medium != corev1.StorageMediumMemory
		},
	},
},
	foreign("awsElasticBlockStore", func(v *corev1.Volume) bool { return v.AWSElasticBlockStore != nil }),
	foreign("azureDisk", func(v *corev1.Volume) bool { return v.AzureDisk != nil }),
	foreign("azureFile", func(v *corev1.Volume) bool { return v.AzureFile != nil }),
	foreign("cephfs", func(v *corev1.Volume) bool { return v.CephFS != nil }),
	foreign("cinder", func(v *corev1.Volume) bool { return v.Cinder != nil }),
	foreign("csi", func(v *corev1.Volume) bool { return v.CSI != nil }),
	foreign("fc", func(v *corev1.Volume) bool { return v.FC != nil }),
	foreign("flexVolume", func(v *corev1.Volume) bool { return v.FlexVolume != nil }),
	foreign("flocker", func(v *corev1.Volume) bool { return v.Flocker != nil }),
	foreign("gcePersistentDisk", func(v *corev1.Volume) bool { return v.GCEPersistentDisk != nil }),
	foreign("gitRepo", func(v *corev1.Volume) bool { return v.GitRepo != nil }),
	foreign("glusterfs", func(v *corev1.Volume) bool { return v.Glusterfs != nil }),
	foreign("iscsi", func(v *corev1.Volume) bool { return v.ISCSI != nil }),
	foreign("nfs", func(v *corev1.Volume) bool { return v.NFS != nil }),
	foreign("photonPersistentDisk", func(v *corev1.Volume) bool { return v.PhotonPersistentDisk != nil }),
	foreign("portworxVolume", func(v *corev1.Volume) bool { return v.PortworxVolume != nil }),
	foreign("quobyte", func(v *corev1.Volume) bool { return v.Quobyte != nil }),
	foreign("rbd", func(v *corev1.Volume) bool { return v.RBD != nil }),
	foreign("scaleIO", func(v *corev1.Volume) bool { return v.ScaleIO != nil }),
	foreign("storageos", func(v *corev1.Volume) bool { return v.StorageOS != nil }),
	foreign("vsphereVolume", func(v *corev1.Volume) bool { return v.VsphereVolume != nil }),
)

var sourceRules = []rule[corev1.VolumeProjection]{ //nolint:gochecknoglobals // a constant
	{
		field: "clusterTrustBundle", effect: Rejected, because: knownSources,
		asked: func(s *corev1.VolumeProjection) (any, bool) { return nil, s.ClusterTrustBundle != nil },
	},
	{
		field: "podCertificate", effect: Rejected, because: knownSources,
		asked: func(s *corev1.VolumeProjection) (any, bool) { return nil, s.PodCertificate != nil },
	},
}

const (
	noProfiles = "profiles are not read from files; it can be RuntimeDefault or Unconfined"
	noAppArmor = "AppArmor profiles are not applied; it can be Unconfined"
	noSELinux  = "SELinux labels are not set"
	noWindows  = "the node runs linux"

	knownVolumes = "volumes are emptyDir, configMap, secret, projected, downwardAPI, hostPath, image, persistentVolumeClaim or ephemeral"
	knownSources = "projected sources are configMap, secret, downwardAPI or serviceAccountToken"
)

// foreign is the rule about volumes that the node agent cannot mount.
func foreign(field string, asked func(v *corev1.Volume) bool) rule[corev1.Volume] {
	return rule[corev1.Volume]{
		field: field, effect: Rejected, because: knownVolumes,
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

func seccomp(p *corev1.SeccompProfile) (any, bool) {
	return corev1.SeccompProfileTypeLocalhost, p != nil && p.Type == corev1.SeccompProfileTypeLocalhost
}

func appArmor(p *corev1.AppArmorProfile) (any, bool) {
	if p == nil || p.Type == corev1.AppArmorProfileTypeUnconfined {
		return nil, false
	}
	return p.Type, true
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

// safeSysctls are the kernel parameters that a pod may set without asking the administrator, as upstream's kubelet has
// them. The value is the namespace that the pod must have of its own. Kernels that are too old for one of them are too old
// for the container runtime.
var safeSysctls = map[string]string{ //nolint:gochecknoglobals // a constant table
	"kernel.shm_rmid_forced":              "IPC",
	"net.ipv4.ip_local_port_range":        "Net",
	"net.ipv4.tcp_syncookies":             "Net",
	"net.ipv4.ping_group_range":           "Net",
	"net.ipv4.ip_unprivileged_port_start": "Net",
	"net.ipv4.ip_local_reserved_ports":    "Net",
	"net.ipv4.tcp_keepalive_time":         "Net",
	"net.ipv4.tcp_fin_timeout":            "Net",
	"net.ipv4.tcp_keepalive_intvl":        "Net",
	"net.ipv4.tcp_keepalive_probes":       "Net",
	"net.ipv4.tcp_rmem":                   "Net",
	"net.ipv4.tcp_wmem":                   "Net",
	"net.ipv4.tcp_slow_start_after_idle":  "Net",
	"net.ipv4.tcp_notsent_lowat":          "Net",
}

// dotted returns the name of a kernel parameter with dots between its parts, as sysctl(8) reads it: the first separator
// says which of "." and "/" separates.
func dotted(name string) string {
	if i := strings.IndexAny(name, "./"); i < 0 || name[i] == '.' {
		return name
	}
	return strings.NewReplacer("/", ".", ".", "/").Replace(name)
}
