package rollout

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/internal/podstate"
)

// live returns the pods that are of use: not ended, not being deleted.
func live(pods []*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return !podstate.Active(p) })
}

// readySince returns when a pod became ready by the server's clock, and whether
// it is.
func readySince(p *corev1.Pod) (since time.Time, ready bool) {
	if !podstate.Ready(p) {
		return time.Time{}, false
	}
	return podstate.Condition(p, corev1.PodReady).LastTransitionTime.Time, true
}

// A patience says which pods have been ready for long enough. A pod that becomes
// ready while it watches is timed by its own clock alone; only for what was ready
// before does it believe the server's.
type patience struct {
	least time.Duration // 0: being ready is enough
	seen  map[types.UID]readiness
	begun bool
}

type readiness struct {
	told  time.Time // when the server says that it became ready
	since time.Time // since when it counts
}

// look takes in the pods as they are now. It returns those that are available, and
// when the next one will be if nothing changes; zero if none will.
func (w *patience) look(pods []*corev1.Pod, now time.Time) (available map[types.UID]bool, next time.Time) {
	available = map[types.UID]bool{}
	seen := map[types.UID]readiness{}
	for _, p := range pods {
		told, ready := readySince(p)
		if !ready {
			continue
		}
		r, known := w.seen[p.UID]
		if !known || !r.told.Equal(told) {
			r = readiness{told: told, since: now}
			if !w.begun && told.Before(now) {
				r.since = told
			}
		}
		seen[p.UID] = r
		switch at := r.since.Add(w.least); {
		case !at.After(now):
			available[p.UID] = true
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	w.seen, w.begun = seen, true
	return available, next
}

// sideOf counts live pods.
func sideOf(pods []*corev1.Pod, available map[types.UID]bool) Side {
	s := Side{Pods: int32(len(pods))}
	for _, p := range pods {
		if available[p.UID] {
			s.Ready++
		}
	}
	return s
}

// byName sorts pods, so that it is always the same one's turn.
func byName(pods []*corev1.Pod) {
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
}
