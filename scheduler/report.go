package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// reportFailure writes an event and a condition about the reason why a pod has no node. If that fails it is tried again
// soon, with the next refusal.
func (l *loop) reportFailure(it *item, pod *plugin.Pod, reason, why string) {
	obj := pod.Pod
	profile := it.profile.Name
	l.bind.Go(func(ctx context.Context) {
		l.recorders[profile].Event(obj, corev1.EventTypeWarning, "FailedScheduling", "%s", why)
		l.retryReport(ctx, it, obj, mark(ctx, l.opts.Client, obj, corev1.PodScheduled, corev1.ConditionFalse, reason, why, nil))
	})
}

// retryReport schedules another report if err is an error that can go away.
func (s *Scheduler) retryReport(ctx context.Context, it *item, obj *corev1.Pod, err error) {
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || ctx.Err() != nil {
		return
	}
	s.opts.Log.Warn("updating the pod's condition failed, trying again later", "pod", obj.Name, "namespace", obj.Namespace, "err", err)
	s.post(func(l *loop) {
		if l.queue.items[obj.UID] == it && it.at == parked {
			it.reported = ""
			l.later(it)
		}
	})
}

// mark writes a condition of a pod, and the node where it is promised room; nil leaves that as it is.
func mark(ctx context.Context, c client.Interface, pod *corev1.Pod, kind corev1.PodConditionType, status corev1.ConditionStatus, reason, why string, promised *string) error {
	condition := corev1.PodCondition{
		Type:               kind,
		ObservedGeneration: pod.Generation,
		Status:             status,
		Reason:             reason,
		Message:            why,
		LastTransitionTime: metav1.Now().Rfc3339Copy(), // as it comes back over HTTP
	}
	for _, old := range pod.Status.Conditions {
		if old.Type != condition.Type || old.Status != condition.Status {
			continue
		}
		if old.Reason == condition.Reason && old.Message == condition.Message && old.ObservedGeneration == condition.ObservedGeneration && promised == nil {
			return nil
		}
		condition.LastTransitionTime = old.LastTransitionTime
	}
	// Conditions are merged by type, so the patch does not touch others; the uid makes it fail for a new pod of the same
	// name.
	all := map[string]any{"conditions": []corev1.PodCondition{condition}}
	if promised != nil {
		all["nominatedNodeName"] = *promised
	}
	return patchStatus(ctx, c, pod, all)
}

func patchStatus(ctx context.Context, c client.Interface, pod *corev1.Pod, status map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return err
	}
	_, err = client.Pods.Patch(ctx, c, pod.Namespace, pod.Name, types.StrategicMergePatchType, patch, "status")
	return err
}

// makeRoom writes the nomination of a pod and deletes the victims.
func (l *loop) makeRoom(it *item, pod *plugin.Pod, d *Decision, why string) {
	room, obj := d.Room, pod.Pod
	var demoted []*corev1.Pod // of lower priority, promised room on the same node
	if n := l.cluster.Snapshot.Node(room.Node); n != nil {
		for _, p := range l.cluster.Snapshot.Nominated(n) {
			if p.Priority() < pod.Priority() {
				demoted = append(demoted, p.Pod)
			}
		}
		for _, p := range demoted {
			l.cluster.Nominate(&plugin.Pod{Pod: p}, "")
		}
	}
	victims := make([]*corev1.Pod, len(room.Victims))
	for i, v := range room.Victims {
		victims[i] = v.Pod
	}
	l.metrics.preempted(len(victims))
	l.slow.Go(func(ctx context.Context) {
		l.recorders[it.profile.Name].Event(obj, corev1.EventTypeWarning, "FailedScheduling", "%s", why)
		ok, err := l.spared(ctx, obj, room.Node, victims)
		if err == nil && !ok {
			err = errors.New("an extender refused the preemption")
		}
		if err == nil {
			err = mark(ctx, l.opts.Client, obj, corev1.PodScheduled, corev1.ConditionFalse, corev1.PodReasonUnschedulable, why, &room.Node)
		}
		for _, p := range demoted {
			if err := patchStatus(ctx, l.opts.Client, p, map[string]any{"nominatedNodeName": nil}); err != nil && !apierrors.IsNotFound(err) {
				l.opts.Log.Warn("clearing status.nominatedNodeName failed", "pod", p.Name, "namespace", p.Namespace, "err", err)
			}
		}
		for _, v := range victims {
			if err == nil || apierrors.IsNotFound(err) {
				err = l.end(ctx, it.profile.Name, v, obj, room.Node)
			}
		}
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			l.opts.Log.Warn("preemption failed, trying again later", "pod", obj.Name, "namespace", obj.Namespace, "err", err)
			l.post(func(l *loop) {
				l.cluster.Nominate(&plugin.Pod{Pod: obj}, "")
				if l.queue.items[obj.UID] == it && it.at == parked {
					l.later(it)
				}
			})
		}
	})
}

// end ends a pod that is in the way of another.
func (l *loop) end(ctx context.Context, scheduler string, victim, preemptor *corev1.Pod, node string) error {
	if l.held.answer("", victim.UID, plugin.Refuse("preempted")) {
		return nil // it has not begun
	}
	if victim.DeletionTimestamp != nil {
		return nil
	}
	why := fmt.Sprintf("%s: preempting to accommodate a higher priority pod", scheduler)
	err := mark(ctx, l.opts.Client, victim, corev1.DisruptionTarget, corev1.ConditionTrue, corev1.PodReasonPreemptionByScheduler, why, nil)
	if err == nil {
		err = client.Pods.Delete(ctx, l.opts.Client, victim.Namespace, victim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &victim.UID}})
	}
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil // it is gone already
	case err != nil:
		return fmt.Errorf("preempting pod %s/%s: %w", victim.Namespace, victim.Name, err)
	}
	l.recorders[scheduler].Event(victim, corev1.EventTypeNormal, "Preempted", "Preempted by pod %s on node %s", preemptor.UID, node)
	return nil
}
