package nodes

import (
	"container/heap"
	"context"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/internal/run"
)

// A resident is a pod of the fleet: its body, and the state of its object in the API
// server. It belongs to the loop.
type resident struct {
	*body
	member *member

	known    bool   // the API server has view.Last
	busy     bool   // a request about it is running
	revision uint64 // of view.Pod
	seen     uint64 // the last revision from the watch
	removed  bool   // the API server has been asked to remove it
	failures int
	retry    time.Time // not before

	due   time.Time // in the timeline, if not zero
	index int
}

// The back-off after a request that failed.
const firstRetry, lastRetry = 200 * time.Millisecond, 15 * time.Second

// pauseAfter returns the pause after so many failures in a row.
func pauseAfter(failures int) time.Duration {
	return run.Backoff{First: firstRetry, Max: lastRetry}.Pause(failures)
}

// An absent is a change of a pod that a node missed while it was cut off.
type absent struct {
	member *member
	pod    *corev1.Pod // nil: it is deleted
}

// handlePods handles changes of pods. Addresses that are in use already are claimed
// before any is given out.
func (f *Fleet) handlePods(pods map[types.UID]*corev1.Pod, now time.Time) {
	for uid, pod := range pods {
		if pod != nil && pod.Status.PodIP != "" && f.residents[uid] == nil && !over(pod) {
			f.members[pod.Spec.NodeName].claim(pod.Status.PodIP)
		}
	}
	for uid, pod := range pods {
		run.Shield(f.log, func() { f.handlePod(uid, pod, now) }, "pod", uid)
	}
}

// handlePod handles a change of a pod; nil: it is deleted.
func (f *Fleet) handlePod(uid types.UID, pod *corev1.Pod, now time.Time) {
	r := f.residents[uid]
	var m *member
	switch {
	case r != nil:
		m = r.member
	case pod != nil:
		m = f.members[pod.Spec.NodeName]
	default:
		m = f.missed[uid].member
	}
	switch {
	case m == nil:
	case m.cut.Load(): // F3
		if r == nil && pod == nil {
			delete(f.missed, uid) // it was created and deleted
		} else {
			f.missed[uid] = absent{m, pod}
		}
	case pod == nil:
		f.forget(r)
	case r == nil && over(pod):
	case r == nil:
		r = &resident{body: newBody(pod, f.opts.Plan.Life(pod), m, hostIPs, now), member: m}
		r.revision = revision(pod)
		r.seen = r.revision
		f.residents[uid] = r
		m.settle(uid)
		f.markedStep(r, now)
	default:
		f.updatePod(r, pod, now)
	}
}

func (f *Fleet) updatePod(r *resident, pod *corev1.Pod, now time.Time) {
	r.seen = revision(pod)
	switch {
	case r.seen <= r.revision: // our own write: its answer has been handled
		f.again(r)
	case r.removed && over(pod):
		f.forget(r) // only finalizers keep it
	default:
		r.update(pod)
		r.revision = r.seen
		r.known = false // compared with view.Last before it is written
		f.step(r, now)
	}
}

// over reports whether nothing has to be done for the pod any more: it has ended, and is
// not being deleted, or only a finalizer keeps it.
func over(pod *corev1.Pod) bool {
	if !podstate.Finished(pod) {
		return false
	}
	return pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
}

func revision(pod *corev1.Pod) uint64 {
	v, _ := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	return v
}

// forget drops a pod.
func (f *Fleet) forget(r *resident) {
	if r == nil {
		return
	}
	r.leave()
	f.timeline.plan(r, time.Time{})
	delete(f.residents, r.view.Pod.UID)
	r.member.unsettle(r.view.Pod.UID)
}

// step advances a pod to now, and starts the writes that are due.
func (f *Fleet) step(r *resident, now time.Time) {
	before := r.changed
	wake := r.advance(now)
	if r.changed != before {
		r.known = false
	}
	for _, w := range r.warnings {
		ref := client.Reference(r.view.Pod)
		if w.container != "" {
			ref.FieldPath = "spec.containers{" + w.container + "}"
		}
		f.recorder.EventFor(ref, corev1.EventTypeWarning, w.reason, "%s", w.message)
	}
	r.warnings = nil
	if again := f.report(r, now); !again.IsZero() && (wake.IsZero() || again.Before(wake)) {
		wake = again
	}
	if f.residents[r.view.Pod.UID] == r {
		f.timeline.plan(r, wake)
	}
}

