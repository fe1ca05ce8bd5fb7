package node

import (
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/node/deviceplugin"
)

// TestDeviceHolder says which pods release their devices without being asked.
func TestDeviceHolder(t *testing.T) {
	n := &Node{log: slog.New(slog.DiscardHandler)}
	deleted := metav1.Now()
	n.workers.all = map[types.UID]*worker{
		"runs":     newWorker(n, &corev1.Pod{}),
		"deleting": newWorker(n, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &deleted}}),
		"ended":    newWorker(n, &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}),
		"deleted":  newWorker(n, &corev1.Pod{}),
	}
	n.workers.all["deleted"].leave()
	n.workers.found = map[types.UID]*found{"found": {}}
	for uid, want := range map[types.UID]deviceplugin.Holding{
		"runs": deviceplugin.Active, "deleting": deviceplugin.Ending, "ended": deviceplugin.Ending, "deleted": deviceplugin.Ending,
		"found": deviceplugin.Ending, "unknown": deviceplugin.Gone,
	} {
		if got := n.deviceHolder(uid); got != want {
			t.Errorf("pod that is %s: %d, want %d", uid, got, want)
		}
	}
	n.workers.arrivals = map[types.UID]*corev1.Pod{}
	if got := n.deviceHolder("unknown"); got != deviceplugin.Active {
		t.Errorf("before the first list: %d, want %d", got, deviceplugin.Active)
	}
}
