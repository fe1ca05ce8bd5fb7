package lifecycle_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/node/lifecycle"
)

func TestSysctls(t *testing.T) {
	for _, tt := range []struct {
		name    string
		spec    corev1.PodSpec
		allowed []string
		want    string
	}{
		{name: "kernel.shm_rmid_forced"},
		{name: "net/ipv4/tcp_syncookies"},
		{name: "kernel.shm_rmid_forced", spec: corev1.PodSpec{HostIPC: true}, want: `"kernel.shm_rmid_forced" not allowed with host IPC enabled`},
		{name: "net.ipv4.tcp_rmem", spec: corev1.PodSpec{HostNetwork: true}, want: `"net.ipv4.tcp_rmem" not allowed with host Net enabled`},
		{name: "kernel/msgmax", want: `"kernel.msgmax" not allowlisted`},
		{name: "kernel/msgmax", allowed: []string{"kernel.msg*"}},
		{name: "kernel.msgmax", allowed: []string{"kernel.sem"}, want: `"kernel.msgmax" not allowlisted`},
		{name: "net.core.somaxconn", allowed: []string{"net.core.somaxconn"}, spec: corev1.PodSpec{HostNetwork: true}, want: `"net.core.somaxconn" not allowed with host Net enabled`},
		{name: "vm.swappiness", allowed: []string{"vm.*"}, want: `"vm.swappiness" not allowlisted`},
	} {
		pod := &corev1.Pod{Spec: tt.spec}
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: tt.name}}}
		got := ""
		if err := lifecycle.Sysctls(pod, tt.allowed); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s with %v allowed: %q, want %q", tt.name, tt.allowed, got, tt.want)
		}
	}
}

func TestNeedsAppArmor(t *testing.T) {
	profile := func(kind corev1.AppArmorProfileType) *corev1.SecurityContext {
		return &corev1.SecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: kind}}
	}
	for kind, want := range map[corev1.AppArmorProfileType]bool{
		corev1.AppArmorProfileTypeUnconfined: false, corev1.AppArmorProfileTypeRuntimeDefault: true, corev1.AppArmorProfileTypeLocalhost: true,
	} {
		if got := lifecycle.NeedsAppArmor(&corev1.PodSpec{InitContainers: []corev1.Container{{SecurityContext: profile(kind)}}}); got != want {
			t.Errorf("%s: %v, want %v", kind, got, want)
		}
	}
}
