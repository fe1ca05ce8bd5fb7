package scheduler_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/internal/storytest"
	"github.com/sampan-io/sampan/scheduler"
	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// TestDecide plays the stories in testdata/*.txt. A story is a list of commands
// and, under each "schedule", a line starting with ">" that says what came of
// it. Run with -update after a change, then read the diff: it is the review.
//
//	node NAME [cpu=N] [memory=N] [pods=N] [KEY=VALUE label…] [cordoned] [taint=KEY=VALUE:EFFECT…]
//	schedule NAME [cpu=N] [memory=N] [port=N] [owner=UID] [on=NODE] [select=KEY=VALUE…] [tolerate=KEY…] [never-preempts]
//	end NAME
func TestDecide(t *testing.T) {
	storytest.Play(t, "testdata", tell)
}

func tell(t *testing.T) func(string) []string {
	var nodes []*plugin.Node
	where := map[string]string{}
	pods := map[string]*plugin.Pod{}
	find := func(name string) *plugin.Node {
		for _, n := range nodes {
			if n.Name == name {
				return n
			}
		}
		return nil
	}
	return func(line string) []string {
		words := strings.Fields(line)
		if len(words) == 0 {
			return nil
		}
		switch words[0] {
		case "node":
			obj := nodeOf(words[1:])
			if n := find(obj.Name); n != nil {
				n.Set(obj)
				break
			}
			n := &plugin.Node{}
			n.Set(obj)
			nodes = append(nodes, n)
			slices.SortFunc(nodes, func(a, b *plugin.Node) int { return strings.Compare(a.Name, b.Name) })
		case "schedule":
			p := plugin.NewPod(podOf(words[1:]))
			d := scheduler.Decide(builtin.Default(), p, nodes, 0)
			if d.Node != "" {
				find(d.Node).Add(p)
				where[p.Name], pods[p.Name] = d.Node, p
			}
			return []string{d.String()}
		case "end":
			find(where[words[1]]).Remove(pods[words[1]])
		default:
			t.Fatalf("no command %q", words[0])
		}
		return nil
	}
}

func list(milliCPU, memory, pods string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for name, amount := range map[corev1.ResourceName]string{corev1.ResourceCPU: milliCPU, corev1.ResourceMemory: memory, corev1.ResourcePods: pods} {
		if amount != "" {
			l[name] = resource.MustParse(amount)
		}
	}
	return l
}

func nodeOf(words []string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: words[0], Labels: map[string]string{}}}
	cpu, memory, pods := "8", "32Gi", "110"
	for _, w := range words[1:] {
		k, v, _ := strings.Cut(w, "=")
		switch k {
		case "cpu":
			cpu = v
		case "memory":
			memory = v
		case "pods":
			pods = v
		case "cordoned":
			n.Spec.Unschedulable = true
		case "taint":
			rest, effect, _ := strings.Cut(v, ":")
			key, value, _ := strings.Cut(rest, "=")
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
		default:
			n.Labels[k] = v
		}
	}
	n.Status.Allocatable = list(cpu, memory, pods)
	return n
}

func podOf(words []string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: words[0]}}
	p.Spec.SchedulerName = corev1.DefaultSchedulerName
	c := corev1.Container{Name: "c", Image: "i"}
	var cpu, memory string
	for _, w := range words[1:] {
		k, v, _ := strings.Cut(w, "=")
		switch k {
		case "cpu":
			cpu = v
		case "memory":
			memory = v
		case "port":
			port, _ := strconv.Atoi(v)
			c.Ports = append(c.Ports, corev1.ContainerPort{HostPort: int32(port), ContainerPort: int32(port)})
		case "owner":
			p.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(v), Controller: new(true)}}
		case "on":
			p.Spec.NodeName = v
		case "select":
			key, value, _ := strings.Cut(v, "=")
			p.Spec.NodeSelector = map[string]string{key: value}
		case "tolerate":
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: v, Operator: corev1.TolerationOpExists})
		case "never-preempts":
			p.Spec.PreemptionPolicy = new(corev1.PreemptNever)
		default:
			panic("no pod has a " + k)
		}
	}
	c.Resources.Requests = list(cpu, memory, "")
	p.Spec.Containers = []corev1.Container{c}
	return p
}

func views(n int) []*plugin.Node {
	var nodes []*plugin.Node
	for i := range n {
		v := &plugin.Node{}
		v.Set(nodeOf([]string{fmt.Sprintf("node-%05d", i), "zone=a"}))
		nodes = append(nodes, v)
	}
	return nodes
}

// TestDecideAllocates pins what a decision may allocate: the candidates and their
// scores, or the tallies of refusals, whatever the size of the cluster.
func TestDecideAllocates(t *testing.T) {
	set := builtin.Default()
	for _, n := range []int{1, 100, 1000} {
		nodes := views(n)
		for name, tt := range map[string]struct {
			pod  *plugin.Pod
			most float64
		}{
			"fits":    {plugin.NewPod(podOf([]string{"p", "cpu=100m", "owner=x", "port=80"})), 2},
			"refused": {plugin.NewPod(podOf([]string{"p", "cpu=100", "select=zone=b"})), 1},
		} {
			if got := testing.AllocsPerRun(100, func() { scheduler.Decide(set, tt.pod, nodes, 0) }); got > tt.most {
				t.Errorf("%s: Decide on %d nodes allocates %v times, want at most %v", name, n, got, tt.most)
			}
		}
	}
}

func TestDecideIsFairToAllNodes(t *testing.T) {
	nodes := views(450)
	pod := plugin.NewPod(podOf([]string{"p", "cpu=1"}))
	used, from := map[string]bool{}, 0
	for range 450 {
		d := scheduler.Decide(builtin.Default(), pod, nodes, from)
		i, _ := slices.BinarySearchFunc(nodes, d.Node, func(n *plugin.Node, name string) int { return strings.Compare(n.Name, name) })
		nodes[i].Add(pod)
		used[d.Node], from = true, d.Next
	}
	if len(used) != 450 {
		t.Errorf("450 equal pods went to %d of 450 equal nodes", len(used))
	}
}

// BenchmarkDecideGrowth measures how a decision grows with the cluster. Since it
// is content with enough nodes that fit, fifty times the nodes should cost about the
// same; where nobody fits, all are asked.
func BenchmarkDecideGrowth(b *testing.B) {
	set := builtin.Default()
	fits := plugin.NewPod(podOf([]string{"p", "cpu=100m"}))
	refused := plugin.NewPod(podOf([]string{"p", "cpu=100"}))
	small, large := views(100), views(5000)
	var took [4]time.Duration
	from := 0
	for b.Loop() {
		for i, run := range []func(){
			func() { scheduler.Decide(set, fits, small, 0) },
			func() { from = scheduler.Decide(set, fits, large, from).Next },
			func() { scheduler.Decide(set, refused, small, 0) },
			func() { scheduler.Decide(set, refused, large, 0) },
		} {
			start := time.Now()
			run()
			took[i] += time.Since(start)
		}
	}
	b.ReportMetric(float64(took[1])/float64(took[0]), "x/50x-nodes")
	b.ReportMetric(float64(took[3])/float64(took[2]), "x/50x-nodes-refused")
	b.ReportMetric(float64(b.N)/took[1].Seconds(), "decisions/s-5000-nodes")
}
