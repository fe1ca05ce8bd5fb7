package node

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A status that the API server normalises, here to whole seconds, is written once and
// not for ever.
func TestReporterWritesNormalisedStatusOnce(t *testing.T) {
	now := time.Unix(1000, 500)
	status := func(at time.Time) corev1.PodStatus {
		return corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, LastTransitionTime: metav1.NewTime(at)}}}
	}
	w := &worker{}
	meant, kept := status(now), status(now.Truncate(time.Second))
	if w.rep.due(&meant, now, false).IsZero() {
		t.Fatal("a new status is not due")
	}
	answer := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}, Status: kept}
	w.reported(t.Context(), answer, meant, nil)
	if w.rep.due(&meant, now, false).IsZero() {
		t.Error("what somebody may have changed while it was written is not told again")
	}
	w.reported(t.Context(), answer, meant, nil) // the second write changed nothing
	if due := w.rep.due(&meant, now, false); !due.IsZero() {
		t.Errorf("the same status is due again at %v", due)
	}
	// Another client changed the pod: the status is written once more.
	w.rep.saw(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "8"}})
	if w.rep.due(&meant, now, false).IsZero() {
		t.Error("a status that was overwritten is not told again")
	}
}
