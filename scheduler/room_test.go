package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/scheduler"
	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/scheduler/plugin"
	"github.com/sampan-io/sampan/scheduler/plugin/plugintest"
)

// maker is a PostFilter that a test says the answers of.
type maker struct {
	name string
	make func(f plugin.Failure) (plugin.Nomination, plugin.Verdict)
}

func (m maker) Name() string { return m.name }
func (m maker) PostFilter(_ context.Context, f plugin.Failure) (plugin.Nomination, plugin.Verdict) {
	return m.make(f)
}

// shy counts pods itself, and refuses nodes of zones that have two.
type shy struct{}

func (shy) Name() string { return "Shy" }
func (shy) PreFilter(_ context.Context, _ *plugin.Pod, s *plugin.Snapshot) (plugin.Check, plugin.Verdict) {
	c := shyCheck{}
	for _, n := range s.Nodes() {
		c[n.Labels[corev1.LabelTopologyZone]] += len(n.Pods)
	}
	return c, plugin.Verdict{}
}

type shyCheck map[string]int

func (c shyCheck) PodAdded(_ *plugin.Pod, n *plugin.Node) { c[n.Labels[corev1.LabelTopologyZone]]++ }

func (c shyCheck) PodRemoved(_ *plugin.Pod, n *plugin.Node) { c[n.Labels[corev1.LabelTopologyZone]]-- }

func (c shyCheck) Filter(n *plugin.Node) plugin.Verdict {
	if c[n.Labels[corev1.LabelTopologyZone]] >= 2 {
		return plugin.Refuse("node(s) were in a full zone")
	}
	return plugin.Verdict{}
}

// strict refuses pods with a label before nodes are asked about.
type strict struct{}

func (strict) Name() string { return "Strict" }
func (strict) PreFilter(_ context.Context, pod *plugin.Pod, _ *plugin.Snapshot) (plugin.Check, plugin.Verdict) {
	switch pod.Labels["strict"] {
	case "now":
		return nil, plugin.Refuse("not now")
	case "ever":
		return nil, plugin.Never("not ever")
	}
	return nil, plugin.Skip
}

func told(s *plugin.Snapshot) string {
	var b strings.Builder
	for _, n := range s.Nodes() {
		var pods []string
		for _, p := range n.Pods {
			pods = append(pods, p.Name)
		}
		slices.Sort(pods)
		fmt.Fprintln(&b, n.Name, n.Generation(), pods, n.Requested)
	}
	return b.String()
}

