package lifecycle

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/growthtest"
	"github.com/sampan-io/sampan/scheduler/plugin"
	"github.com/sampan-io/sampan/scheduler/plugin/plugintest"
)

// TestPodCostsAreLinear decides about pods with one list or map at its largest, in each state of their containers.
func TestPodCostsAreLinear(t *testing.T) {
	for _, f := range growthtest.Fields(reflect.TypeFor[corev1.Pod]()) {
		t.Run(f.Path, func(t *testing.T) {
			growthtest.Linear(t, 1500, func(n int) func() {
				pod := plugintest.Pod("p", "label=app=web")
				f.Grow(pod, n, growthtest.Distinct)
				return func() { live(pod) }
			})
		})
	}
}

// TestNodeCostsAreLinear admits a pod to nodes with one list or map at its largest.
func TestNodeCostsAreLinear(t *testing.T) {
	for _, f := range growthtest.Fields(reflect.TypeFor[corev1.Node]()) {
		t.Run(f.Path, func(t *testing.T) {
			growthtest.Linear(t, 4000, func(n int) func() {
				node := plugintest.Node("n")
				f.Grow(node, n, growthtest.Distinct)
				node.Name = "n"
				return func() {
					var c plugin.Cluster
					c.SetNode(node)
					Admit(plugin.NewPod(plugintest.Pod("p")), c.Snapshot.Node("n"))
				}
			})
		})
	}
}

// live takes a pod through its life.
func live(pod *corev1.Pod) {
	now := time.Unix(1_700_000_000, 0)
	v := View{Now: now, Pod: pod, Last: pod.Status}
	decide := func() {
		v.Now = v.Now.Add(time.Second)
		d := Decide(v)
		for i := range d.Actions {
			_ = d.Actions[i].Key()
		}
		v.Replacing()
		v.Resizing()
		v.Granted()
		v.Last = Runtime("test").Status(v)
	}
	decide()
	v.Sandboxes = []Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.1"}}}
	decide()
	all := func(state State, code int32) {
		v.Containers = nil
		add := func(name string) {
			v.Containers = append(v.Containers, Container{
				ID: "id-" + name, Name: name, Sandbox: "s", State: state, ExitCode: code, CreatedAt: now, StartedAt: now, FinishedAt: v.Now,
			})
		}
		for i := range pod.Spec.InitContainers {
			add(pod.Spec.InitContainers[i].Name)
		}
		for i := range pod.Spec.Containers {
			add(pod.Spec.Containers[i].Name)
		}
		for i := range pod.Spec.EphemeralContainers {
			add(pod.Spec.EphemeralContainers[i].Name)
		}
		decide()
	}
	all(Created, 0)
	all(Running, 0)
	v.Memory.Replaced = map[string]bool{"none": true}
	all(Running, 0)
	all(Unknown, 0)
	all(Exited, 1)
	all(Running, 0)
	v.Gone = true
	decide()
	all(Exited, 0)
	var c plugin.Cluster
	c.SetNode(plugintest.Node("n"))
	Admit(plugin.NewPod(pod), c.Snapshot.Node("n"))
	Supported(pod)
	Featured(pod, nil)
	_ = Sysctls(pod, []string{"net.*"})
	QOS(pod)
	NeedsAppArmor(&pod.Spec)
}
