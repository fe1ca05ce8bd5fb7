package pods

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// typed returns a name with its type: a pod's if it has none.
func typed(name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	return "pod/" + name
}

// A kept is the parts of a pod that its copy keeps.
type kept struct{ labels, annotations, liveness, readiness, startup, initContainers bool }

// drop removes from a copy the parts it does not keep.
func (k kept) drop(pod *corev1.Pod) {
	if !k.labels {
		pod.Labels = nil
	}
	if !k.annotations {
		pod.Annotations = nil
	}
	if !k.initContainers {
		pod.Spec.InitContainers = nil
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if !k.liveness {
			c.LivenessProbe = nil
		}
		if !k.readiness {
			c.ReadinessProbe = nil
		}
		if !k.startup {
			c.StartupProbe = nil
		}
	}
}

// A profile says what a debug container may do, as kubectl's profiles of the same names.
type profile struct {
	container func(*corev1.Container) // in a pod or a copy of one
	shares    bool                    // a copy shares its process namespace
	copyKeeps bool                    // a copy keeps what kept says; otherwise all but the labels

	nodeContainer func(*corev1.Container)
	onNode        func(*corev1.Pod)
}

var profiles = map[string]profile{
	"legacy": {container: unchanged, nodeContainer: unchanged, onNode: func(p *corev1.Pod) { hostFiles(p); hostNamespaces(p) }},
	"general": {
		container: func(c *corev1.Container) { addCapabilities(c, "SYS_PTRACE") }, shares: true, copyKeeps: true,
		nodeContainer: unconstrained, onNode: func(p *corev1.Pod) { hostFiles(p); hostNamespaces(p) },
	},
	"baseline": {
		container: unconstrained, shares: true, copyKeeps: true,
		nodeContainer: unconstrained, onNode: func(*corev1.Pod) {},
	},
	"restricted": {
		container: restrict, shares: true, copyKeeps: true,
		nodeContainer: restrict, onNode: func(*corev1.Pod) {},
	},
	"netadmin": {
		container: func(c *corev1.Container) { addCapabilities(c, "NET_ADMIN", "NET_RAW") }, shares: true, copyKeeps: true,
		nodeContainer: func(c *corev1.Container) { addCapabilities(c, "NET_ADMIN", "NET_RAW") }, onNode: hostNamespaces,
	},
	"sysadmin": {
		container: privilege, shares: true, copyKeeps: true,
		nodeContainer: privilege, onNode: func(p *corev1.Pod) { hostNamespaces(p); hostFiles(p) },
	},
}

func unchanged(*corev1.Container) {}

func unconstrained(c *corev1.Container) { c.SecurityContext = nil }

func security(c *corev1.Container) *corev1.SecurityContext {
	if c.SecurityContext == nil {
		c.SecurityContext = &corev1.SecurityContext{}
	}
	return c.SecurityContext
}

func privilege(c *corev1.Container) {
	yes := true
	security(c).Privileged = &yes
}

func addCapabilities(c *corev1.Container, names ...corev1.Capability) {
	s := security(c)
	if s.Capabilities == nil {
		s.Capabilities = &corev1.Capabilities{}
	}
	s.Capabilities.Add = append(s.Capabilities.Add, names...)
}

func restrict(c *corev1.Container) {
	yes, no := true, false
	c.SecurityContext = &corev1.SecurityContext{
		RunAsNonRoot: &yes, AllowPrivilegeEscalation: &no,
		Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

func hostNamespaces(p *corev1.Pod) {
	p.Spec.HostNetwork, p.Spec.HostPID, p.Spec.HostIPC = true, true, true
}

// hostFiles shows the files of the node below /host.
func hostFiles(p *corev1.Pod) {
	const volume = "host-root"
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{
		Name: volume, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}},
	})
	c := &p.Spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: "/host"})
}