// TestPostFiltersInTurn says what comes of the answers of several PostFilters, and that whatever they do the cluster
// is afterwards what it was.
func TestPostFiltersInTurn(t *testing.T) {
	no := func(why string) func(plugin.Failure) (plugin.Nomination, plugin.Verdict) {
		return func(plugin.Failure) (plugin.Nomination, plugin.Verdict) {
			return plugin.Nomination{}, plugin.Refuse(why)
		}
	}
	removeAll := func(f plugin.Failure) {
		for _, n := range f.Snapshot().Nodes() {
			for _, p := range slices.Clone(n.Pods) {
				f.Remove(p)
			}
		}
	}
	sees := func(f plugin.Failure) (plugin.Nomination, plugin.Verdict) {
		var all []string
		for _, n := range f.Snapshot().Nodes() {
			v, by := f.Verdict(n)
			all = append(all, fmt.Sprintf("%s: %v (%s), fits: %v", n.Name, v, by, f.Fits(n).OK()))
		}
		for _, n := range f.Hopeful() {
			all = append(all, "hope for "+n.Name)
		}
		return plugin.Nomination{}, plugin.Refuse(strings.Join(all, "; "))
	}
	for _, tt := range []struct {
		name          string
		pod           []string // more of it
		first, second func(plugin.Failure) (plugin.Nomination, plugin.Verdict)
		want          string // of the decision, behind "preemption: "
		room          string
		err           string
	}{
		{name: "both refuse", first: no("one."), second: no("two."), want: "one., two."},
		{name: "the first has nothing to say", first: no(""), second: no("two."), want: "two."},
		{name: "the second has nothing to say", first: no("one."), second: no(""), want: "one."},
		{name: "the first skips", first: func(plugin.Failure) (plugin.Nomination, plugin.Verdict) {
			return plugin.Nomination{}, plugin.Skip
		}, second: no("two."), want: "two."},
		{name: "the first is sure", first: func(plugin.Failure) (plugin.Nomination, plugin.Verdict) {
			return plugin.Nomination{}, plugin.Never("one.")
		}, second: func(plugin.Failure) (plugin.Nomination, plugin.Verdict) { panic("asked") }, want: "one."},
		{name: "the first has a way", first: func(plugin.Failure) (plugin.Nomination, plugin.Verdict) {
			return plugin.Nomination{Node: "a"}, plugin.Verdict{}
		}, second: func(plugin.Failure) (plugin.Nomination, plugin.Verdict) { panic("asked") }, room: "a"},
		{name: "the second has a way", first: no("one."), second: func(plugin.Failure) (plugin.Nomination, plugin.Verdict) {
			return plugin.Nomination{Node: "b"}, plugin.Verdict{}
		}, room: "b"},
		{name: "the first fails", first: func(plugin.Failure) (plugin.Nomination, plugin.Verdict) {
			return plugin.Nomination{}, plugin.Fail(errors.New("oh"))
		}, second: no("two."), err: `plug-in "First", PostFilter: oh`},
		{name: "the second panics in the middle of something", first: no("one."), second: func(f plugin.Failure) (plugin.Nomination, plugin.Verdict) {
			removeAll(f)
			panic("oh")
		}, err: `plug-in "Second" panicked: oh`},
		{name: "what the first leaves removed the second sees", first: func(f plugin.Failure) (plugin.Nomination, plugin.Verdict) {
			removeAll(f)
			return plugin.Nomination{}, plugin.Refuse("one.")
		}, second: sees, want: "one., a: unschedulable: Insufficient cpu (NodeResourcesFit), fits: false; b: unresolvable: node(s) were unschedulable (NodeUnschedulable), fits: false; hope for a"},
		{name: "a node fits while nobody is there", first: func(f plugin.Failure) (plugin.Nomination, plugin.Verdict) {
			removeAll(f)
			return sees(f)
		}, second: no(""), want: "a: success (), fits: true; b: unresolvable: node(s) were unschedulable (NodeUnschedulable), fits: false; hope for a"},
		{name: "restored in any order", first: func(f plugin.Failure) (plugin.Nomination, plugin.Verdict) {
			pods := slices.Clone(f.Snapshot().Node("a").Pods)
			removeAll(f)
			before := f.Fits(f.Snapshot().Node("a")).OK()
			f.Restore(pods[0])
			between := f.Fits(f.Snapshot().Node("a")).OK()
			f.Restore(pods[1])
			return plugin.Nomination{}, plugin.Refuse(fmt.Sprint(before, " ", between, " ", f.Fits(f.Snapshot().Node("a")).OK()))
		}, second: no(""), want: "true true false"},
		{name: "whoever is not there cannot be removed", first: func(f plugin.Failure) (plugin.Nomination, plugin.Verdict) {
			f.Remove(plugin.NewPod(plugintest.Pod("nobody")))
			return plugin.Nomination{}, plugin.Verdict{}
		}, second: no(""), err: `plug-in "First" panicked: pod default/nobody is not placed`},
		{name: "whoever was not removed cannot be restored", first: func(f plugin.Failure) (plugin.Nomination, plugin.Verdict) {
			one, _, _ := f.Snapshot().Placed("default/one")
			two, _, _ := f.Snapshot().Placed("default/two")
			f.Remove(one)
			f.Restore(two)
			return plugin.Nomination{}, plugin.Verdict{}
		}, second: no(""), err: `plug-in "First" panicked: pod default/two was not removed`},
		{name: "the pod fits nowhere now", pod: []string{"label=strict=now"}, first: sees, second: no(""), want: "a: unschedulable: not now (Strict), fits: false; b: unschedulable: not now (Strict), fits: false; hope for a; hope for b"},
		{name: "the pod fits nowhere ever", pod: []string{"label=strict=ever"}, first: sees, second: no(""), want: "a: unresolvable: not ever (Strict), fits: false; b: unresolvable: not ever (Strict), fits: false"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := deciderOf(t, builtin.Default().Without("DefaultPreemption").With(plugin.Entry{Plugin: strict{}}, plugin.Entry{Plugin: shy{}},
				plugin.Entry{Plugin: maker{"First", tt.first}}, plugin.Entry{Plugin: maker{"Second", tt.second}}))
			c := &plugin.Cluster{}
			c.SetNode(plugintest.Node("a", "cpu=4"))
			c.SetNode(plugintest.Node("b", "cpu=4", "cordoned"))
			c.Place(plugin.NewPod(plugintest.Pod("one", "cpu=2")), "a")
			c.Place(plugin.NewPod(plugintest.Pod("two", "cpu=2")), "a")
			before := told(&c.Snapshot)
			pod := plugin.NewPod(plugintest.Pod(append([]string{"big", "cpu=1", "priority=10"}, tt.pod...)...))
			for _, sign := range []plugin.Signature{"", pod.Signature(), pod.Signature()} {
				got := d.DecideAll(t.Context(), c, scheduler.Question{Pod: pod, Signature: sign})
				if tt.err != "" {
					if got.Err == nil || got.Err.Error() != tt.err {
						t.Errorf("the error is %v, want %s", got.Err, tt.err)
					}
				} else if got.After != tt.want || got.Room.Node != tt.room || got.Err != nil {
					t.Errorf("room on %q, %v, after %q\nwant %q after %q", got.Room.Node, got.Err, got.After, tt.room, tt.want)
				}
				if after := told(&c.Snapshot); after != before {
					t.Errorf("the cluster is\n%swas\n%s", after, before)
				}
			}
		})
	}
}

