package rollout

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestAvailability: a pod is available when it has been ready for ten seconds. What it
// was before the first look, the server says; from then on this clock alone counts,
// however wrong the server's is.
func TestAvailability(t *testing.T) {
	const never = -1
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	type look struct {
		at    int // seconds since the start
		since int // second at which the server says that it became ready; never: it isn't
		want  bool
		next  int // second at which it will be available; never: not by itself
	}
	for name, looks := range map[string][]look{
		"ready for long":             {{0, -60, true, never}},
		"ready for a while":          {{0, -4, false, 6}, {5, -4, false, 6}, {6, -4, true, never}},
		"becomes ready":              {{0, never, false, never}, {3, 3, false, 13}, {13, 3, true, never}},
		"the server's clock is slow": {{0, never, false, never}, {3, -500, false, 13}, {13, -500, true, never}},
		"the server's clock is fast": {{0, never, false, never}, {3, 500, false, 13}, {13, 500, true, never}},
		"fast from the start":        {{0, 500, false, 10}, {10, 500, true, never}},
		"comes and goes":             {{0, never, false, never}, {3, 3, false, 13}, {8, never, false, never}, {9, 9, false, 19}, {13, 9, false, 19}},
		"came and went unseen":       {{0, never, false, never}, {3, 3, false, 13}, {12, 11, false, 22}},
	} {
		t.Run(name, func(t *testing.T) {
			w := availability{least: 10 * time.Second}
			for _, l := range looks {
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID("a")}}
				if l.since != never {
					p.Status.Conditions = []corev1.PodCondition{{
						Type: corev1.PodReady, Status: corev1.ConditionTrue,
						LastTransitionTime: metav1.NewTime(start.Add(time.Duration(l.since) * time.Second)),
					}}
				}
				got, next := w.update([]*corev1.Pod{p}, start.Add(time.Duration(l.at)*time.Second))
				var want time.Time
				if l.next != never {
					want = start.Add(time.Duration(l.next) * time.Second)
				}
				if got["a"] != l.want || !next.Equal(want) {
					t.Errorf("at %d s: available %v, next %v; want %v, %v", l.at, got["a"], next, l.want, want)
				}
			}
		})
	}
}