// report writes the pod's status if it has changed, or deletes its object if only that is
// left. It returns when to try again.
func (f *Fleet) report(r *resident, now time.Time) time.Time {
	if r.busy || r.removed || r.member.cut.Load() {
		return time.Time{}
	}
	if !r.known && equality.Semantic.DeepEqual(&r.view.Pod.Status, &r.view.Last) {
		r.known = true
	}
	switch {
	case r.known && !r.remove:
		if over(r.view.Pod) && r.seen >= r.revision { // no older version can arrive
			f.forget(r)
		}
		return time.Time{}
	case now.Before(r.retry):
		return r.retry
	case r.known:
		f.remove(r)
	default:
		f.write(r)
	}
	return time.Time{}
}

// write starts writing the status, on top of the version that it was computed from (F1).
func (f *Fleet) write(r *resident) {
	pod := *r.view.Pod
	pod.Status = r.view.Last
	sent := r.changed
	r.busy = true
	f.jobs = append(f.jobs, func(ctx context.Context) func() {
		written, err := client.Pods.Update(ctx, f.opts.As(r.member.name), &pod, "status")
		return func() {
			r.busy = false
			if err == nil {
				r.failures, r.retry = 0, time.Time{}
				if v := revision(written); v > r.revision {
					r.update(written)
					r.revision = v
				}
				r.known = r.known || r.changed == sent && r.view.Pod.ResourceVersion == written.ResourceVersion
			} else if apierrors.IsConflict(err) && r.view.Pod.ResourceVersion == pod.ResourceVersion || apierrors.IsNotFound(err) {
				// The watch will bring the version of another client, or that it is
				// deleted.
				return
			} else if !apierrors.IsConflict(err) {
				f.failed(ctx, r, "write its status", err)
			}
			f.again(r)
		}
	})
}

// remove starts deleting the object (F2).
func (f *Fleet) remove(r *resident) {
	r.busy = true
	pod := r.view.Pod
	f.jobs = append(f.jobs, func(ctx context.Context) func() {
		none := int64(0)
		err := client.Pods.Delete(ctx, f.opts.As(r.member.name), pod.Namespace, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &none, Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
		})
		return func() {
			r.busy = false
			switch {
			case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
				r.removed = true // the watch reports its deletion
			default:
				f.failed(ctx, r, "remove it", err)
				f.again(r)
			}
		}
	})
}

func (f *Fleet) failed(ctx context.Context, r *resident, what string, err error) {
	if ctx.Err() != nil {
		return
	}
	if r.failures++; r.failures == 1 {
		f.log.WarnContext(ctx, "request about a simulated pod failed, will try again", "to", what, "pod", r.view.Pod.Namespace+"/"+r.view.Pod.Name, "node", r.member.name, "err", err)
	}
	r.retry = time.Now().Add(pauseAfter(r.failures))
}

// again plans the next write for a pod.
func (f *Fleet) again(r *resident) {
	if f.residents[r.view.Pod.UID] != r {
		return
	}
	if at := f.report(r, time.Now()); !at.IsZero() && (r.due.IsZero() || at.Before(r.due)) {
		f.timeline.plan(r, at)
	}
}

// timeline is a heap of residents by when they are due.
type timeline []*resident

// plan sets the time at which a resident is due; the zero time is never.
func (t *timeline) plan(r *resident, at time.Time) {
	was := r.due
	r.due = at
	switch {
	case was.IsZero() && at.IsZero():
	case was.IsZero():
		heap.Push(t, r)
	case at.IsZero():
		heap.Remove(t, r.index)
	default:
		heap.Fix(t, r.index)
	}
}

// due removes and returns a resident that is due, or returns nil.
func (t *timeline) due(now time.Time) *resident {
	if len(*t) == 0 || (*t)[0].due.After(now) {
		return nil
	}
	r := (*t)[0]
	t.plan(r, time.Time{})
	return r
}

// first returns when the first is due; the zero time is never.
func (t timeline) first() time.Time {
	if len(t) == 0 {
		return time.Time{}
	}
	return t[0].due
}

// Len implements heap.Interface.
func (t timeline) Len() int { return len(t) }

// Less implements heap.Interface.
func (t timeline) Less(i, j int) bool { return t[i].due.Before(t[j].due) }

// Swap implements heap.Interface.
func (t timeline) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].index, t[j].index = i, j
}

// Push implements heap.Interface.
func (t *timeline) Push(x any) {
	r := x.(*resident) // only residents are pushed
	r.index = len(*t)
	*t = append(*t, r)
}

// Pop implements heap.Interface.
func (t *timeline) Pop() any {
	last := len(*t) - 1
	r := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	return r
}