// TestMakeRoomHasNothingToDo checks that no PostFilter is called if there is a decision, or if there are no nodes.
func TestMakeRoomHasNothingToDo(t *testing.T) {
	asked := 0
	d := deciderOf(t, builtin.Default().With(plugin.Entry{Plugin: maker{"Maker", func(plugin.Failure) (plugin.Nomination, plugin.Verdict) {
		asked++
		return plugin.Nomination{Node: "a"}, plugin.Verdict{}
	}}}).Without("DefaultPreemption"))
	c := &plugin.Cluster{}
	q := scheduler.Question{Pod: plugin.NewPod(plugintest.Pod("p"))}
	none := d.DecideAll(t.Context(), c, q)
	c.SetNode(plugintest.Node("a"))
	fits := d.Decide(t.Context(), c, q)
	failed := scheduler.Decision{Nodes: 1, Err: errors.New("oh")}
	for _, got := range []*scheduler.Decision{&none, &fits, &failed} {
		was := got.String()
		if d.MakeRoom(t.Context(), q, got); got.Room.Node != "" || got.String() != was || asked > 0 {
			t.Errorf("a PostFilter was asked about %q", was)
		}
	}
}

// counter is a PostFilter that caches a different value for each node, and reports the number of pods that it counted.
type counter struct{}

