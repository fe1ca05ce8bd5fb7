package lifecycle

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// list returns CPU and memory; "" means that there is none.
func list(cpu, memory string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for name, q := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
		if q != "" {
			l[name] = resource.MustParse(q)
		}
	}
	return l
}

func TestQOSCountsThePodAsAWhole(t *testing.T) {
	none, both := corev1.ResourceRequirements{}, corev1.ResourceRequirements{Limits: list("1", "1Gi")}
	tests := []struct {
		name  string
		whole *corev1.ResourceRequirements
		own   corev1.ResourceRequirements
		want  corev1.PodQOSClass
	}{
		{"nothing", nil, none, corev1.PodQOSBestEffort},
		{"container", nil, both, corev1.PodQOSGuaranteed},
		{"empty whole", &none, both, corev1.PodQOSGuaranteed},
		{"whole alone", &both, none, corev1.PodQOSGuaranteed},
		{"whole before container", &both, corev1.ResourceRequirements{Requests: list("1m", "")}, corev1.PodQOSGuaranteed},
		{"request below limit", &corev1.ResourceRequirements{Requests: list("1m", "1Gi"), Limits: list("1", "1Gi")}, both, corev1.PodQOSBurstable},
		{"one limit", &corev1.ResourceRequirements{Limits: list("1", "")}, none, corev1.PodQOSBurstable},
		{"huge pages do not count", &corev1.ResourceRequirements{Limits: corev1.ResourceList{"hugepages-2Mi": resource.MustParse("2Mi")}}, none, corev1.PodQOSBestEffort},
	}
	for _, tt := range tests {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Resources: tt.whole, Containers: []corev1.Container{{Resources: tt.own}}}}
		if got := QOS(pod); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestResizeOfThePodAsAWhole grants a pod more memory. First the container without a limit of its own gets it, then the cgroup of the pod
// is made exact.
func TestResizeOfThePodAsAWhole(t *testing.T) {
	small := &corev1.ResourceRequirements{Requests: list("1", "1Gi"), Limits: list("", "1Gi")}
	large := &corev1.ResourceRequirements{Requests: list("1", "2Gi"), Limits: list("", "2Gi")}
	free, bound := corev1.Container{Name: "free"}, corev1.Container{Name: "bound", Resources: corev1.ResourceRequirements{Limits: list("", "512Mi")}}
	v := View{
		Pod:        &corev1.Pod{Spec: corev1.PodSpec{Resources: large, Containers: []corev1.Container{free, bound}}},
		Sandboxes:  []Sandbox{{ID: "s", Ready: true}},
		Containers: []Container{{ID: "f", Name: "free", State: Running, Sandbox: "s"}, {ID: "b", Name: "bound", State: Running, Sandbox: "s"}},
		Memory: Memory{Resize: Resize{
			Whole: large, Enforced: small, Allocated: map[string]corev1.ResourceRequirements{},
			Applied: map[string]corev1.ResourceRequirements{"f": Effective(free.Resources, small), "b": Effective(bound.Resources, small)},
		}},
	}
	actions := func() (all []string) {
		for _, a := range Decide(v).Actions {
			all = append(all, a.String())
		}
		return all
	}
	if d := cmp.Diff([]string{"update f"}, actions()); d != "" {
		t.Errorf("actions at first (-want +got):\n%s", d)
	}
	var s corev1.PodStatus
	wholeStatus(&v, &s)
	if got, is := s.AllocatedResources.Memory().String(), s.Resources.Limits.Memory().String(); got != "2Gi" || is != "1Gi" {
		t.Errorf("granted %s and applied %s, want 2Gi and 1Gi", got, is)
	}
	v.Memory.Resize.Applied["f"] = Effective(free.Resources, large)
	if d := cmp.Diff([]string{"enforce"}, actions()); d != "" || !v.Resizing() {
		t.Errorf("actions after the container (-want +got):\n%s", d)
	}
	v.Memory.Resize.Enforced = large
	if got := actions(); len(got) != 0 || v.Resizing() {
		t.Errorf("actions at last: %v", got)
	}
	wholeStatus(&v, &s)
	if is := s.Resources.Limits.Memory().String(); is != "2Gi" {
		t.Errorf("applied %s, want 2Gi", is)
	}
	var c corev1.ContainerStatus
	Runtime("x").running(&v, &free, &c, "f")
	if len(c.Resources.Limits) != 0 {
		t.Errorf("the container has the pod's limits %v as its own", c.Resources.Limits)
	}
}

// TestResizeOfAnInitContainer grants a running init container more memory. When it has ended, its resources are of no account.
func TestResizeOfAnInitContainer(t *testing.T) {
	small, large := corev1.ResourceRequirements{Limits: list("", "1Gi")}, corev1.ResourceRequirements{Limits: list("", "2Gi")}
	v := View{
		Pod: &corev1.Pod{Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "setup", Resources: large}}, Containers: []corev1.Container{{Name: "main"}},
		}},
		Sandboxes:  []Sandbox{{ID: "s", Ready: true}},
		Containers: []Container{{ID: "i", Name: "setup", State: Running, Sandbox: "s"}},
		Memory: Memory{Resize: Resize{
			Allocated: map[string]corev1.ResourceRequirements{"setup": large}, Applied: map[string]corev1.ResourceRequirements{"i": small},
		}},
	}
	actions := func() (all []string) {
		for _, a := range Decide(v).Actions {
			all = append(all, a.String())
		}
		return all
	}
	if d := cmp.Diff([]string{"update i"}, actions()); d != "" || !v.Resizing() {
		t.Errorf("actions while it runs (-want +got):\n%s", d)
	}
	v.Containers[0].State = Exited
	if d := cmp.Diff([]string{"start main 0"}, actions()); d != "" || v.Resizing() {
		t.Errorf("actions after its end (-want +got):\n%s", d)
	}
}
