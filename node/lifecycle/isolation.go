package lifecycle

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Sysctls returns why the pod may not set one of its kernel parameters, in kubelet's words: it is neither one of the safe
// ones nor allowed by the administrator, or it belongs to a namespace that the pod shares with the node. An allowed name may
// end in "*".
func Sysctls(pod *corev1.Pod, allowed []string) error {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	for _, s := range pod.Spec.SecurityContext.Sysctls {
		name := dotted(s.Name)
		namespace, known := safeSysctls[name]
		if !known {
			if !matches(name, allowed) {
				return fmt.Errorf("%q not allowlisted", name)
			}
			namespace = sysctlNamespace(name)
		}
		switch {
		case namespace == "IPC" && pod.Spec.HostIPC, namespace == "Net" && pod.Spec.HostNetwork:
			return fmt.Errorf("%q not allowed with host %s enabled", name, namespace)
		case namespace == "":
			return fmt.Errorf("%q not allowlisted", name) // it belongs to the whole node
		}
	}
	return nil
}

func matches(name string, patterns []string) bool {
	for _, p := range patterns {
		p = dotted(p)
		prefix, open := strings.CutSuffix(p, "*")
		if p == name || open && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// sysctlNamespace returns the namespace to which a kernel parameter belongs; "" if a pod can't have its own.
func sysctlNamespace(name string) string {
	for prefix, namespace := range map[string]string{"kernel.shm": "IPC", "kernel.msg": "IPC", "fs.mqueue.": "IPC", "net.": "Net"} {
		if strings.HasPrefix(name, prefix) {
			return namespace
		}
	}
	if name == "kernel.sem" {
		return "IPC"
	}
	return ""
}

// safeSysctls are the kernel parameters that a pod may set without asking the administrator, as upstream's kubelet has
// them. The value is the namespace that the pod must have of its own. Kernels that are too old for one of them are too old
// for the container runtime.
var safeSysctls = map[string]string{
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

// NeedsAppArmor reports whether a container of the pod asks for an AppArmor profile.
func NeedsAppArmor(spec *corev1.PodSpec) bool {
	needs := func(p *corev1.AppArmorProfile) bool {
		return p != nil && p.Type != corev1.AppArmorProfileTypeUnconfined
	}
	if sc := spec.SecurityContext; sc != nil && needs(sc.AppArmorProfile) {
		return true
	}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			if sc := list[i].SecurityContext; sc != nil && needs(sc.AppArmorProfile) {
				return true
			}
		}
	}
	return false
}
