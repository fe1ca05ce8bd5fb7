package autoscaling

import (
	"encoding/json"
	"maps"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/catalog"
)

// The annotations in which objects of v1 carry what only v2 has fields for.
const (
	metricsAnnotation    = "autoscaling.alpha.kubernetes.io/metrics"
	currentAnnotation    = "autoscaling.alpha.kubernetes.io/current-metrics"
	conditionsAnnotation = "autoscaling.alpha.kubernetes.io/conditions"
	behaviorAnnotation   = "autoscaling.alpha.kubernetes.io/behavior"
)

func version1() catalog.Version {
	return catalog.Version{
		GroupVersion: autoscalingv1.SchemeGroupVersion,
		New:          func() catalog.Object { return &autoscalingv1.HorizontalPodAutoscaler{} },
		NewList:      func() runtime.Object { return &autoscalingv1.HorizontalPodAutoscalerList{} },
		ToHub:        catalog.Convert(fromVersion1),
		FromHub:      catalog.Convert(toVersion1),
	}
}

// behavior is the form of a behaviour in its annotation.
type behavior struct{ ScaleUp, ScaleDown *scalingRules }

type scalingRules struct {
	StabilizationWindowSeconds *int32
	SelectPolicy               *autoscalingv2.ScalingPolicySelect
	Policies                   []scalingPolicy
	Tolerance                  *resource.Quantity
}

type scalingPolicy struct {
	Type          autoscalingv2.HPAScalingPolicyType
	Value         int32
	PeriodSeconds int32
}

func toVersion1(h *autoscalingv2.HorizontalPodAutoscaler) (*autoscalingv1.HorizontalPodAutoscaler, error) {
	out := &autoscalingv1.HorizontalPodAutoscaler{
		ObjectMeta: h.ObjectMeta,
		Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv1.CrossVersionObjectReference(h.Spec.ScaleTargetRef),
			MinReplicas:    h.Spec.MinReplicas, MaxReplicas: h.Spec.MaxReplicas,
		},
		Status: autoscalingv1.HorizontalPodAutoscalerStatus{
			ObservedGeneration: h.Status.ObservedGeneration, LastScaleTime: h.Status.LastScaleTime,
			CurrentReplicas: h.Status.CurrentReplicas, DesiredReplicas: h.Status.DesiredReplicas,
		},
	}
	kept := map[string]any{}
	var others []autoscalingv1.MetricSpec
	for _, m := range h.Spec.Metrics {
		use := cpuTarget(m)
		if use == nil {
			others = append(others, metricTo1(m))
		} else if out.Spec.TargetCPUUtilizationPercentage == nil {
			out.Spec.TargetCPUUtilizationPercentage = new(*use)
		}
	}
	if len(others) > 0 {
		kept[metricsAnnotation] = others
	}
	var current []autoscalingv1.MetricStatus
	for _, m := range h.Status.CurrentMetrics {
		current = append(current, statusTo1(m))
		if r := m.Resource; m.Type == autoscalingv2.ResourceMetricSourceType && r != nil && r.Name == corev1.ResourceCPU && r.Current.AverageUtilization != nil {
			out.Status.CurrentCPUUtilizationPercentage = new(*r.Current.AverageUtilization)
		}
	}
	if len(current) > 0 {
		kept[currentAnnotation] = current
	}
	var conditions []autoscalingv1.HorizontalPodAutoscalerCondition
	for _, c := range h.Status.Conditions {
		conditions = append(conditions, autoscalingv1.HorizontalPodAutoscalerCondition{
			Type: autoscalingv1.HorizontalPodAutoscalerConditionType(c.Type), Status: c.Status, LastTransitionTime: c.LastTransitionTime,
			Reason: c.Reason, Message: c.Message, ObservedGeneration: c.ObservedGeneration,
		})
	}
	if len(conditions) > 0 {
		kept[conditionsAnnotation] = conditions
	}
	if b := h.Spec.Behavior; b != nil {
		kept[behaviorAnnotation] = behavior{rulesTo1(b.ScaleUp), rulesTo1(b.ScaleDown)}
	}
	return out, annotate(out, kept)
}

// cpuTarget returns the part of a metric for which v1 has a field, or nil.
func cpuTarget(m autoscalingv2.MetricSpec) *int32 {
	if m.Type != autoscalingv2.ResourceMetricSourceType || m.Resource == nil || m.Resource.Name != corev1.ResourceCPU {
		return nil
	}
	return m.Resource.Target.AverageUtilization
}

