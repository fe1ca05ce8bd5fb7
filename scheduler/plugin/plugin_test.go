package plugin_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/scheduler/plugin"
	"github.com/sampan-io/sampan/scheduler/plugin/plugintest"
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

// TestResizedPodCountsWithTheLarger has a pod whose node has not applied a resize yet, or cannot.
func TestResizedPodCountsWithTheLarger(t *testing.T) {
	status := func(granted, applied corev1.Container, reason string) corev1.PodStatus {
		s := corev1.PodStatus{AllocatedResources: granted.Resources.Requests, Resources: &corev1.ResourceRequirements{Requests: applied.Resources.Requests}}
		if reason != "" {
			s.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: reason}}
		}
		return s
	}
	spec := corev1.PodSpec{
		Containers: []corev1.Container{container("100m", "1Ki")},
		Resources:  &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), "hugepages-2Mi": resource.MustParse("4Mi")}},
	}
	pages := map[corev1.ResourceName]int64{"hugepages-2Mi": 4 << 20}
	for _, tt := range []struct {
		name   string
		status corev1.PodStatus
		want   plugin.Resources
	}{
		{"no status", corev1.PodStatus{}, plugin.Resources{MilliCPU: 2000, Memory: 1024, Other: pages}},
		{"smaller soon", status(container("2", "1Ki"), container("3", "2Ki"), ""), plugin.Resources{MilliCPU: 3000, Memory: 2048, Other: pages}},
		{"deferred", status(container("1", "1Ki"), container("1", "1Ki"), corev1.PodReasonDeferred), plugin.Resources{MilliCPU: 2000, Memory: 1024, Other: pages}},
		{"infeasible", status(container("1", "1Ki"), container("500m", "1Ki"), corev1.PodReasonInfeasible), plugin.Resources{MilliCPU: 1000, Memory: 1024}},
	} {
		if diff := cmp.Diff(tt.want, plugin.NewPod(&corev1.Pod{Spec: spec, Status: tt.status}).Requests); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
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

func TestNodeForgetsEndedPods(t *testing.T) {
	var c plugin.Cluster
	c.SetNode(plugintest.Node("a"))
	n := c.Snapshot.Node("a")
	for _, name := range []string{"p", "q"} {
		c.Place(plugin.NewPod(plugintest.Pod(name, "cpu=100m", "memory=1Ki", "port=80", "owner=o", "asks=x.io/gpu:1")), "a")
	}
	c.Unplace("default/p")
	if len(n.Pods) != 1 || n.Requested.MilliCPU != 100 || len(n.Ports) != 1 || n.Requested.Other["x.io/gpu"] != 1 {
		t.Errorf("one of two pods ended: %+v", n)
	}
	c.Unplace("default/q")
	if len(n.Pods) != 0 || n.Requested.Memory != 0 || n.Presumed.MilliCPU != 0 || len(n.Ports)+len(n.Owned)+len(n.Requested.Other) != 0 {
		t.Errorf("both ended: %+v", n)
	}
	if c.Unplace("default/q") {
		t.Error("a pod ended twice")
	}
}

type odd struct{}

func (odd) Name() string { return "Odd" }

type less struct{ name string }

func (l less) Name() string                { return l.name }
func (less) Less(_, _ *plugin.Queued) bool { return false }

func TestASetNamesEveryFault(t *testing.T) {
	set := plugin.Set{
		Entries: []plugin.Entry{
			{},
			{Plugin: odd{}},
			{Plugin: less{""}},
			{Plugin: less{"A"}},
			{Plugin: less{"A"}},
			{Plugin: less{"B"}, Only: plugin.AtFilter, Weight: -1},
		},
		Order: map[plugin.Points][]string{plugin.AtFilter: {"Z"}, plugin.AtFilter | plugin.AtBind: nil},
	}
	err := set.Validate()
	if err == nil {
		t.Fatal("Validate = nil")
	}
	for _, want := range []string{
		"plug-in 0 is nil", `plug-in "Odd" implements no extension point`, "plug-in 2, a plugin_test.less, has no name", `plug-in "A" is listed twice`,
		`plug-in "B" is enabled at filter, which it does not implement`, `plug-in "B" has weight -1`, `are all enabled at queueSort, want one`,
		`the order of filter names plug-in "Z", which is not in the set`, `the order of "filter,bind" is given`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Validate does not say %q:\n%v", want, err)
		}
	}
}

func TestTheOrderOfAPoint(t *testing.T) {
	set := plugin.Set{
		Entries: []plugin.Entry{{Plugin: less{"A"}}, {Plugin: less{"B"}}, {Plugin: less{"C"}}, {Plugin: less{"D"}, Only: plugin.AtBind}},
		Order:   map[plugin.Points][]string{plugin.AtQueueSort: {"C", "B"}},
	}
	var names []string
	for _, e := range set.At(plugin.AtQueueSort) {
		names = append(names, e.Name())
	}
	if diff := cmp.Diff([]string{"C", "B", "A"}, names); diff != "" {
		t.Error(diff)
	}
	if got := set.Without("A", "B").With(plugin.Entry{Plugin: less{"C"}, Weight: 3}); len(got.Entries) != 2 || got.Entries[0].Weight != 3 || len(set.Entries) != 4 || set.Entries[2].Weight != 0 {
		t.Errorf("without and with: %+v of %+v", got, set)
	}
}

