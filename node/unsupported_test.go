package node_test

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/podfeature"
	"github.com/sampan-io/sampan/node/volumes"
)

// rejects runs an agent that keeps files, as one of a real runtime does, until a pod was rejected.
func rejects(t *testing.T, edit func(*corev1.Pod), check func(r *rig, p *corev1.Pod)) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "pods")
	t.Cleanup(func() {
		if err := volumes.Clean(root); err != nil {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.opts.RootDir = root
		stop := r.start()
		<-r.node.Ready()
		r.create(webPod("web", edit))
		p := r.await("web", "rejected", inPhase(corev1.PodFailed))
		synctest.Wait()
		check(r, p)
		stop()
	})
}

func TestPodWithUnsupportedFeatureIsRejected(t *testing.T) {
	for _, tt := range []struct {
		name           string
		edit           func(*corev1.PodSpec)
		reason, prefix string
	}{
		{"rbd", func(s *corev1.PodSpec) {
			s.Volumes = []corev1.Volume{{Name: "h", VolumeSource: corev1.VolumeSource{RBD: &corev1.RBDVolumeSource{}}}}
		}, podfeature.Unsupported, "spec.volumes[0].rbd: is not supported"},
		{"unsafe sysctl", func(s *corev1.PodSpec) {
			s.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "kernel/msgmax", Value: "1"}}}
		}, "SysctlForbidden", `forbidden sysctl: "kernel.msgmax" not allowlisted`},
		{"windows", func(s *corev1.PodSpec) { s.OS = &corev1.PodOS{Name: corev1.Windows} }, "PodOSNotSupported", "Failed to admit pod as the OS field"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rejects(t, func(p *corev1.Pod) { tt.edit(&p.Spec) }, func(r *rig, p *corev1.Pod) {
				if p.Status.Reason != tt.reason || !strings.HasPrefix(p.Status.Message, "Pod was rejected: "+tt.prefix) {
					t.Errorf("status is %s: %s, want %s: %s", p.Status.Reason, p.Status.Message, tt.reason, tt.prefix)
				}
				if len(p.Status.ContainerStatuses) != 0 {
					t.Errorf("containers are %+v, want none", p.Status.ContainerStatuses)
				}
				if e := r.events(); len(e) != 1 || e[0].Reason != tt.reason || !strings.HasPrefix(e[0].Message, tt.prefix) {
					t.Errorf("events are %v, want one with reason %s and message %s", e, tt.reason, tt.prefix)
				}
			})
		})
	}
}

// Nothing runs on a simulated node, so it runs everything.
func TestSimulatedNodeRejectsNoFeature(t *testing.T) {
	inBubble(t, func(r *rig) {
		no := false
		r.create(webPod("web", func(p *corev1.Pod) { p.Spec.HostUsers = &no }))
		r.await("web", "ready", isReady)
	})
}
