package autoscaling

import (
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/declared"
)

// Kinds returns the kinds of the group.
func Kinds() []*catalog.Kind { return []*catalog.Kind{autoscalers()} }

func autoscalers() *catalog.Kind {
	spec, status := autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc(), autoscalingv2.HorizontalPodAutoscalerStatus{}.SwaggerDoc()
	return &catalog.Kind{
		GroupVersionKind: autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"),
		Resource:         "horizontalpodautoscalers",
		Singular:         "horizontalpodautoscaler",
		ShortNames:       []string{"hpa"},
		Categories:       []string{"all"},
		Namespaced:       true,
		New:              func() catalog.Object { return &autoscalingv2.HorizontalPodAutoscaler{} },
		NewList:          func() runtime.Object { return &autoscalingv2.HorizontalPodAutoscalerList{} },
		Default:          catalog.Default(setDefaults),
		Prepare: catalog.Prepare(func(h, old *autoscalingv2.HorizontalPodAutoscaler) {
			h.Status = autoscalingv2.HorizontalPodAutoscalerStatus{}
			if old != nil {
				h.Status = old.Status
			}
		}),
		Validate:   declared.With(catalog.Validate(validate), ""),
		Generation: true,
		Columns: []catalog.Column{
			catalog.Text("Reference", spec["scaleTargetRef"], func(h *autoscalingv2.HorizontalPodAutoscaler) string {
				return h.Spec.ScaleTargetRef.Kind + "/" + h.Spec.ScaleTargetRef.Name
			}),
			catalog.Text("Targets", spec["metrics"], func(h *autoscalingv2.HorizontalPodAutoscaler) string {
				return formatMetrics(h.Spec.Metrics, h.Status.CurrentMetrics)
			}),
			catalog.Text("MinPods", spec["minReplicas"], func(h *autoscalingv2.HorizontalPodAutoscaler) string {
				if h.Spec.MinReplicas == nil {
					return catalog.Unset
				}
				return fmt.Sprint(*h.Spec.MinReplicas)
			}),
			catalog.Text("MaxPods", spec["maxReplicas"], func(h *autoscalingv2.HorizontalPodAutoscaler) string { return fmt.Sprint(h.Spec.MaxReplicas) }),
			catalog.Text("Replicas", status["currentReplicas"], func(h *autoscalingv2.HorizontalPodAutoscaler) string { return fmt.Sprint(h.Status.CurrentReplicas) }),
			catalog.Age(),
		},
		Subresources: []catalog.Subresource{{
			Name: "status", Verbs: []string{"get", "patch", "update"},
			Shape: catalog.Part{
				Prepare:  catalog.Prepare(func(h, old *autoscalingv2.HorizontalPodAutoscaler) { h.Spec = old.Spec }),
				Validate: declared.With(catalog.Validate(validateStatus), "status"),
			},
		}},
		Versions: []catalog.Version{version1()},
	}
}

// defaultUtilization is how much of the requested CPU the pods should use on average, in percent, if
// there is no other metric.
const defaultUtilization = 80

func defaultMetrics() []autoscalingv2.MetricSpec {
	return []autoscalingv2.MetricSpec{cpuUse(defaultUtilization)}
}

func cpuUse(percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{
		Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricSource{
			Name:   corev1.ResourceCPU,
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
		},
	}
}

func setDefaults(h *autoscalingv2.HorizontalPodAutoscaler) {
	if h.Spec.MinReplicas == nil {
		h.Spec.MinReplicas = new(int32(1))
	}
	if len(h.Spec.Metrics) == 0 {
		h.Spec.Metrics = defaultMetrics()
	}
	if b := h.Spec.Behavior; b != nil && !complete(b) {
		h.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{
			ScaleUp: completeRules(b.ScaleUp, autoscalingv2.HPAScalingRules{
				StabilizationWindowSeconds: new(int32(0)),
				Policies: []autoscalingv2.HPAScalingPolicy{
					{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15},
					{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15},
				},
			}),
			// The window of scaling down is the controller's, so that it can be set there.
			ScaleDown: completeRules(b.ScaleDown, autoscalingv2.HPAScalingRules{
				Policies: []autoscalingv2.HPAScalingPolicy{{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15}},
			}),
		}
	}
}

// complete reports whether a behaviour has all defaults.
func complete(b *autoscalingv2.HorizontalPodAutoscalerBehavior) bool {
	has := func(r *autoscalingv2.HPAScalingRules) bool {
		return r != nil && r.SelectPolicy != nil && r.Policies != nil
	}
	return has(b.ScaleUp) && has(b.ScaleDown) && b.ScaleUp.StabilizationWindowSeconds != nil
}

// completeRules returns the rules that a user gave, with missing ones taken from defaults.
func completeRules(given *autoscalingv2.HPAScalingRules, defaults autoscalingv2.HPAScalingRules) *autoscalingv2.HPAScalingRules {
	out := defaults
	out.SelectPolicy = new(autoscalingv2.MaxChangePolicySelect)
	if given == nil {
		return &out
	}
	if given.SelectPolicy != nil {
		out.SelectPolicy = given.SelectPolicy
	}
	if given.StabilizationWindowSeconds != nil {
		out.StabilizationWindowSeconds = given.StabilizationWindowSeconds
	}
	if given.Policies != nil {
		out.Policies = given.Policies
	}
	out.Tolerance = given.Tolerance
	return &out
}
