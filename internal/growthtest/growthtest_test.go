package growthtest_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/sampan-io/sampan/internal/growthtest"
)

func fieldsOf(t *testing.T, of reflect.Type) map[string]growthtest.Field {
	t.Helper()
	found := map[string]growthtest.Field{}
	for _, f := range growthtest.Fields(of) {
		if _, twice := found[f.Path]; twice {
			t.Errorf("%s was found twice", f.Path)
		}
		found[f.Path] = f
	}
	return found
}

func TestFieldsFindsListsAndMaps(t *testing.T) {
	found := fieldsOf(t, reflect.TypeFor[corev1.Pod]())
	for _, path := range []string{
		"metadata.labels", "metadata.ownerReferences", "spec.topologySpreadConstraints", "spec.containers", "spec.containers[0].env",
		"spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].namespaces", "spec.volumes[0].projected.sources",
		"spec.volumes[0].projected.sources[0].secret.items", "spec.topologySpreadConstraints[0].labelSelector.matchLabels",
		"spec.containers[0].resources.limits", "status.conditions", "spec.overhead",
	} {
		if _, ok := found[path]; !ok {
			t.Errorf("%s was not found", path)
		}
	}
	for path := range found {
		if strings.HasPrefix(path, "metadata.managedFields") {
			t.Errorf("found %s", path)
		}
	}
}

func TestGrowMakesDistinctElements(t *testing.T) {
	for path, f := range fieldsOf(t, reflect.TypeFor[corev1.Pod]()) {
		var pod corev1.Pod
		f.Grow(&pod, 3, growthtest.Distinct) // must not panic
		switch path {
		case "spec.topologySpreadConstraints":
			got := pod.Spec.TopologySpreadConstraints
			if len(got) != 3 || got[0].TopologyKey == got[1].TopologyKey || got[0].WhenUnsatisfiable != corev1.DoNotSchedule {
				t.Errorf("%s: %+v", path, got)
			}
		case "spec.containers[0].ports":
			if got := pod.Spec.Containers[0].Ports; len(got) != 3 || got[0].HostPort == got[2].HostPort {
				t.Errorf("%s: %+v", path, got)
			}
		case "spec.volumes":
			if got := pod.Spec.Volumes; len(got) != 3 || got[0].HostPath == nil || got[1].EmptyDir == nil || got[0].EmptyDir != nil {
				t.Errorf("%s: %+v", path, got)
			}
		case "metadata.labels":
			if len(pod.Labels) != 3 {
				t.Errorf("%s: %+v", path, pod.Labels)
			}
		}
	}
}

func TestGrowCopiesTheFirstElement(t *testing.T) {
	f := fieldsOf(t, reflect.TypeFor[corev1.Pod]())["spec.containers"]
	pod := corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b", Ports: []corev1.ContainerPort{{HostPort: 80}}}}}}
	f.Grow(&pod, 4, growthtest.Distinct)
	var names []string
	for _, c := range pod.Spec.Containers {
		names = append(names, c.Name)
	}
	if want := []string{"a", "a1", "a2", "a3"}; !slices.Equal(names, want) {
		t.Errorf("names = %v, want %v", names, want)
	}
	if p := pod.Spec.Containers; p[0].Ports[0].HostPort != 80 || p[1].Ports[0].HostPort != 2 {
		t.Errorf("containers = %+v", p)
	}
}

func TestCostsOfSquaresAreTooSteep(t *testing.T) {
	var sink int
	work := func(steps int) func() {
		return func() {
			for i := range steps {
				sink += i ^ sink
			}
		}
	}
	growthtest.Linear(t, 4000, func(n int) func() { return work(2000 * n) })
	if growthtest.Steep(4000, growthtest.Measure, func(n int) func() { return work(n * n) }) == "" {
		t.Error("the square of the size passed")
	}
}

// TestGrowEndsForTypesWithinThemselves grows a field of a type of which a map has more of the same type.
func TestGrowEndsForTypesWithinThemselves(t *testing.T) {
	f, ok := fieldsOf(t, reflect.TypeFor[apiextensionsv1.CustomResourceDefinition]())["spec.versions[0].schema.openAPIV3Schema.properties"]
	if !ok {
		t.Fatal("the properties of a schema were not found")
	}
	var d apiextensionsv1.CustomResourceDefinition
	f.Grow(&d, 2, growthtest.Distinct)
	if got := d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties; len(got) != 2 || got["example.com/k1"].Description != "x1" {
		t.Errorf("%+v", got)
	}
}
