package builtin

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sampan-io/sampan/scheduler/plugin"
)

// TestExtendedClaimsAreBounded has a pod whose init containers would use the devices of each of its containers: a claim for it
// would have more requests than the API server accepts, and a list of the product of both.
func TestExtendedClaimsAreBounded(t *testing.T) {
	classes := map[corev1.ResourceName]*resourcev1.DeviceClass{"example.com/gpu": {}}
	classes["example.com/gpu"].Name = "gpu"
	pod := func(inits, containers int) *plugin.Pod {
		p := &corev1.Pod{}
		asks := func(name string) corev1.Container {
			return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}}}
		}
		for i := range inits {
			c := asks(fmt.Sprint("i", i))
			c.Resources.Requests["example.com/gpu"] = resource.MustParse("40")
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		}
		for i := range containers {
			p.Spec.Containers = append(p.Spec.Containers, asks(fmt.Sprint("c", i)))
		}
		return plugin.NewPod(p)
	}
	node := &plugin.Node{}
	for _, tt := range []struct{ inits, containers, tooMany int }{
		{0, 1, 0}, {500, 32, 0}, {3, 33, 33}, {500, 500, 500},
	} {
		p := pod(tt.inits, tt.containers)
		if got := tooManyRequests(p, classes, node); got != tt.tooMany {
			t.Errorf("%d init containers and %d containers: %d, want %d", tt.inits, tt.containers, got, tt.tooMany)
		}
		if tt.tooMany > 0 {
			continue
		}
		claim, mappings := forNode(p, classes, node)
		requests, uses := tt.containers, tt.containers
		if tt.inits > 0 {
			requests, uses = requests+1, uses+tt.inits*(tt.containers+1)
		}
		if len(claim.Spec.Devices.Requests) != requests || len(mappings) != uses {
			t.Errorf("%d init containers and %d containers: %d requests and %d uses, want %d and %d", tt.inits, tt.containers, len(claim.Spec.Devices.Requests), len(mappings), requests, uses)
		}
	}
	node.Allocatable.Other = map[corev1.ResourceName]int64{"example.com/gpu": 1000}
	if got := tooManyRequests(pod(1, 500), classes, node); got != 0 {
		t.Errorf("on a node that has the resource itself: %d, want 0", got)
	}
}
