package podspec_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sampan-io/sampan/catalog/podspec"
)

func list(cpu, memory string) corev1.ResourceList {
	l := corev1.ResourceList{}
	if cpu != "" {
		l[corev1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		l[corev1.ResourceMemory] = resource.MustParse(memory)
	}
	return l
}

func container(requests, limits corev1.ResourceList) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
}

func beside(c corev1.Container) corev1.Container {
	c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	return c
}

func TestQOS(t *testing.T) {
	full := container(list("1", "1Gi"), list("1", "1Gi"))
	tests := []struct {
		name string
		spec corev1.PodSpec
		want corev1.PodQOSClass
	}{
		{"asks nothing", corev1.PodSpec{Containers: []corev1.Container{{}}}, corev1.PodQOSBestEffort},
		{"asks for zero", corev1.PodSpec{Containers: []corev1.Container{container(list("0", "0"), nil)}}, corev1.PodQOSBestEffort},
		{"asks for something else", corev1.PodSpec{Containers: []corev1.Container{container(nil, corev1.ResourceList{"example.com/a": resource.MustParse("1")})}}, corev1.PodQOSBestEffort},
		{"asks for less than its limit", corev1.PodSpec{Containers: []corev1.Container{container(list("1", "1Gi"), list("2", "1Gi"))}}, corev1.PodQOSBurstable},
		{"asks for one of two", corev1.PodSpec{Containers: []corev1.Container{container(list("1", ""), list("1", ""))}}, corev1.PodQOSBurstable},
		{"asks for its limits", corev1.PodSpec{Containers: []corev1.Container{full, full}}, corev1.PodQOSGuaranteed},
		{"has limits only", corev1.PodSpec{Containers: []corev1.Container{container(nil, list("1", "1Gi"))}}, corev1.PodQOSGuaranteed},
		{"one container asks nothing", corev1.PodSpec{Containers: []corev1.Container{full, {}}}, corev1.PodQOSBurstable},
		{"an init container asks nothing", corev1.PodSpec{Containers: []corev1.Container{full}, InitContainers: []corev1.Container{{}}}, corev1.PodQOSBurstable},
		{"the pod as a whole asks for its limits", corev1.PodSpec{Resources: &full.Resources, Containers: []corev1.Container{{}}}, corev1.PodQOSGuaranteed},
		{"the pod as a whole asks for less", corev1.PodSpec{Resources: &corev1.ResourceRequirements{Requests: list("1", "")}, Containers: []corev1.Container{full}}, corev1.PodQOSBurstable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := podspec.QOS(&tt.spec); got != tt.want {
				t.Errorf("QOS = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestRequests(t *testing.T) {
	one, two, five := container(list("1", "1Gi"), nil), container(list("2", ""), nil), container(list("5", ""), nil)
	tests := []struct {
		name string
		spec corev1.PodSpec
		want corev1.ResourceList
	}{
		{"nothing", corev1.PodSpec{Containers: []corev1.Container{{}}}, list("", "")},
		{"containers run together", corev1.PodSpec{Containers: []corev1.Container{one, two}}, list("3", "1Gi")},
		{"init containers run before", corev1.PodSpec{Containers: []corev1.Container{one, two}, InitContainers: []corev1.Container{two, two}}, list("3", "1Gi")},
		{"a big one needs more than the rest", corev1.PodSpec{Containers: []corev1.Container{one, two}, InitContainers: []corev1.Container{five}}, list("5", "1Gi")},
		{"one that runs beside the rest", corev1.PodSpec{Containers: []corev1.Container{one, two}, InitContainers: []corev1.Container{beside(two)}}, list("5", "1Gi")},
		{"one that starts while another runs beside it", corev1.PodSpec{Containers: []corev1.Container{one}, InitContainers: []corev1.Container{beside(two), five}}, list("7", "1Gi")},
		{"one that starts before the other", corev1.PodSpec{Containers: []corev1.Container{one}, InitContainers: []corev1.Container{five, beside(two)}}, list("5", "1Gi")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := podspec.Requests(&tt.spec); !equality.Semantic.DeepEqual(got, tt.want) {
				t.Errorf("Requests = %v, want %v", got, tt.want)
			}
		})
	}
}
