package crispec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// maxHostname is the kernel's limit less one, as Kubernetes has it.
const maxHostname = 63

// Hostname returns the pod's host name and, if it has a subdomain, its full name
// in the cluster. Both are one if the pod wants that.
func Hostname(pod *corev1.Pod, domain string) (name, full string) {
	name, full = names(pod, domain)
	if full != "" && pod.Spec.SetHostnameAsFQDN != nil && *pod.Spec.SetHostnameAsFQDN {
		name = full
	}
	return name, full
}

// names returns the pod's short name and, if it has a subdomain, its full one.
func names(pod *corev1.Pod, domain string) (name, full string) {
	name = pod.Name
	if pod.Spec.Hostname != "" {
		name = pod.Spec.Hostname
	}
	if len(name) > maxHostname {
		name = strings.TrimRight(name[:maxHostname], "-.")
	}
	if pod.Spec.HostnameOverride != nil {
		return *pod.Spec.HostnameOverride, ""
	}
	if pod.Spec.Subdomain != "" {
		full = fmt.Sprintf("%s.%s.%s.svc.%s", name, pod.Spec.Subdomain, pod.Namespace, domain)
	}
	return name, full
}

// Hosts returns the content of the pod's /etc/hosts. A pod in the host's network
// has the host's file, which is handed in.
func Hosts(pod *corev1.Pod, ips []string, domain string, hostFile string) string {
	var b strings.Builder
	if pod.Spec.HostNetwork {
		b.WriteString("# Kubernetes-managed hosts file (host network).\n")
		b.WriteString(hostFile)
	} else {
		b.WriteString("# Kubernetes-managed hosts file.\n")
		b.WriteString("127.0.0.1\tlocalhost\n")
		b.WriteString("::1\tlocalhost ip6-localhost ip6-loopback\n")
		b.WriteString("fe00::0\tip6-localnet\n")
		b.WriteString("fe00::0\tip6-mcastprefix\n")
		b.WriteString("fe00::1\tip6-allnodes\n")
		b.WriteString("fe00::2\tip6-allrouters\n")
		name, full := names(pod, domain)
		for _, ip := range ips {
			if full != "" {
				fmt.Fprintf(&b, "%s\t%s\t%s\n", ip, full, name)
			} else {
				fmt.Fprintf(&b, "%s\t%s\n", ip, name)
			}
		}
	}
	if len(pod.Spec.HostAliases) > 0 {
		b.WriteString("\n# Entries added by HostAliases.\n")
		for _, a := range pod.Spec.HostAliases {
			fmt.Fprintf(&b, "%s\t%s\n", a.IP, strings.Join(a.Hostnames, "\t"))
		}
	}
	return b.String()
}
