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

// tell says, as an event and as a condition, why a pod has no node. What could not be written is told with the next
// refusal, which is soon.
func (k *keeper) tell(it *item, pod *plugin.Pod, reason, why string) {
	obj := pod.Pod
	profile := it.profile.Name
	k.bind.Go(func(ctx context.Context) {
		k.recorders[profile].Event(obj, corev1.EventTypeWarning, "FailedScheduling", "%s", why)
		k.told(ctx, it, obj, mark(ctx, k.opts.Client, obj, corev1.PodScheduled, corev1.ConditionFalse, reason, why, nil))
	})
}

// told sees to it that what was not written is written later.
func (s *Scheduler) told(ctx context.Context, it *item, obj *corev1.Pod, err error) {
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || ctx.Err() != nil {
		return
	}
	s.opts.Log.Warn("a pod's condition is not written; trying again later", "pod", obj.Name, "namespace", obj.Namespace, "err", err)
	s.post(func(k *keeper) {
		if k.queue.items[obj.UID] == it && it.at == parked {
			it.told = ""
			k.later(it)
		}
	})
}

// mark writes a condition of a pod, and the node where it is promised room; nil leaves that as it is.
func mark(ctx context.Context, c client.Interface, pod *corev1.Pod, kind corev1.PodConditionType, status corev1.ConditionStatus, reason, why string, promised *string) error {
	condition := corev1.PodCondition{
		Type:               kind,
		Status:             status,
		Reason:             reason,
		Message:            why,
		LastTransitionTime: metav1.Now().Rfc3339Copy(), // as it comes back over HTTP
	}
	for _, old := range pod.Status.Conditions {
		if old.Type != condition.Type || old.Status != condition.Status {
			continue
		}
		if old.Reason == condition.Reason && old.Message == condition.Message && promised == nil {
			return nil
		}
		condition.LastTransitionTime = old.LastTransitionTime
	}
	// Conditions are merged by type, so nobody else's is touched; the uid keeps
	// it off a new pod of the same name.
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

// makeRoom writes where a pod is promised room, and ends those who are in its way.
func (k *keeper) makeRoom(it *item, pod *plugin.Pod, d *Decision, why string) {
	room, obj := d.Room, pod.Pod
	var demoted []*corev1.Pod // of lower priority, promised room on the same node
	if n := k.cluster.Snapshot.Node(room.Node); n != nil {
		for _, p := range k.cluster.Snapshot.Nominated(n) {
			if p.Priority() < pod.Priority() {
				demoted = append(demoted, p.Pod)
			}
		}
		for _, p := range demoted {
			k.cluster.Nominate(&plugin.Pod{Pod: p}, "")
		}
	}
	victims := make([]*corev1.Pod, len(room.Victims))
	for i, v := range room.Victims {
		victims[i] = v.Pod
	}
	k.metrics.preempted(len(victims))
	k.talk.Go(func(ctx context.Context) {
		k.recorders[it.profile.Name].Event(obj, corev1.EventTypeWarning, "FailedScheduling", "%s", why)
		ok, err := k.spared(ctx, obj, room.Node, victims)
		if err == nil && !ok {
			err = errors.New("an extender refuses that room is made")
		}
		if err == nil {
			err = mark(ctx, k.opts.Client, obj, corev1.PodScheduled, corev1.ConditionFalse, corev1.PodReasonUnschedulable, why, &room.Node)
		}
		for _, p := range demoted {
			if err := patchStatus(ctx, k.opts.Client, p, map[string]any{"nominatedNodeName": nil}); err != nil && !apierrors.IsNotFound(err) {
				k.opts.Log.Warn("a nomination is not taken back", "pod", p.Name, "namespace", p.Namespace, "err", err)
			}
		}
		for _, v := range victims {
			if err == nil || apierrors.IsNotFound(err) {
				err = k.end(ctx, it.profile.Name, v, obj, room.Node)
			}
		}
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			k.opts.Log.Warn("room is not made; trying again later", "pod", obj.Name, "namespace", obj.Namespace, "err", err)
			k.post(func(k *keeper) {
				k.cluster.Nominate(&plugin.Pod{Pod: obj}, "")
				if k.queue.items[obj.UID] == it && it.at == parked {
					k.later(it)
				}
			})
		}
	})
}

// end ends a pod that is in the way of another.
func (k *keeper) end(ctx context.Context, scheduler string, victim, preemptor *corev1.Pod, node string) error {
	if k.held.answer("", victim.UID, plugin.Refuse("preempted")) {
		return nil // it has not begun
	}
	if victim.DeletionTimestamp != nil {
		return nil
	}
	why := fmt.Sprintf("%s: preempting to accommodate a higher priority pod", scheduler)
	err := mark(ctx, k.opts.Client, victim, corev1.DisruptionTarget, corev1.ConditionTrue, corev1.PodReasonPreemptionByScheduler, why, nil)
	if err == nil {
		err = client.Pods.Delete(ctx, k.opts.Client, victim.Namespace, victim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &victim.UID}})
	}
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil // it is gone already
	case err != nil:
		return fmt.Errorf("ending %s/%s: %w", victim.Namespace, victim.Name, err)
	}
	k.recorders[scheduler].Event(victim, corev1.EventTypeNormal, "Preempted", "Preempted by pod %s on node %s", preemptor.UID, node)
	return nil
}
