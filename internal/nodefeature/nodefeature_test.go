package nodefeature_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	ndf "k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/component-helpers/nodedeclaredfeatures/features"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"
	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/internal/nodefeature"
)

const (
	restartAll = "RestartAllContainersOnContainerExits"
	podLevel   = "InPlacePodLevelResourcesVerticalScaling"
	ofInit     = "InPlacePodVerticalScalingInitContainers"
)

// TestDeclaredFeaturesAreKnown checks the names against upstream's registry, and that they are in the order that the API demands.
func TestDeclaredFeaturesAreKnown(t *testing.T) {
	for _, webSockets := range []bool{false, true} {
		declared := nodefeature.Declared(webSockets)
		if !slices.IsSorted(declared) || slices.Contains(declared, "ExtendWebSocketsToKubelet") != webSockets {
			t.Errorf("with WebSockets %t: %v", webSockets, declared)
		}
		if _, err := ndf.DefaultFramework.MapSorted(declared); err != nil {
			t.Error(err)
		}
	}
}

func restarting() []corev1.Container {
	return []corev1.Container{{Name: "c", RestartPolicyRules: []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers}}}}
}

func TestRequired(t *testing.T) {
	no := false
	for _, tt := range []struct {
		name string
		spec corev1.PodSpec
		want []string
	}{
		{"nothing", corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}, nil},
		{"a restart of all containers", corev1.PodSpec{Containers: restarting()}, []string{restartAll}},
		{"a restart of all containers by an init container", corev1.PodSpec{InitContainers: restarting()}, []string{restartAll}},
		{"users on the host's network", corev1.PodSpec{HostNetwork: true, HostUsers: &no}, []string{"UserNamespacesHostNetworkSupport"}},
		{"both", corev1.PodSpec{HostNetwork: true, HostUsers: &no, Containers: restarting()}, []string{restartAll, "UserNamespacesHostNetworkSupport"}},
	} {
		if diff := cmp.Diff(tt.want, nodefeature.Required(&tt.spec)); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

// TestOrdinaryPodsNeedNothing compares the quick answer with the library's, for pods with any of the fields that its rules read.
func TestOrdinaryPodsNeedNothing(t *testing.T) {
	known := []string{
		"DRANodeAllocatableResources", "DRAOptionalNodeOperations", "ExtendWebSocketsToKubelet", podLevel, "InPlacePodVerticalScalingInitContainers",
		"InPlacePodVerticalScalingMemoryBackedVolumes", restartAll, "UserNamespacesHostNetworkSupport", "VolumeBindMountOptions",
	}
	var names []string
	for _, f := range features.AllFeatures {
		names = append(names, f.Name())
	}
	slices.Sort(names)
	if diff := cmp.Diff(known, names); diff != "" {
		t.Errorf("the library has other rules, whose fields function ordinary has to know: %s", diff)
	}
	rapid.Check(t, func(t *rapid.T) {
		container := func() (c corev1.Container) {
			if rapid.Bool().Draw(t, "rules") {
				c.RestartPolicyRules = restarting()[0].RestartPolicyRules
			}
			if rapid.Bool().Draw(t, "mount") {
				c.VolumeMounts = []corev1.VolumeMount{{}, {}}
				if rapid.Bool().Draw(t, "options") {
					c.VolumeMounts[1].BindMountOptions = []string{"noexec"}
				}
			}
			return c
		}
		spec := corev1.PodSpec{HostNetwork: rapid.Bool().Draw(t, "network")}
		if rapid.Bool().Draw(t, "users") {
			of := rapid.Bool().Draw(t, "of the host")
			spec.HostUsers = &of
		}
		for range rapid.IntRange(0, 2).Draw(t, "init") {
			spec.InitContainers = append(spec.InitContainers, container())
		}
		for range rapid.IntRange(0, 2).Draw(t, "main") {
			spec.Containers = append(spec.Containers, container())
		}
		if rapid.Bool().Draw(t, "ephemeral") {
			c := corev1.EphemeralContainer{}
			c.VolumeMounts = container().VolumeMounts
			spec.EphemeralContainers = append(spec.EphemeralContainers, c)
		}
		var want []string
		for _, f := range features.AllFeatures {
			if f.InferForScheduling(&types.PodInfo{Spec: &spec}) {
				want = append(want, f.Name())
			}
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, nodefeature.Required(&spec)); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestRequiredByUpdate(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	requests := func(cpu string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}
	}
	pod := func(change func(*corev1.PodSpec)) *corev1.Pod {
		whole := requests("1")
		p := &corev1.Pod{Spec: corev1.PodSpec{
			Resources: &whole,
			InitContainers: []corev1.Container{
				{Name: "setup", Resources: requests("100m")}, {Name: "proxy", RestartPolicy: &always, Resources: requests("100m")},
			},
			Containers: []corev1.Container{{Name: "c", Resources: requests("100m")}},
		}}
		change(&p.Spec)
		return p
	}
	old := pod(func(*corev1.PodSpec) {})
	for _, tt := range []struct {
		name   string
		change func(*corev1.PodSpec)
		want   []string
	}{
		{"nothing", func(*corev1.PodSpec) {}, nil},
		{"a container", func(s *corev1.PodSpec) { s.Containers[0].Resources = requests("200m") }, nil},
		{"a sidecar", func(s *corev1.PodSpec) { s.InitContainers[1].Resources = requests("200m") }, nil},
		{"an init container", func(s *corev1.PodSpec) { s.InitContainers[0].Resources = requests("200m") }, []string{ofInit}},
		{"an init container, written in another way", func(s *corev1.PodSpec) { s.InitContainers[0].Resources = requests("0.1") }, nil},
		{"the pod as a whole", func(s *corev1.PodSpec) { *s.Resources = requests("2") }, []string{podLevel}},
		{"the pod as a whole, written in another way", func(s *corev1.PodSpec) { *s.Resources = requests("1000m") }, nil},
		{"other init containers, which validation refuses", func(s *corev1.PodSpec) { s.InitContainers = s.InitContainers[1:] }, nil},
	} {
		if diff := cmp.Diff(tt.want, nodefeature.RequiredByUpdate(old, pod(tt.change))); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

func TestMissing(t *testing.T) {
	for _, tt := range []struct{ required, declared, want []string }{
		{nil, nil, nil},
		{[]string{"A", "B"}, []string{"A", "B", "C"}, nil},
		{[]string{"A", "B", "C"}, []string{"B", "Unknown"}, []string{"A", "C"}},
	} {
		if diff := cmp.Diff(tt.want, nodefeature.Missing(tt.required, tt.declared)); diff != "" {
			t.Errorf("%v of %v: %s", tt.required, tt.declared, diff)
		}
	}
}

func BenchmarkRequired(b *testing.B) {
	spec := corev1.PodSpec{Containers: make([]corev1.Container, 3)}
	b.ReportAllocs()
	for b.Loop() {
		if nodefeature.Required(&spec) != nil {
			b.Fatal("features are required")
		}
	}
}
