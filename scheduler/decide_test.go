package scheduler_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/scheduler"
	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/scheduler/plugin"
	"github.com/sampan-io/sampan/scheduler/plugin/plugintest"
)

// TestDecide plays the stories in testdata/*.txt; see [plugintest.Play].
func TestDecide(t *testing.T) { plugintest.Play(t, "testdata", builtin.Default()) }

func clusterOf(n int) *plugin.Cluster {
	c := &plugin.Cluster{}
	for i := range n {
		c.SetNode(plugintest.Node(fmt.Sprintf("node-%05d", i), "zone=a"))
	}
	return c
}

func deciderOf(t testing.TB, set plugin.Set) *scheduler.Decider {
	t.Helper()
	d, err := scheduler.NewDecider(set)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDecideAllocates pins what a decision may allocate: nothing, or the tallies of refusals, whatever the
// size of the cluster.
func TestDecideAllocates(t *testing.T) {
	d := deciderOf(t, builtin.Default())
	for _, n := range []int{1, 100, 1000} {
		c := clusterOf(n)
		for name, tt := range map[string]struct {
			pod  *plugin.Pod
			most float64
		}{
			"fits":    {plugin.NewPod(plugintest.Pod("p", "cpu=100m", "owner=x", "port=80")), 0},
			"refused": {plugin.NewPod(plugintest.Pod("p", "cpu=100", "select=zone=b")), 1},
		} {
			for _, sign := range []plugin.Signature{"", tt.pod.Signature()} {
				q := scheduler.Question{Pod: tt.pod, Signature: sign}
				if got := testing.AllocsPerRun(100, func() { d.Decide(t.Context(), c, q) }); got > tt.most {
					t.Errorf("%s: Decide on %d nodes allocates %v times, want at most %v", name, n, got, tt.most)
				}
			}
		}
	}
}

func TestDecideIsFairToAllNodes(t *testing.T) {
	c, d := clusterOf(450), deciderOf(t, builtin.Default())
	used, from := map[string]bool{}, 0
	for i := range 450 {
		pod := plugin.NewPod(plugintest.Pod(fmt.Sprint("p", i), "cpu=1"))
		got := d.Decide(t.Context(), c, scheduler.Question{Pod: pod, From: from})
		c.Place(pod, got.Node)
		used[got.Node], from = true, got.Next
	}
	if len(used) != 450 {
		t.Errorf("450 equal pods went to %d of 450 equal nodes", len(used))
	}
}

// TestKeptAnswersMakeNoDifference decides about a random sequence of pods, with changes in between, once by asking
// plug-ins each time and once with what they answered before.
func TestKeptAnswersMakeNoDifference(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := plugintest.Worlds().Draw(rt, "world")
		c := w.Cluster(false)
		forgetful, keeping := deciderOf(t, builtin.Default()), deciderOf(t, builtin.Default())
		forgetful.Share, keeping.Share = 100, 100
		kinds := rapid.SliceOfN(plugintest.Worlds(), 1, 3).Draw(rt, "kinds of pods")
		from := 0
		for i := range rapid.IntRange(1, 20).Draw(rt, "pods") {
			kind := rapid.SampledFrom(kinds).Draw(rt, "kind")
			if rapid.IntRange(0, 3).Draw(rt, "change") == 0 {
				if node := rapid.SampledFrom(kind.Nodes).Draw(rt, "node"); rapid.Bool().Draw(rt, "drop") {
					c.DropNode(node.Name)
				} else {
					c.SetNode(node)
				}
			}
			obj := kind.Pending.DeepCopy()
			obj.Name, obj.UID = fmt.Sprint("p", i), types.UID(fmt.Sprint("p", i))
			pod := plugin.NewPod(obj)
			a := forgetful.Decide(t.Context(), c, scheduler.Question{Pod: pod, From: from})
			b := keeping.Decide(t.Context(), c, scheduler.Question{Pod: pod, From: from, Signature: pod.Signature()})
			if a.String() != b.String() || a.Next != b.Next || a.Hopeless() != b.Hopeless() {
				rt.Fatalf("pod %d: %v without, %v with what was kept\n%s", i, a.String(), b.String(), w)
			}
			if from = a.Next; a.Node != "" {
				if rapid.IntRange(0, 4).Draw(rt, "only promised") == 0 {
					c.Nominate(pod, a.Node)
				} else {
					c.Place(pod, a.Node)
				}
			}
		}
	})
}

