package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/scheduler"
	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/scheduler/plugin"
	"github.com/sampan-io/sampan/scheduler/plugin/plugintest"
)

// narrows is a plug-in whose PreFilter allows only the given nodes, or all.
type narrows struct {
	name  string
	nodes string // by comma
	all   bool
}

func (n narrows) Name() string { return n.name }
func (n narrows) PreFilter(context.Context, *plugin.Pod, *plugin.Snapshot) (plugin.Check, plugin.Verdict) {
	return n, plugin.Verdict{}
}
func (n narrows) Narrow() ([]string, bool)           { return strings.Split(n.nodes, ","), !n.all }
func (n narrows) Filter(*plugin.Node) plugin.Verdict { return plugin.Verdict{} }

// refuses is a plug-in that refuses before nodes are asked about.
type refuses struct{ plugin.Verdict }

func (refuses) Name() string { return "Refuses" }
func (r refuses) PreFilter(context.Context, *plugin.Pod, *plugin.Snapshot) (plugin.Check, plugin.Verdict) {
	return nil, r.Verdict
}

func TestNodesThatDoNotComeIntoQuestion(t *testing.T) {
	one := func(nodes string) plugin.Entry { return plugin.Entry{Plugin: narrows{"One", nodes, false}} }
	two := func(nodes string) plugin.Entry { return plugin.Entry{Plugin: narrows{"Two", nodes, false}} }
	for _, tt := range []struct {
		name     string
		entries  []plugin.Entry
		want     string
		refusers string
		hopeless bool
	}{
		{"some", []plugin.Entry{one("b,c")}, "b", "", false},
		{"some for both", []plugin.Entry{one("c,b"), two("a,b")}, "b", "", false},
		{"some for the second", []plugin.Entry{{Plugin: narrows{"One", "b", true}}, two("c")}, "c", "", false},
		{"all", []plugin.Entry{{Plugin: narrows{"One", "b", true}}}, "a", "", false},
		{"none that exists", []plugin.Entry{one("x,y")}, "0/3 nodes are available: node(s) didn't satisfy plugin(s) [One].", "One", true},
		{"none for both", []plugin.Entry{one("a"), two("b")}, "0/3 nodes are available: node(s) didn't satisfy plugin(s) [One Two] simultaneously.", "Two", true},
		{"one that refuses", []plugin.Entry{one("b"), {Plugin: saying("Said")}}, "0/3 nodes are available: 1 node(s) said no, 2 node(s) didn't satisfy plugin(s) [One].", "One Said", false},
		{"refused at once", []plugin.Entry{{Plugin: refuses{plugin.Refuse("no", "nor yet")}}}, "0/3 nodes are available: no, nor yet.", "Refuses", false},
		{"refused for ever", []plugin.Entry{{Plugin: refuses{plugin.Never("no")}}}, "0/3 nodes are available: no.", "Refuses", true},
		{"failed", []plugin.Entry{{Plugin: refuses{plugin.Fail(errors.New("oh"))}}}, `plug-in "Refuses", PreFilter: oh`, "", false},
		{"held", []plugin.Entry{{Plugin: refuses{plugin.Hold("soon")}}}, `plug-in "Refuses", PreFilter: returned wait: soon, which is not a valid verdict at this point`, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := deciderOf(t, plugin.Set{Entries: tt.entries})
			c := &plugin.Cluster{}
			c.SetNode(plugintest.Node("a"))
			c.SetNode(plugintest.Node("b", "Said=no"))
			c.SetNode(plugintest.Node("c"))
			pod := plugin.NewPod(plugintest.Pod("p"))
			for _, sign := range []plugin.Signature{"", pod.Signature(), pod.Signature()} {
				got := d.Decide(t.Context(), c, scheduler.Question{Pod: pod, Signature: sign})
				said := got.Node
				if said == "" {
					said = got.String()
				}
				if by := strings.Join(d.Refusers(&got), " "); said != tt.want || by != tt.refusers || got.Hopeless() != tt.hopeless {
					t.Errorf("%s, by %q, hopeless: %v\nwant %s, by %q, hopeless: %v", said, by, got.Hopeless(), tt.want, tt.refusers, tt.hopeless)
				}
			}
		})
	}
}

// TestEnoughNodes says how many nodes that fit are looked for (percentageOfNodesToScore): where the next search begins.
func TestEnoughNodes(t *testing.T) {
	unranked := plugin.Set{Entries: []plugin.Entry{{Plugin: builtin.NodeName{}}}}
	for _, tt := range []struct {
		nodes, share int
		set          plugin.Set
		from, next   int
	}{
		{80, 0, builtin.Default(), 0, 0},
		{100, 0, builtin.Default(), 7, 7},
		{101, 0, builtin.Default(), 0, 100},
		{450, 0, builtin.Default(), 0, 450 * (50 - 450/125) / 100},
		{450, 0, builtin.Default(), 400, 400 + 450*(50-450/125)/100 - 450},
		{450, 10, builtin.Default(), 0, 100},
		{450, 30, builtin.Default(), 0, 135},
		{450, 100, builtin.Default(), 3, 3},
		{6000, 0, builtin.Default(), 0, 300},
		{450, 0, unranked, 0, 1},
		{450, 0, unranked, 449, 0},
	} {
		d := deciderOf(t, tt.set)
		d.Share = tt.share
		if got := d.Decide(t.Context(), clusterOf(tt.nodes), scheduler.Question{Pod: plugin.NewPod(plugintest.Pod("p")), From: tt.from}); got.Node == "" || got.Next != tt.next {
			t.Errorf("%d nodes, %d %%, from %d: on %q, next from %d, want %d", tt.nodes, tt.share, tt.from, got.Node, got.Next, tt.next)
		}
	}
}

