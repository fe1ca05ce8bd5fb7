package attach

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/internal/volumefit"
)

// at is the view of a volume that a pod on the node needs, changed by edits.
func at(edits ...func(v *view)) view {
	v := view{
		name: "n1", needed: true,
		node: &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{volumefit.ManagedAttach: "true"}},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		},
		volume: &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}},
		}},
		pods: []*corev1.Pod{pod("a", "web")},
	}
	for _, edit := range edits {
		edit(&v)
	}
	return v
}

func pod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func unneeded(v *view) { v.pods = nil }
func attached(v *view) {
	v.own = &storagev1.VolumeAttachment{Status: storagev1.VolumeAttachmentStatus{Attached: true}}
}

func reported(v *view) {
	v.node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "kubernetes.io/csi/d^h"}}
}

func used(v *view)     { v.node.Status.VolumesInUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/d^h"} }
func notReady(v *view) { v.node.Status.Conditions = nil }
func elsewhere(v *view) {
	v.others = []*storagev1.VolumeAttachment{{}}
}
func deleted(v *view) { v.own.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

func TestPlan(t *testing.T) {
	waited := func(d time.Duration) func(v *view) { return func(v *view) { v.waiting = d } }
	for _, tt := range []struct {
		name string
		v    view
		want verdict
	}{
		{"a pod needs it", at(), verdict{attach: true}},
		{"the driver does not attach", at(func(v *view) { v.needed = false }), verdict{}},
		{"the node attaches by itself", at(func(v *view) { v.node.Annotations = nil }), verdict{}},
		{"the node is gone", at(func(v *view) { v.node = nil }), verdict{}},
		{"being attached", at(attached, func(v *view) { v.own.Status.Attached = false }), verdict{}},
		{"attached", at(attached), verdict{report: true}},
		{"reported", at(attached, reported), verdict{}},
		{"reported without being attached", at(reported), verdict{unreport: true}},
		{"being detached", at(attached, deleted, reported), verdict{unreport: true}},
		{"the attacher failed", at(attached, func(v *view) {
			v.own.Status = storagev1.VolumeAttachmentStatus{AttachError: &storagev1.VolumeError{Message: "no slot"}}
		}), verdict{event: `AttachVolume.Attach failed for volume "pv" : no slot`}},
		{"on another node", at(elsewhere), verdict{other: true, event: `Waiting for detach for volume "pv" Volume is already exclusively attached to one node, waiting on detach before it can be attached to another node`}},
		{
			"used on another node",
			at(elsewhere, func(v *view) { v.rivals = []*corev1.Pod{pod("a", "y"), pod("b", "secret"), pod("a", "x")} }),
			verdict{other: true, event: `Waiting for detach for volume "pv" Volume is already used by pod(s) x, y and 1 pod(s) in different namespaces`},
		},
		{"for several nodes", at(elsewhere, func(v *view) { v.volume.Spec.AccessModes[0] = corev1.ReadWriteMany }), verdict{attach: true}},

		{"not needed", at(unneeded), verdict{}},
		{"not needed, mounted", at(unneeded, attached, reported, used), verdict{unwanted: true, after: 6 * time.Minute}},
		{"not needed, mounted for long", at(unneeded, attached, reported, used, waited(time.Hour)), verdict{unwanted: true}},
		{"not needed, mounted, not ready", at(unneeded, attached, reported, used, notReady, waited(time.Minute)), verdict{unwanted: true, after: 5 * time.Minute}},
		{"not needed, mounted, not ready for long", at(unneeded, attached, reported, used, notReady, waited(6*time.Minute)), verdict{unwanted: true, unreport: true}},
		{"not needed, mounted, out of service", at(unneeded, attached, used, func(v *view) {
			v.node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService}}
		}), verdict{unwanted: true, detach: true}},
		{"unmounted", at(unneeded, attached, reported), verdict{unwanted: true, unreport: true}},
		{"unmounted, not reported", at(unneeded, attached), verdict{unwanted: true, detach: true}},
		{"detached", at(unneeded, attached, deleted, reported), verdict{unreport: true}},
		{"on a node that is gone", at(unneeded, attached, func(v *view) { v.node = nil }), verdict{unwanted: true, detach: true}},
	} {
		if got := plan(tt.v); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestNamesOfPodsElsewhereAreNotShown(t *testing.T) {
	v := at(elsewhere, func(v *view) { v.rivals = []*corev1.Pod{pod("b", "secret")} })
	if text := plan(v).event; strings.Contains(text, "secret") || !strings.Contains(text, "1 pod(s) in different namespaces") {
		t.Error(text)
	}
}
