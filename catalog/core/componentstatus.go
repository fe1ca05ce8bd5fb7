package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/catalog"
)

func componentStatuses() *catalog.Kind {
	return &catalog.Kind{
		GroupVersionKind: gvk("ComponentStatus"),
		Resource:         "componentstatuses",
		Singular:         "componentstatus",
		ShortNames:       []string{"cs"},
		Verbs:            []string{"get", "list"},
		Unstored:         catalog.Unstored{Computed: &catalog.Computed{Handler: catalog.ComponentHealth}},
		New:              func() catalog.Object { return &corev1.ComponentStatus{} },
		NewList:          func() runtime.Object { return &corev1.ComponentStatusList{} },
		Columns: []catalog.Column{
			catalog.Text("Status", "Status of the component conditions", func(c *corev1.ComponentStatus) string {
				if healthOf(c).Status == corev1.ConditionTrue {
					return "Healthy"
				}
				return "Unhealthy"
			}),
			catalog.Text("Message", "Message of the component conditions", func(c *corev1.ComponentStatus) string { return healthOf(c).Message }),
			catalog.Text("Error", "Error of the component conditions", func(c *corev1.ComponentStatus) string { return healthOf(c).Error }),
		},
	}
}

func healthOf(c *corev1.ComponentStatus) corev1.ComponentCondition {
	for _, condition := range c.Conditions {
		if condition.Type == corev1.ComponentHealthy {
			return condition
		}
	}
	return corev1.ComponentCondition{}
}
