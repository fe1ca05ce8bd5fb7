package rollout

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/controller/rolling"
	"github.com/sampan-io/sampan/internal/podstate"
)

// live returns the pods that have not ended and are not being deleted.
func live(pods []*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return !podstate.Active(p) })
}

// readySince returns when a pod became ready, from its condition, and whether it is ready.
func readySince(p *corev1.Pod) (since time.Time, ready bool) {
	if !podstate.Ready(p) {
		return time.Time{}, false
	}
	return podstate.Condition(p, corev1.PodReady).LastTransitionTime.Time, true
}

// An availability finds the pods that have been ready for the minimum time. It measures with its own clock for pods that
// become ready during the run, and uses the time in the condition for pods that were ready before.
type availability struct {
	least time.Duration // the minimum time; 0 means that a ready pod is available
	seen  map[types.UID]readiness
	begun bool
}

type readiness struct {
	condition time.Time // the last transition in the condition
	since     time.Time // since when the pod counts as ready
}

// update returns the pods that are available now, and the time at which the next one will be if nothing changes; zero if
// none will.
func (w *availability) update(pods []*corev1.Pod, now time.Time) (available map[types.UID]bool, next time.Time) {
	available = map[types.UID]bool{}
	seen := map[types.UID]readiness{}
	for _, p := range pods {
		condition, ready := readySince(p)
		if !ready {
			continue
		}
		r, known := w.seen[p.UID]
		if !known || !r.condition.Equal(condition) {
			r = readiness{condition: condition, since: now}
			if !w.begun && condition.Before(now) {
				r.since = condition
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
func sideOf(pods []*corev1.Pod, available map[types.UID]bool) rolling.Side {
	s := rolling.Side{Pods: int32(len(pods))}
	for _, p := range pods {
		if available[p.UID] {
			s.Ready++
		}
	}
	return s
}

// byName sorts pods by name, so that the order of replacement is stable.
func byName(pods []*corev1.Pod) {
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
}