// TestHopeIsInTheOrderOfTheNodes wherever a search began, and whatever was searched before.
func TestHopeIsInTheOrderOfTheNodes(t *testing.T) {
	var hopeful []string
	d := deciderOf(t, builtin.Default().Without("DefaultPreemption").With(plugin.Entry{Plugin: maker{"Maker", func(f plugin.Failure) (plugin.Nomination, plugin.Verdict) {
		hopeful = nil
		for _, n := range f.Hopeful() {
			hopeful = append(hopeful, n.Name)
		}
		return plugin.Nomination{}, plugin.Refuse("")
	}}}))
	c := &plugin.Cluster{}
	var order []string
	for i := range 6 {
		n := plugintest.Node(fmt.Sprint("n", i), "cpu=2")
		c.Place(plugin.NewPod(plugintest.Pod(fmt.Sprint("on-", i), "cpu=1")), n.Name)
		if i == 2 {
			n.Spec.Unschedulable = true
		}
		c.SetNode(n)
	}
	for _, n := range c.Snapshot.Nodes() {
		if n.Name != "n2" {
			order = append(order, n.Name)
		}
	}
	pod := plugin.NewPod(plugintest.Pod("p", "cpu=2"))
	for from := range 13 {
		for _, sign := range []plugin.Signature{"", pod.Signature()} {
			c.SetNode(plugintest.Node("n5", "cpu=2", fmt.Sprintf("x=%d%v", from, sign == ""))) // or the refusal is remembered
			got := d.DecideAll(t.Context(), c, scheduler.Question{Pod: pod, From: from, Signature: sign})
			if fmt.Sprint(hopeful) != fmt.Sprint(order) || got.Node != "" {
				t.Errorf("from %d there is hope for %v, want %v", from, hopeful, order)
			}
			hopeful = nil
		}
	}
}

// once fails the first time.
type once struct{ asked *int }

func (once) Name() string { return "Once" }
func (o once) Filter(*plugin.Pod, *plugin.Node) plugin.Verdict {
	if *o.asked++; *o.asked == 1 {
		return plugin.Fail(errors.New("oh"))
	}
	return plugin.Refuse("no")
}

// TestAnErrorIsNotKept repeats a decision after an error, with and without nominated pods.
func TestAnErrorIsNotKept(t *testing.T) {
	for _, promised := range []bool{false, true} {
		o := once{new(int)}
		d := deciderOf(t, plugin.Set{Entries: []plugin.Entry{{Plugin: o}}})
		c := &plugin.Cluster{}
		c.SetNode(plugintest.Node("a"))
		if promised {
			c.Nominate(plugin.NewPod(plugintest.Pod("other")), "a")
		}
		pod := plugin.NewPod(plugintest.Pod("p"))
		q := scheduler.Question{Pod: pod, Signature: pod.Signature()}
		if got := d.Decide(t.Context(), c, q); got.Err == nil {
			t.Errorf("%v, want an error", got.String())
		}
		for range 2 {
			if got := d.Decide(t.Context(), c, q); got.Err != nil || got.Node != "" || !strings.Contains(got.String(), "1 no") {
				t.Errorf("%v, want a refusal", got.String())
			}
		}
	}
}

// TestPromisesOfTheLessImportantCountForNothing says whose promised room counts, and that all that was tried is undone.
func TestPromisesOfTheLessImportantCountForNothing(t *testing.T) {
	for _, set := range []plugin.Set{builtin.Default(), builtin.Default().With(plugin.Entry{Plugin: shy{}})} {
		for _, tt := range []struct {
			priority int
			want     string
		}{{4, ""}, {5, ""}, {6, "a"}} {
			d := deciderOf(t, set)
			c := &plugin.Cluster{}
			c.SetNode(plugintest.Node("a", "cpu=2"))
			c.Nominate(plugin.NewPod(plugintest.Pod("promised", "cpu=2", "priority=5")), "a")
			c.Nominate(plugin.NewPod(plugintest.Pod("unimportant", "cpu=2")), "a")
			before := told(&c.Snapshot)
			pod := plugin.NewPod(plugintest.Pod("p", "cpu=1", fmt.Sprintf("priority=%d", tt.priority)))
			for _, sign := range []plugin.Signature{"", pod.Signature(), pod.Signature()} {
				if got := d.Decide(t.Context(), c, scheduler.Question{Pod: pod, Signature: sign}); got.Node != tt.want {
					t.Errorf("priority %d: %v, want node %q", tt.priority, got.String(), tt.want)
				}
				if after := told(&c.Snapshot); after != before {
					t.Errorf("the cluster is\n%swas\n%s", after, before)
				}
			}
		}
	}
}

// deaf has a method of a Check, and returns none.
type deaf struct{}

func (deaf) Name() string { return "deaf" }

func (deaf) PreFilter(context.Context, *plugin.Pod, *plugin.Snapshot) (plugin.Check, plugin.Verdict) {
	return nil, plugin.Verdict{}
}

func (deaf) Narrow() ([]string, bool) { return []string{"a"}, true }

func TestNilCheckWithNarrowIsRefused(t *testing.T) {
	d, err := scheduler.NewDecider(plugin.Set{Entries: []plugin.Entry{{Plugin: deaf{}}}})
	if err != nil {
		t.Fatal(err)
	}
	var c plugin.Cluster
	c.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	got := d.Explain(t.Context(), &c, plugin.NewPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}))
	if got.Err == nil || !strings.Contains(got.Err.Error(), "Narrow of the scheduler_test.deaf would never be called") {
		t.Errorf("Explain = %+v", got)
	}
}
