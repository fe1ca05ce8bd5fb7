package plugin_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sampan-io/sampan/scheduler/plugin"
)

func container(cpu, memory string) corev1.Container {
	l := corev1.ResourceList{}
	if cpu != "" {
		l[corev1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		l[corev1.ResourceMemory] = resource.MustParse(memory)
	}
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: l}}
}

func sidecar(c corev1.Container) corev1.Container {
	c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	return c
}

func TestRequestsOfAPod(t *testing.T) {
	tests := []struct {
		name string
		spec corev1.PodSpec
		want plugin.Resources
	}{
		{"containers add up", corev1.PodSpec{Containers: []corev1.Container{container("100m", "1Ki"), container("200m", "")}}, plugin.Resources{MilliCPU: 300, Memory: 1024}},
		{"a thirsty init container", corev1.PodSpec{
			InitContainers: []corev1.Container{container("1", "1Ki"), container("", "4Ki")},
			Containers:     []corev1.Container{container("100m", "2Ki")},
		}, plugin.Resources{MilliCPU: 1000, Memory: 4096}},
		{"sidecars run on", corev1.PodSpec{
			InitContainers: []corev1.Container{sidecar(container("100m", "1Ki")), container("300m", "")},
			Containers:     []corev1.Container{container("200m", "1Ki")},
		}, plugin.Resources{MilliCPU: 400, Memory: 2048}},
		{"the pod's own word", corev1.PodSpec{
			Containers: []corev1.Container{container("100m", "1Ki")},
			Resources:  &corev1.ResourceRequirements{Requests: container("2", "").Resources.Requests},
		}, plugin.Resources{MilliCPU: 2000, Memory: 1024}},
		{"overhead on top", corev1.PodSpec{
			Containers: []corev1.Container{container("100m", "1Ki")},
			Overhead:   container("10m", "1Ki").Resources.Requests,
		}, plugin.Resources{MilliCPU: 110, Memory: 2048}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, plugin.NewPod(&corev1.Pod{Spec: tt.spec}).Requests); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestHostPortsCollide(t *testing.T) {
	any80 := plugin.HostPort{IP: "0.0.0.0", Protocol: corev1.ProtocolTCP, Port: 80}
	one80, other80 := any80, any80
	one80.IP, other80.IP = "10.0.0.1", "10.0.0.2"
	udp, port81 := any80, any80
	udp.Protocol, port81.Port = corev1.ProtocolUDP, 81
	for _, tt := range []struct {
		a, b plugin.HostPort
		want bool
	}{{any80, any80, true}, {any80, one80, true}, {one80, any80, true}, {one80, other80, false}, {any80, udp, false}, {any80, port81, false}} {
		if got := tt.a.Collides(tt.b); got != tt.want {
			t.Errorf("%v collides with %v: %v, want %v", tt.a, tt.b, got, tt.want)
		}
	}
}

func TestANodeForgetsWhatEnded(t *testing.T) {
	c := container("100m", "1Ki")
	c.Ports = []corev1.ContainerPort{{HostPort: 80}}
	p := plugin.NewPod(&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{c}}})
	var n plugin.Node
	n.Add(p)
	n.Add(p)
	n.Remove(p)
	if n.Pods != 1 || n.Requested.MilliCPU != 100 || len(n.Ports) != 1 {
		t.Errorf("one of two pods ended: %+v", n)
	}
	n.Remove(p)
	if n.Pods != 0 || n.Requested.Memory != 0 || n.Presumed.MilliCPU != 0 || len(n.Ports) != 0 {
		t.Errorf("both ended: %+v", n)
	}
}