// annotate replaces the annotations of a conversion by those of this one.
func annotate(h *autoscalingv1.HorizontalPodAutoscaler, kept map[string]any) error {
	h.Annotations = withoutKept(h.Annotations)
	if len(kept) == 0 {
		return nil
	}
	annotations := maps.Clone(h.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	for key, value := range kept {
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		annotations[key] = string(text)
	}
	h.Annotations = annotations
	return nil
}

// withoutKept returns annotations without those of a conversion, which it does not change.
func withoutKept(all map[string]string) map[string]string {
	var out map[string]string
	for _, key := range []string{metricsAnnotation, currentAnnotation, conditionsAnnotation, behaviorAnnotation} {
		if _, found := all[key]; !found {
			continue
		}
		if out == nil {
			out = maps.Clone(all)
		}
		delete(out, key)
	}
	if out == nil {
		return all
	}
	return out
}

func rulesTo1(r *autoscalingv2.HPAScalingRules) *scalingRules {
	if r == nil {
		return nil
	}
	out := &scalingRules{StabilizationWindowSeconds: r.StabilizationWindowSeconds, SelectPolicy: r.SelectPolicy, Tolerance: r.Tolerance}
	for _, p := range r.Policies {
		out.Policies = append(out.Policies, scalingPolicy(p))
	}
	return out
}

func rulesFrom1(r *scalingRules) *autoscalingv2.HPAScalingRules {
	if r == nil {
		return nil
	}
	out := &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: r.StabilizationWindowSeconds, SelectPolicy: r.SelectPolicy, Tolerance: r.Tolerance}
	for _, p := range r.Policies {
		out.Policies = append(out.Policies, autoscalingv2.HPAScalingPolicy(p))
	}
	return out
}

// fromVersion1 returns an object of v1 as one of v2. An annotation that cannot be read counts for
// nothing, as in Kubernetes: a user may write what they like there.
func fromVersion1(h *autoscalingv1.HorizontalPodAutoscaler) (*autoscalingv2.HorizontalPodAutoscaler, error) {
	out := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: h.ObjectMeta,
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference(h.Spec.ScaleTargetRef),
			MinReplicas:    h.Spec.MinReplicas, MaxReplicas: h.Spec.MaxReplicas,
		},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{
			ObservedGeneration: h.Status.ObservedGeneration, LastScaleTime: h.Status.LastScaleTime,
			CurrentReplicas: h.Status.CurrentReplicas, DesiredReplicas: h.Status.DesiredReplicas,
		},
	}
	var metrics []autoscalingv1.MetricSpec
	if read(h, metricsAnnotation, &metrics) {
		for _, m := range metrics {
			out.Spec.Metrics = append(out.Spec.Metrics, metricFrom1(m))
		}
	}
	if use := h.Spec.TargetCPUUtilizationPercentage; use != nil {
		out.Spec.Metrics = append(out.Spec.Metrics, cpuUse(*use))
	}
	if len(out.Spec.Metrics) == 0 {
		out.Spec.Metrics = defaultMetrics()
	}
	var b behavior
	if read(h, behaviorAnnotation, &b) && b != (behavior{}) {
		out.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: rulesFrom1(b.ScaleUp), ScaleDown: rulesFrom1(b.ScaleDown)}
	}
	var current []autoscalingv1.MetricStatus
	if read(h, currentAnnotation, &current) {
		for _, m := range current {
			out.Status.CurrentMetrics = append(out.Status.CurrentMetrics, statusFrom1(m))
		}
	} else if use := h.Status.CurrentCPUUtilizationPercentage; use != nil {
		out.Status.CurrentMetrics = []autoscalingv2.MetricStatus{{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricStatus{
				Name: corev1.ResourceCPU, Current: autoscalingv2.MetricValueStatus{AverageUtilization: new(*use)},
			},
		}}
	}
	var conditions []autoscalingv1.HorizontalPodAutoscalerCondition
	read(h, conditionsAnnotation, &conditions)
	for _, c := range conditions {
		out.Status.Conditions = append(out.Status.Conditions, autoscalingv2.HorizontalPodAutoscalerCondition{
			Type: autoscalingv2.HorizontalPodAutoscalerConditionType(c.Type), Status: c.Status, LastTransitionTime: c.LastTransitionTime,
			Reason: c.Reason, Message: c.Message, ObservedGeneration: c.ObservedGeneration,
		})
	}
	out.Annotations = withoutKept(out.Annotations)
	return out, nil
}

// read reads an annotation into v and reports whether it is there and readable.
func read(h *autoscalingv1.HorizontalPodAutoscaler, key string, v any) bool {
	text, found := h.Annotations[key]
	return found && json.Unmarshal([]byte(text), v) == nil
}
