package await

import (
	"encoding/json"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/await/events"
	"github.com/sampan-io/sampan/client"
)

var autoscalerRules = rulesFor(autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"), rules[*autoscalingv2.HorizontalPodAutoscaler]{
	judge: func(d Degree, o *autoscalingv2.HorizontalPodAutoscaler, v *view) (Verdict, error) {
		return judgeAutoscaler(d, o, o.Status.Conditions, v)
	},
})

var oldAutoscalerRules = rulesFor(autoscalingv1.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"), rules[*autoscalingv1.HorizontalPodAutoscaler]{
	judge: judgeOldAutoscaler,
})

// judgeAutoscaler judges a HorizontalPodAutoscaler. It is ready when it finds its target and can read its metrics, or
// when the target is scaled to 0 replicas, which disables it.
func judgeAutoscaler(d Degree, o client.Object, conditions []autoscalingv2.HorizontalPodAutoscalerCondition, v *view) (Verdict, error) {
	if !plain(d) {
		return misuse(d, "HorizontalPodAutoscaler", Ready)
	}
	if o.GetDeletionTimestamp() != nil {
		return waiting("it is being deleted"), nil
	}
	able, active := false, false
	for _, c := range conditions {
		switch {
		case d == Observed:
			return done(), nil
		case c.Type == autoscalingv2.AbleToScale && c.Status == corev1.ConditionFalse:
			return failed(Likely, "it cannot scale: %s", events.Reason(c.Reason, c.Message)), nil
		case c.Type == autoscalingv2.AbleToScale:
			able = c.Status == corev1.ConditionTrue
		case c.Type == autoscalingv2.ScalingActive && c.Status != corev1.ConditionTrue && c.Reason != "ScalingDisabled":
			return waiting("it does not scale: %s", events.Reason(c.Reason, c.Message)), nil
		case c.Type == autoscalingv2.ScalingActive:
			active = true
		}
	}
	if able && active {
		return done(), nil
	}
	return waiting(unseen).because(v.warning()), nil
}

// judgeOldAutoscaler judges an autoscaling/v1 object, which has its conditions in an annotation.
func judgeOldAutoscaler(d Degree, o *autoscalingv1.HorizontalPodAutoscaler, v *view) (Verdict, error) {
	var conditions []autoscalingv2.HorizontalPodAutoscalerCondition
	if text := o.Annotations["autoscaling.alpha.kubernetes.io/conditions"]; text != "" {
		if err := json.Unmarshal([]byte(text), &conditions); err != nil {
			return waiting("its conditions cannot be read: %v", err), nil
		}
	}
	return judgeAutoscaler(d, o, conditions, v)
}
