package autoscaling

import (
	"fmt"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sampan-io/sampan/catalog"
)

// shownMetrics is how many metrics a row of a table shows.
const shownMetrics = 2

// formatMetrics returns the present and the wanted value of the first metrics: "cpu: 12%/80%".
func formatMetrics(specs []autoscalingv2.MetricSpec, statuses []autoscalingv2.MetricStatus) string {
	if len(specs) == 0 {
		return catalog.None
	}
	var list []string
	for i, spec := range specs[:min(len(specs), shownMetrics)] {
		var now autoscalingv2.MetricStatus
		if i < len(statuses) {
			now = statuses[i]
		}
		list = append(list, formatMetric(spec, now))
	}
	text := strings.Join(list, ", ")
	if more := len(specs) - shownMetrics; more > 0 {
		text = fmt.Sprintf("%s + %d more...", text, more)
	}
	return text
}

func formatMetric(spec autoscalingv2.MetricSpec, now autoscalingv2.MetricStatus) string {
	switch {
	case spec.Type == autoscalingv2.ExternalMetricSourceType && spec.External != nil:
		var current *autoscalingv2.MetricValueStatus
		if now.External != nil {
			current = &now.External.Current
		}
		return formatValue(spec.External.Target, current)
	case spec.Type == autoscalingv2.PodsMetricSourceType && spec.Pods != nil:
		current := catalog.Unknown
		if now.Pods != nil {
			current = quantity(now.Pods.Current.AverageValue)
		}
		return current + "/" + quantity(spec.Pods.Target.AverageValue)
	case spec.Type == autoscalingv2.ObjectMetricSourceType && spec.Object != nil:
		var current *autoscalingv2.MetricValueStatus
		if now.Object != nil {
			current = &now.Object.Current
		}
		return formatValue(spec.Object.Target, current)
	case spec.Type == autoscalingv2.ResourceMetricSourceType && spec.Resource != nil:
		var current *autoscalingv2.MetricValueStatus
		if now.Resource != nil {
			current = &now.Resource.Current
		}
		return spec.Resource.Name.String() + ": " + formatUse(spec.Resource.Target, current)
	case spec.Type == autoscalingv2.ContainerResourceMetricSourceType && spec.ContainerResource != nil:
		var current *autoscalingv2.MetricValueStatus
		if now.ContainerResource != nil {
			current = &now.ContainerResource.Current
		}
		return spec.ContainerResource.Name.String() + ": " + formatUse(spec.ContainerResource.Target, current)
	}
	return "<unknown type>"
}

// formatValue formats a value of the whole, or the average over the pods.
func formatValue(target autoscalingv2.MetricTarget, now *autoscalingv2.MetricValueStatus) string {
	current := catalog.Unknown
	if target.AverageValue != nil {
		if now != nil && now.AverageValue != nil {
			current = now.AverageValue.String()
		}
		return current + "/" + target.AverageValue.String() + " (avg)"
	}
	if now != nil {
		current = quantity(now.Value)
	}
	return current + "/" + quantity(target.Value)
}

// formatUse formats the use of a resource.
func formatUse(target autoscalingv2.MetricTarget, now *autoscalingv2.MetricValueStatus) string {
	current := catalog.Unknown
	if target.AverageValue != nil {
		if now != nil {
			current = quantity(now.AverageValue)
		}
		return current + "/" + target.AverageValue.String()
	}
	if now != nil && now.AverageUtilization != nil {
		current = fmt.Sprintf("%d%%", *now.AverageUtilization)
	}
	wanted := "<auto>"
	if target.AverageUtilization != nil {
		wanted = fmt.Sprintf("%d%%", *target.AverageUtilization)
	}
	return current + "/" + wanted
}

// quantity formats a quantity that may be missing.
func quantity(q *resource.Quantity) string {
	if q == nil {
		return "<nil>"
	}
	return q.String()
}