func TestArgumentsAreReadStrictly(t *testing.T) {
	type strategy struct {
		Type string `json:"type"`
	}
	type arguments struct {
		Strategy strategy `json:"scoringStrategy"`
		Weight   int      `json:"weight"`
	}
	for _, tt := range []struct{ args, want string }{
		{`{"apiVersion":"kubescheduler.config.k8s.io/v1","kind":"XArgs","weight":3}`, ""},
		{``, ""},
		{`{"weight":"3"}`, "weight"},
		{`{"scoringStrategy":{"typ":"x"},"colour":1}`, `unknown field "scoringStrategy.typ"`},
		{`{"scoringStrategy":{"typ":"x"},"colour":1}`, `unknown field "colour"`},
		{`{"weight":1,"weight":2}`, `duplicate field "weight"`},
		{`[]`, "want an object"},
	} {
		got := arguments{Weight: 1}
		err := plugin.DecodeArgs(json.RawMessage(tt.args), &got)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("DecodeArgs(%s) = %v, want %q", tt.args, err, tt.want)
		}
	}
}

// TestCountsAreWhatOneWouldCount does random things to a cluster and compares what is kept about it with what
// can be counted by looking at everything.
func TestCountsAreWhatOneWouldCount(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := plugintest.Worlds().Draw(rt, "world")
		c := w.Cluster(false)
		s := &c.Snapshot
		keys := []string{corev1.LabelHostname, corev1.LabelTopologyZone}
		web := func(living bool) *plugin.PodQuery {
			return plugin.NewPodQuery(plugin.PodSelection{
				Namespaces: []string{"default"}, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "b"}},
				Labels: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Living: living,
			})
		}
		queries := []*plugin.PodQuery{
			web(true), web(false), plugin.AllOf(web(false), plugin.NewPodQuery(plugin.PodSelection{Namespaces: []string{"other"}, Labels: &metav1.LabelSelector{}})),
			plugin.NewPodQuery(plugin.PodSelection{Namespaces: []string{"default"}, Labels: nil}),
		}
		ssd := plugin.NodeQuery{Key: "ssd", Match: func(n *corev1.Node) bool { return n.Labels["disk"] == "ssd" && !n.Spec.Unschedulable }}
		check := func(when string) {
			for _, key := range keys {
				for _, q := range queries {
					for _, nodes := range []plugin.NodeQuery{{}, ssd} {
						counts := s.Count(q, key, nodes)
						want := map[string]int{}
						total, least, domains := 0, -1, map[string]bool{}
						for _, n := range s.Nodes() {
							if v, ok := n.Labels[key]; ok && (nodes.Key == "" || nodes.Match(n.Node)) {
								domains[v] = true
								for _, p := range n.Pods {
									if s.Selects(q, p) {
										want[v]++
										total++
									}
								}
							}
						}
						for v := range domains {
							if least < 0 || want[v] < least {
								least = want[v]
							}
						}
						got := maps.Collect(counts.Each())
						if !maps.Equal(got, want) || counts.Total() != total || counts.Min() != max(0, least) || counts.Domains() != len(domains) {
							rt.Fatalf("%s: %s by %s on %q: %v total %d least %d of %d, want %v total %d least %d of %d\n%s", when, q.Key(), key, nodes.Key,
								got, counts.Total(), counts.Min(), counts.Domains(), want, total, max(0, least), len(domains), w)
						}
						for _, n := range s.Nodes() {
							v, in := n.Labels[key]
							if counts.At(n) != want[v] && in || !in && counts.At(n) != 0 || counts.Has(n) != (in && (nodes.Key == "" || nodes.Match(n.Node))) {
								rt.Fatalf("%s: on %s: %d, %v", when, n.Name, counts.At(n), counts.Has(n))
							}
						}
					}
				}
			}
			pending := plugin.NewPod(w.Pending)
			for kind := plugin.RequiredAffinity; kind <= plugin.PreferredAntiAffinity; kind++ {
				want := map[string]int{}
				for _, n := range s.Nodes() {
					for _, p := range n.Pods {
						if p.Affinity == nil {
							continue
						}
						for _, term := range p.Affinity[kind] {
							if v, ok := n.Labels[term.Key]; ok && s.Selects(term.Pods, pending) {
								want[fmt.Sprint(term.Pods.Key(), term.Key, term.Weight, v)]++
							}
						}
					}
				}
				got := map[string]int{}
				for _, t := range s.Carried(kind, pending) {
					for v, n := range t.Each() {
						got[fmt.Sprint(t.Pods.Key(), t.Key, t.Weight, v)] = n
					}
				}
				if !maps.Equal(got, want) {
					rt.Fatalf("%s: terms of kind %d: %v, want %v\n%s", when, kind, got, want, w)
				}
			}
		}
		check("at first")
		for i := range rapid.IntRange(1, 12).Draw(rt, "steps") {
			other := plugintest.Worlds().Draw(rt, "other world")
			switch what := rapid.SampledFrom([]string{"node", "drop", "pod", "end", "namespace", "what if", "copy"}).Draw(rt, "what"); what {
			case "node":
				c.SetNode(other.Nodes[0])
			case "drop":
				c.DropNode(fmt.Sprintf("n%d", i%4))
			case "pod":
				p := other.Pending.DeepCopy()
				p.UID = types.UID(fmt.Sprint("x", i%3))
				if rapid.Bool().Draw(rt, "dying") {
					p.DeletionTimestamp = new(metav1.Now())
				}
				c.Place(plugin.NewPod(p), fmt.Sprintf("n%d", i%4))
			case "end":
				c.Unplace(types.UID(fmt.Sprint("x", i%3)))
			case "namespace":
				c.SetNamespace("other", map[string]string{"team": rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "team")})
			case "what if":
				try := c.WhatIf()
				for _, n := range s.Nodes() {
					if len(n.Pods) > 0 {
						try.Remove(n.Pods[0], n.Name)
					}
				}
				try.Add(plugin.NewPod(other.Pending), "n0")
				check("what if")
				try.Undo()
			case "copy":
				c = c.Copy()
				s = &c.Snapshot
			}
			check(fmt.Sprint("after step ", i))
		}
	})
}
