package scheduler

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
)

// mark writes the condition PodScheduled=False of a pod that fits nowhere.
func (s *Scheduler) mark(ctx context.Context, pod *corev1.Pod, why string) error {
	condition := corev1.PodCondition{
		Type:               corev1.PodScheduled,
		Status:             corev1.ConditionFalse,
		Reason:             corev1.PodReasonUnschedulable,
		Message:            why,
		LastTransitionTime: metav1.Now().Rfc3339Copy(), // as it comes back over HTTP
	}
	for _, c := range pod.Status.Conditions {
		if c.Type != condition.Type {
			continue
		}
		if c.Status == condition.Status && c.Reason == condition.Reason && c.Message == condition.Message {
			return nil
		}
		if c.Status == condition.Status {
			condition.LastTransitionTime = c.LastTransitionTime
		}
	}
	// Conditions are merged by type, so nobody else's is touched; the uid keeps
	// it off a new pod of the same name.
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status":   map[string]any{"conditions": []corev1.PodCondition{condition}},
	})
	if err != nil {
		return err
	}
	_, err = client.Pods.Patch(ctx, s.opts.Client, pod.Namespace, pod.Name, types.StrategicMergePatchType, patch, "status")
	return err
}
