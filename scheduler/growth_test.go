package scheduler_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/growthtest"
	"github.com/sampan-io/sampan/scheduler"
	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/scheduler/plugin"
	"github.com/sampan-io/sampan/scheduler/plugin/plugintest"
)

// grown is how many elements the lists of the tests have, and up to four times that.
const grown = 900

// sizeOf returns how many elements a list of a pod has. The budget of the scheduler must not hide what those below it cost.
func sizeOf(path string) int {
	for _, list := range []string{"spec.topologySpreadConstraints", "spec.tolerations", "spec.affinity"} {
		if strings.HasPrefix(path, list) {
			return plugin.MostTerms / 4
		}
	}
	return grown
}

// TestPodCostsAreLinear schedules pods with one list or map at its largest, next to an equal one that is placed already, and
// takes them away again.
func TestPodCostsAreLinear(t *testing.T) {
	d := deciderOf(t, builtin.Default())
	for _, f := range growthtest.Fields(reflect.TypeFor[corev1.Pod]()) {
		for how, name := range map[growthtest.Likeness]string{growthtest.Distinct: "distinct", growthtest.Equal: "equal"} {
			t.Run(f.Path+" "+name, func(t *testing.T) {
				growthtest.Linear(t, sizeOf(f.Path), func(n int) func() {
					c := growthCluster()
					a, b := growthPod(f, "a", n, how), growthPod(f, "b", n, how)
					return func() { schedule(t.Context(), d, c, a, b) }
				})
			})
		}
	}
}

// TestNodeCostsAreLinear schedules a pod on nodes of which one has a list or map at its largest.
func TestNodeCostsAreLinear(t *testing.T) {
	d := deciderOf(t, builtin.Default())
	for _, f := range growthtest.Fields(reflect.TypeFor[corev1.Node]()) {
		t.Run(f.Path, func(t *testing.T) {
			growthtest.Linear(t, 4*grown, func(n int) func() {
				c := growthCluster()
				large := plugintest.Node("large", "cpu=4")
				f.Grow(large, n, growthtest.Distinct)
				large.Name = "large"
				pod := plugintest.Pod("p", "cpu=1m", rulesOf["Spread"])
				return func() {
					c.SetNode(large)
					schedule(t.Context(), d, c, pod)
					c.SetNode(large.DeepCopy())
					c.DropNode(large.Name)
				}
			})
		})
	}
}

func growthCluster() *plugin.Cluster {
	c := &plugin.Cluster{}
	for i := range 3 {
		c.SetNode(plugintest.Node(fmt.Sprint("node-", i), fmt.Sprintf("%s=zone-%d", corev1.LabelTopologyZone, i), "cpu=4"))
	}
	for i := range 6 {
		c.Place(plugin.NewPod(plugintest.Pod(fmt.Sprint("small-", i), "label=app=web")), fmt.Sprint("node-", i%3))
	}
	c.SetNamespace("default", map[string]string{"a": "b"})
	return c
}

// growthPod has n elements in a field. What would keep a pod from being looked at has been taken out.
func growthPod(f growthtest.Field, name string, n int, how growthtest.Likeness) *corev1.Pod {
	pod := plugintest.Pod(name, "label=app=web")
	f.Grow(pod, n, how)
	pod.Name, pod.UID, pod.Spec.NodeName = name, types.UID(name), ""
	for i := range pod.Spec.TopologySpreadConstraints { // so that nodes are in the domains
		if s := &pod.Spec.TopologySpreadConstraints[i]; i%2 == 0 {
			s.TopologyKey = corev1.LabelHostname
		}
	}
	return pod
}

// schedule decides about the pods one after the other, places each, and takes all away.
func schedule(ctx context.Context, d *scheduler.Decider, c *plugin.Cluster, objs ...*corev1.Pod) {
	var pods []*plugin.Pod
	for _, obj := range objs {
		pod := plugin.NewPod(obj)
		pods = append(pods, pod)
		out := d.DecideAll(ctx, c, scheduler.Question{Pod: pod, Signature: pod.Signature()})
		_ = out.String()
		node := out.Node
		if node == "" {
			node = "node-0"
		}
		c.Nominate(pod, node)
		c.Place(pod, node)
		for _, e := range builtin.Default().Entries {
			hinter, ok := e.Plugin.(plugin.Hinter)
			if !ok {
				continue
			}
			for _, hint := range hinter.Hints() {
				n := c.Snapshot.Node("node-0").Node
				for _, change := range []plugin.Change{
					{Resource: client.Pods.GroupVersionResource, Action: plugin.Deleted, OldPod: pod},
					{Resource: client.Pods.GroupVersionResource, Action: plugin.Added, Pod: pod},
					{Resource: client.Nodes.GroupVersionResource, Action: plugin.Added, Node: n},
					{Resource: client.Nodes.GroupVersionResource, Action: plugin.NodeLabels, Node: n, OldNode: n},
				} {
					if hint.Resource == change.Resource && hint.Action&change.Action != 0 && hint.Helps != nil {
						hint.Helps(pod, change)
					}
				}
			}
		}
	}
	for _, pod := range pods {
		c.Unplace(pod.UID)
	}
	c.Trim()
}

// TestPodBeyondBudgetIsRefused checks that a pod with too long a list is refused in words that name the list, at no more cost
// than that of its size, and that the others go on.
func TestPodBeyondBudgetIsRefused(t *testing.T) {
	d := deciderOf(t, builtin.Default())
	for _, f := range growthtest.Fields(reflect.TypeFor[corev1.Pod]()) {
		switch f.Path {
		case "spec.topologySpreadConstraints", "spec.tolerations", "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution",
			"spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution", "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution",
			"spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms":
		default:
			continue
		}
		c := growthCluster()
		pod := plugin.NewPod(growthPod(f, "large", plugin.MostTerms+1, growthtest.Distinct))
		out := d.DecideAll(t.Context(), c, scheduler.Question{Pod: pod})
		want := fmt.Sprintf("0/3 nodes are available: %s: 1001 items are more than the scheduler looks at, want at most 1000.", f.Path)
		if out.String() != want || out.Node != "" || !out.Hopeless() {
			t.Errorf("decision %q, want %q", out.String(), want)
		}
		if e := d.Explain(t.Context(), c, pod); e.Err != nil || e.String() != want || len(e.ByNode) != 3 {
			t.Errorf("explanation %+v", e)
		}
		c.Place(pod, "node-0") // as a user binds it
		if out := d.DecideAll(t.Context(), c, scheduler.Question{Pod: plugin.NewPod(plugintest.Pod("small"))}); out.Node == "" {
			t.Errorf("another pod: %s", out.String())
		}
	}
}
