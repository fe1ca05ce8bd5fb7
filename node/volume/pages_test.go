package volume_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sampan-io/sampan/node/volume"
)

func TestPageSize(t *testing.T) {
	asks := func(names ...corev1.ResourceName) *corev1.Pod {
		pod := &corev1.Pod{}
		for _, name := range names {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{name: resource.MustParse("4Mi")}},
			})
		}
		return pod
	}
	for _, tt := range []struct {
		pod    *corev1.Pod
		medium corev1.StorageMedium
		want   int64
		err    string
	}{
		{asks("hugepages-2Mi", "cpu"), "HugePages", 2 << 20, ""},
		{asks("hugepages-2Mi", "hugepages-1Gi"), "HugePages-1Gi", 1 << 30, ""},
		{asks("hugepages-2Mi", "hugepages-1Gi"), "HugePages", 0, "medium: HugePages can't be used if container requests multiple huge page sizes"},
		{asks("cpu"), "HugePages", 0, "medium HugePages: hugePages storage requested, but there is no resource request for huge pages"},
		{asks("hugepages-2Mi"), "HugePages-1Gi", 0, "medium HugePages-1Gi: hugePages storage requested, but there is no resource request for huge pages"},
	} {
		got, err := volume.PageSize(tt.pod, tt.medium)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if got != tt.want || text != tt.err {
			t.Errorf("%s: %d, %q, want %d, %q", tt.medium, got, text, tt.want, tt.err)
		}
	}
}
