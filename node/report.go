package node

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/static"
)

const (
	// patience is how long a status waits when a better one is about to follow.
	// Most pods are up, or gone, by then, and a write is saved.
	patience = 100 * time.Millisecond

	firstRetry, lastRetry = 200 * time.Millisecond, 15 * time.Second
)

// reporter writes the status of one pod to the API server (N4). It belongs to the
// worker's goroutine.
type reporter struct {
	sent     corev1.PodStatus // what the API server has
	revision uint64           // of the pod as it was last written
	writing  bool
	seen     *corev1.Pod // while writing: the newest that came meanwhile

	// Asked is the status that was written last, if the API server normalised it (for
	// example to whole seconds), and askedAt is the revision of the normalised one.
	// Writing it again would change nothing.
	asked   *corev1.PodStatus
	askedAt uint64

	failures int
	retry    time.Time // not before; zero if nothing failed and the pod has few containers
	since    time.Time // when the wanted status began to differ from the stored one
}

// settled reports whether the API server has the status.
func (r *reporter) settled(s *corev1.PodStatus) bool { return !r.writing && r.stored(s) }

// stored reports whether the API server has s, and the pod has not changed since it
// was written.
func (r *reporter) stored(s *corev1.PodStatus) bool {
	return equality.Semantic.DeepEqual(&r.sent, s) ||
		r.asked != nil && r.askedAt == r.revision && equality.Semantic.DeepEqual(r.asked, s)
}

// saw reads the stored status from a newer version of the pod.
func (r *reporter) saw(pod *corev1.Pod) {
	if r.writing {
		r.seen = pod // reported compares it with the answer
		return
	}
	rev, err := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	if err == nil && rev > r.revision {
		r.sent, r.revision = pod.Status, rev
	}
}

// due returns when s is to be written: the zero time if it need not be written. If
// patient is true, a better status is about to follow.
func (r *reporter) due(s *corev1.PodStatus, now time.Time, patient bool) time.Time {
	if r.writing {
		return time.Time{}
	}
	if r.stored(s) {
		r.since = time.Time{}
		return time.Time{}
	}
	if r.since.IsZero() {
		r.since = now
	}
	due := now
	if patient {
		due = r.since.Add(patience)
	}
	if due.Before(r.retry) {
		due = r.retry
	}
	return due
}

// beginning reports whether s only says that the pod is being created.
func beginning(s *corev1.PodStatus) bool {
	if s.Phase != corev1.PodPending {
		return false
	}
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
		for i := range list {
			w := list[i].State.Waiting
			if w == nil || w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
				return false
			}
		}
	}
	return true
}

// report writes the status if it is due, and returns when to look again.
func (w *worker) report(now time.Time) time.Time {
	s := w.reportable()
	// A pod that is being created, changed or stopped has a better status in a moment: when it runs, when the container
	// that is replaced runs again, or when all its containers have stopped.
	patient := w.rep.sent.StartTime == nil && beginning(&s) || w.view.Replacing() || w.view.Deleting() && !w.view.Stopped()
	due := w.rep.due(&s, now, patient)
	uid := w.view.Pod.UID
	if static.Is(w.view.Pod) {
		if w.mirror == nil {
			return time.Time{}
		}
		uid = w.mirror.UID
	}
	if due.IsZero() || w.view.Gone {
		return time.Time{}
	}
	if now.Before(due) {
		return due
	}
	patch, err := statusPatch(uid, &w.rep.sent, &s)
	if err != nil {
		w.log.Error("status can't be encoded", "err", err)
		return time.Time{}
	}
	changed := w.rep.since
	w.rep.writing, w.rep.since = true, time.Time{}
	w.ops.Go(func(ctx context.Context) {
		var pod *corev1.Pod
		began := time.Now()
		err := run.Catch(func() (err error) {
			pod, err = client.Pods.Patch(ctx, w.n.opts.Client, w.key.Namespace, w.key.Name, types.StrategicMergePatchType, patch, "status")
			return err
		})
		ended := time.Now()
		w.post(func() {
			if now := time.Now(); err != nil {
				w.rep.since = changed
			} else {
				w.n.metrics.Pods.StatusSync.Observe(now.Sub(changed).Seconds())
				w.n.metrics.Pods.Reported(&w.starting, pod, &s, now)
			}
			w.reported(ctx, pod, s, err)
			if pause := reportPace.after(w.view.Pod, ended.Sub(began)); pause > 0 && err == nil {
				w.rep.retry = ended.Add(pause)
			}
		})
	})
	return time.Time{}
}

