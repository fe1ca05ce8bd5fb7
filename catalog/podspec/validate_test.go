package podspec_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog/podspec"
)

// TestValidateAllocatesLittle pins what the check of a pod without faults allocates: the
// paths of its fields are not among it.
func TestValidateAllocatesLittle(t *testing.T) {
	spec := &corev1.PodSpec{
		Volumes: []corev1.Volume{{Name: "data"}},
		Containers: []corev1.Container{{
			Name: "main", Image: "example.com/image:v1",
			Ports:        []corev1.ContainerPort{{Name: "http", ContainerPort: 80}},
			VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
			Resources:    corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}},
		}},
		Tolerations: []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}},
	}
	for i := range 12 {
		e := corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", i), Value: strings.Repeat("z", 60)}
		spec.Containers[0].Env = append(spec.Containers[0].Env, e)
	}
	podspec.DefaultPod(spec)
	const most = 45 // a path for each field that is looked at would be 90; it takes 18, and more where the race detector empties pools
	var errs field.ErrorList
	if n := testing.AllocsPerRun(100, func() { errs = podspec.Validate(spec, field.NewPath("spec")) }); n > most {
		t.Errorf("%.0f allocations, want at most %d", n, most)
	}
	if len(errs) > 0 {
		t.Error(errs)
	}
}
