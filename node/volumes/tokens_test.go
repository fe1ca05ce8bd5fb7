package volumes

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestTokensBelongToTheOnlyUser(t *testing.T) {
	as := func(uid int64) *corev1.SecurityContext { return &corev1.SecurityContext{RunAsUser: &uid} }
	podAs := func(uid int64) *corev1.PodSecurityContext { return &corev1.PodSecurityContext{RunAsUser: &uid} }
	group := int64(7)
	for _, tt := range []struct {
		name string
		spec corev1.PodSpec
		mode int32
		user int64 // 0: the agent's
	}{
		{"nothing", corev1.PodSpec{Containers: []corev1.Container{{}}}, 0o644, 0},
		{"pod", corev1.PodSpec{SecurityContext: podAs(5), Containers: []corev1.Container{{}, {}}}, 0o600, 5},
		{"containers", corev1.PodSpec{SecurityContext: podAs(5), Containers: []corev1.Container{{SecurityContext: as(6)}, {SecurityContext: as(6)}}}, 0o600, 6},
		{"two users", corev1.PodSpec{SecurityContext: podAs(5), Containers: []corev1.Container{{SecurityContext: as(6)}, {}}}, 0o644, 0},
		{"init container without", corev1.PodSpec{InitContainers: []corev1.Container{{}}, Containers: []corev1.Container{{SecurityContext: as(6)}}}, 0o644, 0},
		{"group", corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{FSGroup: &group}, Containers: []corev1.Container{{}}}, 0o600, 0},
	} {
		f := private(&corev1.Pod{Spec: tt.spec}, nil, 0o644)
		if f.Mode != tt.mode || (f.User != nil) != (tt.user != 0) || f.User != nil && *f.User != tt.user {
			t.Errorf("%s: mode %o, user %v", tt.name, f.Mode, f.User)
		}
	}
}
