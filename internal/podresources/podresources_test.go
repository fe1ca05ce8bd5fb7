package podresources_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"

	"github.com/sampan-io/sampan/internal/growthtest"
	"github.com/sampan-io/sampan/internal/podresources"
)

// TestSumsAreThoseOfTheLibrary compares the sums of random pods.
func TestSumsAreThoseOfTheLibrary(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		pod := random(r)
		for _, o := range []podresources.Options{{}, {UseStatusResources: true}, {ExcludeOverhead: true, SkipPodLevelResources: true}, {UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true}} {
			for what, pair := range map[string][2]corev1.ResourceList{
				"Requests":          {podresources.Requests(pod, o), resource.PodRequests(pod, o)},
				"Limits":            {podresources.Limits(pod, o), resource.PodLimits(pod, o)},
				"ContainerRequests": {podresources.ContainerRequests(pod, o), resource.AggregateContainerRequests(pod, o)},
			} {
				if !equality.Semantic.DeepEqual(pair[0], pair[1]) {
					t.Fatalf("%s with %+v: got %v, want %v", what, o, pair[0], pair[1])
				}
			}
		}
	}
}

func random(r *rand.Rand) *corev1.Pod {
	list := func() corev1.ResourceList {
		if r.IntN(4) == 0 {
			return nil
		}
		l := corev1.ResourceList{}
		for range r.IntN(3) {
			l[corev1.ResourceName([]string{"cpu", "memory", "example.com/a", "example.com/b"}[r.IntN(4)])] = *apiresource.NewQuantity(r.Int64N(5), apiresource.DecimalSI)
		}
		return l
	}
	both := func() corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: list(), Limits: list()}
	}
	pod := &corev1.Pod{}
	for i := range 1 + r.IntN(40) {
		c := corev1.Container{Name: fmt.Sprint(i), Resources: both()}
		s := corev1.ContainerStatus{Name: c.Name, AllocatedResources: list()}
		if r.IntN(2) == 0 {
			s.Resources = new(both())
		}
		if r.IntN(3) == 0 {
			pod.Spec.Containers = append(pod.Spec.Containers, c)
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, s)
			continue
		}
		if r.IntN(2) == 0 {
			c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		if r.IntN(4) > 0 {
			pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, s)
		}
	}
	if r.IntN(2) == 0 {
		pod.Spec.Overhead = list()
	}
	if r.IntN(2) == 0 {
		pod.Spec.Resources = new(both())
	}
	if r.IntN(3) == 0 {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Reason: corev1.PodReasonInfeasible}}
	}
	return pod
}

// TestCostsAreLinear adds up pods with one list or map at its largest.
func TestCostsAreLinear(t *testing.T) {
	for _, f := range growthtest.Fields(reflect.TypeFor[corev1.Pod]()) {
		t.Run(f.Path, func(t *testing.T) {
			growthtest.Linear(t, 1500, func(n int) func() {
				pod := &corev1.Pod{}
				f.Grow(pod, n, growthtest.Distinct)
				return func() {
					podresources.Requests(pod, podresources.Options{})
					podresources.Limits(pod, podresources.Options{UseStatusResources: true})
				}
			})
		})
	}
}
