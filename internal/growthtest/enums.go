package growthtest

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// enums has the values of those types of strings of which the API accepts a few only, so that elements mean something.
var enums = map[reflect.Type][]string{
	reflect.TypeFor[corev1.UnsatisfiableConstraintAction](): {"DoNotSchedule", "ScheduleAnyway"},
	reflect.TypeFor[corev1.NodeInclusionPolicy]():           {"Honor", "Ignore"},
	reflect.TypeFor[corev1.TolerationOperator]():            {"Equal", "Exists"},
	reflect.TypeFor[corev1.TaintEffect]():                   {"PreferNoSchedule", "NoSchedule", "NoExecute"},
	reflect.TypeFor[corev1.NodeSelectorOperator]():          {"In", "NotIn"},
	reflect.TypeFor[metav1.LabelSelectorOperator]():         {"NotIn", "In"},
	reflect.TypeFor[corev1.Protocol]():                      {"TCP", "UDP"},
	reflect.TypeFor[corev1.ConditionStatus]():               {"True", "False"},
	reflect.TypeFor[corev1.PullPolicy]():                    {"IfNotPresent"},
	reflect.TypeFor[corev1.ResourceResizeRestartPolicy]():   {"NotRequired"},
	reflect.TypeFor[corev1.ResourceName]():                  {"cpu", "memory"},
	reflect.TypeFor[corev1.PersistentVolumeAccessMode]():    {"ReadWriteOnce", "ReadOnlyMany"},
	reflect.TypeFor[corev1.URIScheme]():                     {"HTTP"},
	reflect.TypeFor[corev1.TerminationMessagePolicy]():      {"File"},
	reflect.TypeFor[corev1.ContainerRestartPolicy]():        {"Always"},
	reflect.TypeFor[discoveryv1.AddressType]():              {"IPv4"},
}
