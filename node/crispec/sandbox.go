package crispec

import (
	"maps"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// LogDirectory returns where the logs of a pod lie under dir.
func LogDirectory(dir, namespace, name, uid string) string {
	return filepath.Join(dir, namespace+"_"+name+"_"+uid)
}

// LogPath returns where the log of one attempt lies under the pod's directory.
func LogPath(container string, attempt int32) string {
	return filepath.Join(container, strconv.Itoa(int(attempt))+".log")
}

// A Place is where a pod runs: what its sandbox depends on, in addition to the pod.
type Place struct {
	Logs   string // directory of the logs of its containers
	Cgroup string // of the pod; "" leaves that to the runtime
	Domain string // of the cluster
	QOS    corev1.PodQOSClass
	DNS    *cri.DNSConfig
	Users  *cri.UserNamespace // of its own; nil means those of the node
}

// Sandbox returns the configuration of the pod's sandbox.
func Sandbox(pod *corev1.Pod, attempt int32, at Place) *cri.PodSandboxConfig {
	c := &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: uint32(attempt)},
		LogDirectory: at.Logs,
		DnsConfig:    at.DNS,
		Labels:       podLabels(pod),
		Annotations:  pod.Annotations,
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent:    at.Cgroup,
			SecurityContext: sandboxSecurity(pod, at.Users),
			Sysctls:         sysctls(pod),
			Overhead:        overhead(pod),
			Resources:       PodResources(pod, at.QOS),
		},
	}
	if !pod.Spec.HostNetwork {
		c.Hostname, _ = Hostname(pod, at.Domain)
		c.PortMappings = ports(pod)
	}
	return c
}

func podLabels(pod *corev1.Pod) map[string]string {
	labels := make(map[string]string, len(pod.Labels)+3)
	maps.Copy(labels, pod.Labels)
	labels[PodName], labels[PodNamespace], labels[PodUID] = pod.Name, pod.Namespace, string(pod.UID)
	return labels
}

func ports(pod *corev1.Pod) []*cri.PortMapping {
	var list []*cri.PortMapping
	for i := range pod.Spec.Containers {
		for _, p := range pod.Spec.Containers[i].Ports {
			if p.HostPort <= 0 {
				continue
			}
			list = append(list, &cri.PortMapping{
				HostIp: p.HostIP, HostPort: p.HostPort, ContainerPort: p.ContainerPort,
				Protocol: cri.Protocol(cri.Protocol_value[string(p.Protocol)]), // TCP when empty
			})
		}
	}
	return list
}

func sysctls(pod *corev1.Pod) map[string]string {
	if pod.Spec.SecurityContext == nil || len(pod.Spec.SecurityContext.Sysctls) == 0 {
		return nil
	}
	m := map[string]string{}
	for _, s := range pod.Spec.SecurityContext.Sysctls {
		m[s.Name] = s.Value
	}
	return m
}

func namespaces(pod *corev1.Pod, users *cri.UserNamespace) *cri.NamespaceOption {
	n := &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER, UsernsOptions: users}
	if pod.Spec.HostNetwork {
		n.Network = cri.NamespaceMode_NODE
	}
	if pod.Spec.HostIPC {
		n.Ipc = cri.NamespaceMode_NODE
	}
	switch {
	case pod.Spec.HostPID:
		n.Pid = cri.NamespaceMode_NODE
	case pod.Spec.ShareProcessNamespace != nil && *pod.Spec.ShareProcessNamespace:
		n.Pid = cri.NamespaceMode_POD
	}
	return n
}

func sandboxSecurity(pod *corev1.Pod, users *cri.UserNamespace) *cri.LinuxSandboxSecurityContext {
	s := &cri.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaces(pod, users),
		Seccomp:          &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault},
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if sc := list[i].SecurityContext; sc != nil && sc.Privileged != nil && *sc.Privileged {
				s.Privileged = true
			}
		}
	}
	sc := pod.Spec.SecurityContext
	if sc == nil {
		return s
	}
	if sc.RunAsUser != nil {
		s.RunAsUser = &cri.Int64Value{Value: *sc.RunAsUser}
		if sc.RunAsGroup != nil {
			s.RunAsGroup = &cri.Int64Value{Value: *sc.RunAsGroup}
		}
	}
	s.SelinuxOptions = selinux(sc.SELinuxOptions)
	s.SupplementalGroups, s.SupplementalGroupsPolicy = groups(sc)
	return s
}

func groups(sc *corev1.PodSecurityContext) ([]int64, cri.SupplementalGroupsPolicy) {
	list := append([]int64(nil), sc.SupplementalGroups...)
	if sc.FSGroup != nil {
		list = append(list, *sc.FSGroup)
	}
	policy := cri.SupplementalGroupsPolicy_Merge
	if sc.SupplementalGroupsPolicy != nil && *sc.SupplementalGroupsPolicy == corev1.SupplementalGroupsPolicyStrict {
		policy = cri.SupplementalGroupsPolicy_Strict
	}
	return list, policy
}

func selinux(o *corev1.SELinuxOptions) *cri.SELinuxOption {
	if o == nil {
		return nil
	}
	return &cri.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}
