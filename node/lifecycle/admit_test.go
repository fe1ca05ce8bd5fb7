package lifecycle_test

import (
	"math"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/internal/reserved"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// asking returns a pod with one container that requests these resources.
func asking(name string, requests map[corev1.ResourceName]string, edit ...func(*corev1.PodSpec)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)}}
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "demo"}}
	list := corev1.ResourceList{}
	for r, q := range requests {
		list[r] = resource.MustParse(q)
	}
	p.Spec.Containers[0].Resources.Requests = list
	for _, f := range edit {
		f(&p.Spec)
	}
	return p
}

// A port of the cluster's own servers is refused with its protocol, at every address, for containers that run beside
// others, and for pods in the host's network.
func TestAllowed(t *testing.T) {
	own := slices.Concat(reserved.TCP(53, 6443), reserved.UDP(53))
	always := corev1.ContainerRestartPolicyAlways
	for _, c := range []struct {
		port corev1.ContainerPort
		want string
	}{
		{corev1.ContainerPort{HostPort: 53, Protocol: corev1.ProtocolUDP}, "53/UDP"},
		{corev1.ContainerPort{HostPort: 53, Protocol: corev1.ProtocolTCP}, "53/TCP"},
		{corev1.ContainerPort{HostPort: 53, Protocol: corev1.ProtocolSCTP}, ""},
		{corev1.ContainerPort{HostPort: 6443}, "6443/TCP"},
		{corev1.ContainerPort{HostPort: 6443, Protocol: corev1.ProtocolUDP}, ""},
		{corev1.ContainerPort{HostPort: 6443, HostIP: "127.0.0.1"}, "127.0.0.1:6443/TCP"},
		{corev1.ContainerPort{HostPort: 6443, HostIP: "0.0.0.0"}, "6443/TCP"},
		{corev1.ContainerPort{HostPort: 53, HostIP: "::", Protocol: corev1.ProtocolUDP}, ":::53/UDP"},
		{corev1.ContainerPort{HostPort: 53, HostIP: "192.0.2.1", Protocol: corev1.ProtocolUDP}, "192.0.2.1:53/UDP"},
		{corev1.ContainerPort{HostPort: 8080, ContainerPort: 6443}, ""},
		{corev1.ContainerPort{ContainerPort: 53, Protocol: corev1.ProtocolUDP}, ""},
	} {
		ports := []corev1.ContainerPort{c.port}
		for name, place := range map[string]func(*corev1.PodSpec){
			"a container": func(s *corev1.PodSpec) { s.Containers[0].Ports = ports },
			"a sidecar": func(s *corev1.PodSpec) {
				s.InitContainers = []corev1.Container{{Name: "side", RestartPolicy: &always, Ports: ports}}
			},
			"the host's network": func(s *corev1.PodSpec) { s.HostNetwork, s.Containers[0].Ports = true, ports },
		} {
			got := ""
			if r := lifecycle.Allowed(plugin.NewPod(asking("p", nil, place)), own); r != nil {
				got = r.Message
			}
			want := ""
			if c.want != "" {
				want = "Predicate NodePorts failed: host port " + c.want + " is a port of the cluster itself"
			}
			if got != want {
				t.Errorf("%+v of %s: %q, want %q", c.port, name, got, want)
			}
		}
	}
}

// classResource is the resource by which pods ask for the devices of the class "card".
const classResource = "deviceclass.resource.kubernetes.io/card"

// claiming gives a pod a claim for an extended resource.
func claiming(p *corev1.Pod, name string) *corev1.Pod {
	p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
		ResourceClaimName: "claim", RequestMappings: []corev1.ContainerExtendedResourceRequest{{ContainerName: "c", ResourceName: name, RequestName: "r"}},
	}
	return p
}

func hostPort(port int32, ip string) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) {
		s.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: port, HostIP: ip, Protocol: corev1.ProtocolTCP}}
	}
}

func admit(pod *corev1.Pod, node *corev1.Node, active []*corev1.Pod) *lifecycle.Rejection {
	var c plugin.Cluster
	c.SetNode(node)
	for _, p := range active {
		c.Place(plugin.NewPod(p), node.Name)
	}
	return lifecycle.Admit(plugin.NewPod(pod), c.Snapshot.Node(node.Name))
}