// saying is a Filter that refuses nodes with what their label of its name says.
type saying string

func (s saying) Name() string { return string(s) }
func (s saying) Filter(_ *plugin.Pod, n *plugin.Node) plugin.Verdict {
	if why := n.Labels[string(s)]; why != "" {
		return plugin.Refuse("node(s) said " + why)
	}
	return plugin.Verdict{}
}

// TestEqualWordsOfTwoPlugins are counted together, and both have refused: what helps one of them may be all that it takes.
func TestEqualWordsOfTwoPlugins(t *testing.T) {
	d := deciderOf(t, plugin.Set{Entries: []plugin.Entry{{Plugin: saying("First")}, {Plugin: saying("Second")}}})
	c := &plugin.Cluster{}
	c.SetNode(plugintest.Node("a", "First=no"))
	c.SetNode(plugintest.Node("b", "Second=no"))
	pod := plugin.NewPod(plugintest.Pod("p"))
	for _, sign := range []plugin.Signature{"", pod.Signature(), pod.Signature()} {
		got := d.Decide(t.Context(), c, scheduler.Question{Pod: pod, Signature: sign})
		if want := "0/2 nodes are available: 2 node(s) said no."; got.String() != want || len(d.Refusers(&got)) != 2 {
			t.Errorf("%s, by %v; want %s, by both", got.String(), d.Refusers(&got), want)
		}
	}
}

// TestWordsThatChange has a plug-in give a different reason each time, more often than reasons are kept. The reason that was
// given for another node long ago must still be reported as it was.
func TestWordsThatChange(t *testing.T) {
	d := deciderOf(t, plugin.Set{Entries: []plugin.Entry{{Plugin: saying("First")}}})
	c := &plugin.Cluster{}
	c.SetNode(plugintest.Node("b", "First=no"))
	pod := plugin.NewPod(plugintest.Pod("p"))
	for i := range 2500 {
		c.SetNode(plugintest.Node("a", fmt.Sprintf("First=%d", i)))
		for range 2 {
			got := d.Decide(t.Context(), c, scheduler.Question{Pod: pod, Signature: pod.Signature()})
			if want := fmt.Sprintf("0/2 nodes are available: 1 node(s) said %d, 1 node(s) said no.", i); got.String() != want {
				t.Fatalf("%s, want %s", got.String(), want)
			}
		}
	}
}

// BenchmarkDecideGrowth measures how the cost of a decision grows with the cluster. If nodes fit, a decision visits a share
// of the nodes, which falls as the cluster grows; if none fits, it visits all. The benchmark counts processor time, on which
// other programs of the machine have less influence than on wall clock time.
func BenchmarkDecideGrowth(b *testing.B) {
	d := deciderOf(b, builtin.Default())
	fits := plugin.NewPod(plugintest.Pod("p", "cpu=100m"))
	refused := plugin.NewPod(plugintest.Pod("p", "cpu=100"))
	small, large := clusterOf(500), clusterOf(5000)
	var took [6]time.Duration
	from := 0
	for b.Loop() {
		for i, run := range []func(){
			func() { d.Decide(b.Context(), small, scheduler.Question{Pod: fits, Signature: fits.Signature()}) },
			func() {
				from = d.Decide(b.Context(), large, scheduler.Question{Pod: fits, From: from, Signature: fits.Signature()}).Next
			},
			func() { d.Decide(b.Context(), small, scheduler.Question{Pod: refused, Signature: refused.Signature()}) },
			func() { d.Decide(b.Context(), large, scheduler.Question{Pod: refused, Signature: refused.Signature()}) },
			func() { d.Decide(b.Context(), large, scheduler.Question{Pod: fits}) },
			func() { d.Decide(b.Context(), large, scheduler.Question{Pod: refused}) },
		} {
			start := cpu(b)
			for range 20 {
				run()
			}
			took[i] += cpu(b) - start
		}
	}
	b.ReportMetric(float64(took[1])/float64(took[0]), "x/10x-nodes")
	b.ReportMetric(float64(took[3])/float64(took[2]), "x/10x-nodes-refused")
	b.ReportMetric(float64(took[4])/float64(took[1]), "x/unlike-others")
	b.ReportMetric(float64(20*b.N)/took[1].Seconds(), "decisions/cpu-s-5000-nodes")
}