func (counter) Name() string { return "Counter" }
func (counter) PostFilter(_ context.Context, f plugin.Failure) (plugin.Nomination, plugin.Verdict) {
	sum := 0
	for _, n := range f.Hopeful() {
		pods, fits := len(n.Pods), f.Fits(n).OK()
		if fits {
			return plugin.Nomination{}, plugin.Fail(errors.New("a hopeful node fits"))
		}
		if kept := f.Kept(n); kept != nil && kept.(int) != pods {
			return plugin.Nomination{}, plugin.Fail(fmt.Errorf("%d pods on %s were kept, there are %d", kept, n.Name, pods))
		}
		f.Keep(n, pods)
		if kept := f.Kept(n); kept != nil && kept.(int) != pods {
			return plugin.Nomination{}, plugin.Fail(fmt.Errorf("%d pods on %s are kept at once, there are %d", kept, n.Name, pods))
		}
		sum += pods
		if len(n.Pods) > 0 {
			// Results that are computed while a victim is removed must not be cached.
			victim := n.Pods[0]
			f.Remove(victim)
			f.Keep(n, -1)
			if kept := f.Kept(n); kept != nil {
				return plugin.Nomination{}, plugin.Fail(fmt.Errorf("%v is known of node %s without one of its pods", kept, n.Name))
			}
			f.Restore(victim)
		}
	}
	return plugin.Nomination{}, plugin.Refuse(fmt.Sprintf("counted %d.", sum))
}

// TestKeptRoomMakesNoDifference has full nodes, and pods of few kinds that want room there: the same rules about zones,
// names of nodes and spread for one after the other, while pods come and go, and promises are made and broken. What is
// decided by one that keeps what it has found out must be what one decides that has never been asked before.
func TestKeptRoomMakesNoDifference(t *testing.T) {
	rules := func(words ...string) string { return "spec=" + strings.Join(words, " ") }
	near := func(kind, app string) string {
		return rules(fmt.Sprintf("affinity: {%s: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: topology.kubernetes.io/zone, labelSelector: {matchLabels: {app: %s}}}]}}", kind, app))
	}
	kinds := [][]string{
		{"cpu=2", "priority=10", "label=app=vip"},
		{"cpu=2", "priority=20", "label=app=vip"},
		{"cpu=1", "priority=10", "label=app=shy", near("podAntiAffinity", "web")},
		{"cpu=1", "priority=10", "label=app=fond", near("podAffinity", "web")},
		{"cpu=2", "priority=10", "label=app=even", rules("topologySpreadConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: even}}}]")},
		{"cpu=2", "priority=10", "label=app=tied", rules("affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [b]}]}]}}}")},
	}
	low := [][]string{{"cpu=1", "label=app=web"}, {"cpu=1", "label=app=db", "priority=1"}, {"cpu=1", "label=app=db", near("podAntiAffinity", "vip")}}
	sets := []plugin.Set{builtin.Default().With(plugin.Entry{Plugin: counter{}}), builtin.Default().With(plugin.Entry{Plugin: shy{}}, plugin.Entry{Plugin: counter{}})}
	rapid.Check(t, func(rt *rapid.T) {
		set := rapid.SampledFrom(sets).Draw(rt, "set")
		keeping := deciderOf(t, set)
		c := &plugin.Cluster{}
		names := []string{"a", "b", "c", "d"}
		for i, name := range names {
			c.SetNode(plugintest.Node(name, "cpu=2", fmt.Sprintf("%s=%d", corev1.LabelTopologyZone, i%2)))
		}
		made := 0
		var placed []*plugin.Pod
		fill := func(node string) {
			made++
			p := plugin.NewPod(plugintest.Pod(append([]string{fmt.Sprint("low", made)}, rapid.SampledFrom(low).Draw(rt, "low pod")...)...))
			c.Place(p, node)
			placed = append(placed, p)
		}
		for _, name := range names {
			for range rapid.IntRange(0, 2).Draw(rt, "pods on "+name) {
				fill(name)
			}
		}
		// Few kinds at a time, so that they come again.
		some := rapid.SliceOfNDistinct(rapid.IntRange(0, len(kinds)-1), 1, 2, rapid.ID).Draw(rt, "kinds")
		from := 0
		for range rapid.IntRange(2, 12).Draw(rt, "steps") {
			switch rapid.SampledFrom([]string{"decide", "decide", "decide", "fill", "end", "node"}).Draw(rt, "step") {
			case "fill":
				fill(rapid.SampledFrom(names).Draw(rt, "node"))
			case "end":
				if len(placed) > 0 {
					c.Unplace(rapid.SampledFrom(placed).Draw(rt, "pod").UID)
				}
			case "node":
				at := rapid.IntRange(0, 3).Draw(rt, "node")
				c.SetNode(plugintest.Node(names[at], fmt.Sprintf("cpu=%d", rapid.IntRange(1, 3).Draw(rt, "cpu")), fmt.Sprintf("%s=%d", corev1.LabelTopologyZone, at%2)))
			case "decide":
				kind := rapid.SampledFrom(some).Draw(rt, "kind")
				pod := plugin.NewPod(plugintest.Pod(append([]string{fmt.Sprintf("k%d-%d", kind, rapid.IntRange(0, 2).Draw(rt, "which"))}, kinds[kind]...)...))
				if _, _, is := c.Snapshot.Placed(pod.UID); is {
					continue
				}
				before := told(&c.Snapshot)
				q := scheduler.Question{Pod: pod, From: from}
				fresh := deciderOf(t, set).DecideAll(t.Context(), c, q)
				q.Signature = pod.Signature()
				d := keeping.DecideAll(t.Context(), c, q)
				if d.Err != nil || fresh.Err != nil {
					rt.Fatal(d.Err, fresh.Err)
				}
				if fresh.String() != d.String() || fresh.Next != d.Next || fresh.Hopeless() != d.Hopeless() || fresh.Room.Node != d.Room.Node || !slices.Equal(fresh.Room.Victims, d.Room.Victims) {
					rt.Fatalf("pod %s: %v (%v) without, %v (%v) with what was kept\n%s", pod.Name, fresh.String(), fresh.Room, d.String(), d.Room, before)
				}
				if after := told(&c.Snapshot); after != before {
					rt.Fatalf("pod %s: the cluster is\n%swas\n%s", pod.Name, after, before)
				}
				from = d.Next
				switch {
				case d.Node != "" && rapid.Bool().Draw(rt, "bound"):
					c.Place(pod, d.Node)
					placed = append(placed, pod)
				case d.Room.Node != "" && rapid.IntRange(0, 2).Draw(rt, "promised") > 0:
					c.Nominate(pod, d.Room.Node)
					for _, v := range d.Room.Victims {
						if rapid.Bool().Draw(rt, "ends at once") {
							c.Unplace(v.UID)
						}
					}
				case c.Snapshot.Nomination(pod.UID) != "" && rapid.Bool().Draw(rt, "broken"):
					c.Nominate(pod, "")
				}
			}
		}
	})
}