// reported handles the result of a write.
func (w *worker) reported(ctx context.Context, pod *corev1.Pod, s corev1.PodStatus, err error) {
	r := &w.rep
	r.writing = false
	switch {
	case err == nil:
		// Keep the stored status, not the written one: other clients write conditions, too.
		r.sent, r.failures, r.retry, r.asked = pod.Status, 0, time.Time{}, nil
		rev, err := strconv.ParseUint(pod.ResourceVersion, 10, 64)
		if err == nil && rev == r.revision && !equality.Semantic.DeepEqual(&r.sent, &s) {
			r.asked, r.askedAt = &s, rev // our write changed nothing
		}
		if err == nil {
			r.revision = rev
		}
	case ctx.Err() != nil:
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		// The pod was deleted, or another pod has its name. The watch reports it; until
		// then there is nothing to write.
		r.sent = s
	default:
		if r.failures++; r.failures == 1 {
			w.log.Warn("pod status not written, will try again", "err", err)
		}
		r.retry = time.Now().Add(pauseAfter(r.failures))
	}
	if seen := r.seen; seen != nil {
		r.seen = nil
		r.saw(seen)
	}
}

// pauseAfter returns the pause after so many failures in a row.
func pauseAfter(failures int) time.Duration {
	return run.Backoff{First: firstRetry, Max: lastRetry}.Pause(failures)
}

// statusPatch returns the strategic merge patch from one status to another. It
// names the pod's UID, so that it can't hit a namesake.
func statusPatch(uid types.UID, old, now *corev1.PodStatus) ([]byte, error) {
	before, err := fields(old)
	if err != nil {
		return nil, err
	}
	after, err := fields(now)
	if err != nil {
		return nil, err
	}
	diff := map[string]any{}
	for name, value := range after {
		switch name {
		case "conditions":
			if c := changedConditions(old.Conditions, now.Conditions); len(c) > 0 {
				diff[name] = c
			}
		case "podIPs", "hostIPs":
			// These lists are merged by address, so a change has to say that
			// the old ones go.
			if string(before[name]) != string(value) {
				list := []any{map[string]string{"$patch": "replace"}}
				var items []json.RawMessage
				if err := json.Unmarshal(value, &items); err != nil {
					return nil, err
				}
				for _, i := range items {
					list = append(list, i)
				}
				diff[name] = list
			}
		default:
			if string(before[name]) != string(value) {
				diff[name] = value
			}
		}
	}
	for name := range before {
		if _, kept := after[name]; !kept && name != "conditions" {
			diff[name] = nil
		}
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "status": diff})
}

func fields(s *corev1.PodStatus) (map[string]json.RawMessage, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("pod status: %w", err)
	}
	m := map[string]json.RawMessage{}
	return m, json.Unmarshal(b, &m)
}

// changedConditions returns the conditions that differ, with every field set, so that
// merging leaves nothing of the old ones.
func changedConditions(old, now []corev1.PodCondition) []map[string]any {
	var list []map[string]any
	for i := range now {
		c := &now[i]
		same := false
		for j := range old {
			same = same || equality.Semantic.DeepEqual(&old[j], c)
		}
		if same {
			continue
		}
		m := map[string]any{
			"type": c.Type, "status": c.Status, "lastTransitionTime": c.LastTransitionTime, "lastProbeTime": c.LastProbeTime,
			"reason": nil, "message": nil,
		}
		if c.Reason != "" {
			m["reason"] = c.Reason
		}
		if c.Message != "" {
			m["message"] = c.Message
		}
		if c.ObservedGeneration != 0 {
			m["observedGeneration"] = c.ObservedGeneration
		}
		list = append(list, m)
	}
	for i := range old {
		if t := old[i].Type; temporary(t) && !slices.ContainsFunc(now, func(c corev1.PodCondition) bool { return c.Type == t }) {
			list = append(list, map[string]any{"type": t, "$patch": "delete"})
		}
	}
	return list
}

// temporary reports whether a condition is removed when it does not hold any more.
func temporary(t corev1.PodConditionType) bool {
	return t == corev1.PodResizePending || t == corev1.PodResizeInProgress
}