func TestAdmitRejectsAsKubeletDoes(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"zone": "a"}}}
	node.Status.Allocatable = corev1.ResourceList{
		corev1.ResourcePods: resource.MustParse("3"), corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi"),
		"example.com/device": resource.MustParse("1"),
	}
	node.Spec.Taints = []corev1.Taint{
		{Key: "dedicated", Value: "db", Effect: corev1.TaintEffectNoExecute},
		{Key: "cordoned", Effect: corev1.TaintEffectNoSchedule},
	}
	tolerate := func(s *corev1.PodSpec) {
		s.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
	}
	active := []*corev1.Pod{
		asking("one", map[corev1.ResourceName]string{corev1.ResourceCPU: "500m", "example.com/device": "1"}, hostPort(80, "192.0.2.1")),
		asking("two", nil, hostPort(81, "")),
	}
	type requests = map[corev1.ResourceName]string
	for _, c := range []struct {
		name   string
		pod    *corev1.Pod
		active []*corev1.Pod
		reason string // "": the pod is admitted
		text   string
	}{
		{"fits", asking("p", requests{corev1.ResourceCPU: "1500m"}, tolerate), active, "", ""},
		{
			"processor", asking("p", requests{corev1.ResourceCPU: "1501m"}, tolerate), active, "OutOfcpu",
			"Node didn't have enough resource: cpu, requested: 1501, used: 500, capacity: 2000",
		},
		{
			"memory", asking("p", requests{corev1.ResourceMemory: "2Gi"}, tolerate), active, "OutOfmemory",
			"Node didn't have enough resource: memory, requested: 2147483648, used: 0, capacity: 1073741824",
		},
		{
			"too many", asking("p", nil, tolerate), append(active[:2:2], asking("three", nil)), "OutOfpods",
			"Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3",
		},
		{
			"extended resource in use", asking("p", requests{"example.com/device": "1"}, tolerate), active, "OutOfexample.com/device",
			"Node didn't have enough resource: example.com/device, requested: 1, used: 1, capacity: 1",
		},
		{"extended resource of no node", asking("p", requests{"example.com/licence": "1"}, tolerate), active, "", ""},
		{
			"resource of a device class", asking("p", requests{classResource: "1"}, tolerate), active, "OutOf" + classResource,
			"Node didn't have enough resource: " + classResource + ", requested: 1, used: 0, capacity: 0",
		},
		{"resource of a device class with a claim", claiming(asking("p", requests{classResource: "1"}, tolerate), classResource), active, "", ""},
		{"extended resource in use with a claim", claiming(asking("p", requests{"example.com/device": "1"}, tolerate), "example.com/device"), active, "", ""},
		{
			"huge pages", asking("p", requests{"hugepages-2Mi": "2Mi"}, tolerate), active, "OutOfhugepages-2Mi",
			"Node didn't have enough resource: hugepages-2Mi, requested: 2097152, used: 0, capacity: 0",
		},
		{
			"selector", asking("p", nil, tolerate, func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"zone": "b"} }), active,
			"NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
		},
		{"selector that holds", asking("p", nil, tolerate, func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"zone": "a"} }), active, "", ""},
		{
			"port", asking("p", nil, tolerate, hostPort(81, "127.0.0.1")), active,
			"NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
		},
		{"port at another address", asking("p", nil, tolerate, hostPort(80, "127.0.0.1")), active, "", ""},
		{
			"taint", asking("p", nil), active,
			"TaintToleration", "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
		},
		{
			"first of two reasons", asking("p", requests{corev1.ResourceCPU: "9"}, hostPort(81, "")), active, "OutOfcpu",
			"Node didn't have enough resource: cpu, requested: 9000, used: 500, capacity: 2000",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := admit(c.pod, node, c.active)
			switch {
			case r == nil && c.reason == "":
			case r == nil:
				t.Errorf("admitted, want %s", c.reason)
			case r.Reason != c.reason || r.Message != c.text:
				t.Errorf("rejected: %s: %s\nwant:     %s: %s", r.Reason, r.Message, c.reason, c.text)
			}
		})
	}
}

func TestAdmitRefusesOtherOperatingSystems(t *testing.T) {
	p := asking("p", nil)
	p.Labels = map[string]string{corev1.LabelOSStable: "windows"}
	if r := admit(p, &corev1.Node{}, nil); r == nil || r.Reason != "PodOSSelectorNodeLabelDoesNotMatch" {
		t.Errorf("rejection is %+v, want PodOSSelectorNodeLabelDoesNotMatch", r)
	}
}

func TestLongestGracePeriodIsNotNegative(t *testing.T) {
	p := asking("p", nil)
	p.Spec.TerminationGracePeriodSeconds = new(int64(math.MaxInt64))
	v := lifecycle.View{Pod: p}
	if g := v.Grace(); g < time.Hour {
		t.Errorf("a grace period of %d seconds is %v", *p.Spec.TerminationGracePeriodSeconds, g)
	}
}

func TestAffordableBoundsContainers(t *testing.T) {
	spec := &corev1.PodSpec{Containers: make([]corev1.Container, 300), InitContainers: make([]corev1.Container, 200)}
	if r := lifecycle.Affordable(spec); r != nil {
		t.Errorf("500 containers: %v", r)
	}
	spec.Containers = make([]corev1.Container, 20_000)
	want := "spec.containers, spec.initContainers: 20200 containers are more than a node runs in one pod, want at most 500"
	if r := lifecycle.Affordable(spec); r == nil || r.Message != want {
		t.Errorf("20,200 containers: %v, want %s", r, want)
	}
	spec = &corev1.PodSpec{Volumes: make([]corev1.Volume, 1001)}
	want = "spec.volumes: 1001 volumes are more than a node has for one pod, want at most 1000"
	if r := lifecycle.Affordable(spec); r == nil || r.Message != want {
		t.Errorf("1,001 volumes: %v, want %s", r, want)
	}
}

func TestAffordableBoundsHostPorts(t *testing.T) {
	ports := func(host, inside int) (ports []corev1.ContainerPort) {
		for i := range host {
			ports = append(ports, corev1.ContainerPort{HostPort: int32(i + 1), ContainerPort: int32(i + 1)})
		}
		return append(ports, make([]corev1.ContainerPort, inside)...)
	}
	spec := &corev1.PodSpec{InitContainers: []corev1.Container{{Ports: ports(400, 5)}}, Containers: []corev1.Container{{Ports: ports(600, 2000)}}}
	if r := lifecycle.Affordable(spec); r != nil {
		t.Errorf("1,000 host ports: %v", r)
	}
	spec.Containers = append(spec.Containers, corev1.Container{Ports: ports(1, 0)})
	want := lifecycle.Rejection{
		Reason:  "TooManyHostPorts",
		Message: "spec.containers, spec.initContainers: 1001 host ports are more than a node leads to one pod, want at most 1000",
	}
	if r := lifecycle.Affordable(spec); r == nil || *r != want {
		t.Errorf("1,001 host ports: %v, want %v", r, want)
	}
	spec.HostNetwork = true
	if r := lifecycle.Affordable(spec); r != nil {
		t.Errorf("1,001 ports of a pod on the host's network: %v", r)
	}
}