// TestRoomIsNotMadeWhereAnExtenderRefuses has a node on which the pod fits, but for the extender, and one that is full.
func TestRoomIsNotMadeWhereAnExtenderRefuses(t *testing.T) {
	o := &outsider{ask: func(_ context.Context, nodes []*corev1.Node) (scheduler.Opinion, error) {
		out := scheduler.Opinion{Refused: map[string]plugin.Verdict{}}
		for _, n := range nodes {
			if n.Name == "a" {
				out.Refused[n.Name] = plugin.Refuse("no GPU is free")
			}
		}
		return out, nil
	}}
	schedulingWith(t, extended(o), func(t *testing.T, s *clienttest.Server) {
		s.Set(t, pod("one", "label=app=gpu", "cpu=2", "priority=10"))
		if at := promisedTo(t, s, "one"); at != "b" {
			t.Errorf("one is promised room on %q, want b", at)
		}
		for name, want := range map[string]bool{"on-a": false, "on-b": true} {
			p := clienttest.Find(s, client.Pods, "default", name)
			if ends := p == nil || p.DeletionTimestamp != nil; ends != want {
				t.Errorf("%s is to end: %v, want %v", name, ends, want)
			}
		}
	}, node("a", "cpu=4"), node("b", "cpu=4"), dying("on-a", "cpu=1", "on=a"), dying("on-b", "cpu=3", "on=b"))
}
