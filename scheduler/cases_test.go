package scheduler_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/scheduler"
	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/scheduler/plugin"
	"github.com/sampan-io/sampan/scheduler/plugin/plugintest"
)

// A hardCase is a kind of pods about which upstream decides slowly.
type hardCase struct {
	*scheduler.Decider
	c      *plugin.Cluster
	pod    func(i int) *plugin.Pod
	from   int
	placed []*plugin.Pod
}

// inZones returns nodes in a hundred zones.
func inZones(nodes int) *plugin.Cluster {
	c := &plugin.Cluster{}
	for i := range nodes {
		c.SetNode(plugintest.Node(fmt.Sprintf("node-%05d", i), fmt.Sprintf("%s=zone-%02d", corev1.LabelTopologyZone, i%100), "cpu=4"))
	}
	return c
}

// rulesOf are what makes pods hard to place.
var rulesOf = map[string]string{
	"AntiAffinity": "spec=affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: web}}}]}}",
	"Spread":       "spec=topologySpreadConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}]",
	"Plain":        "cpu=1m",
}

// newCase has nodes on which so many of the pods are placed already.
func newCase(t testing.TB, rule string, nodes, placed int) *hardCase {
	h := &hardCase{Decider: deciderOf(t, builtin.Default()), c: inZones(nodes)}
	h.pod = func(i int) *plugin.Pod {
		return plugin.NewPod(plugintest.Pod(fmt.Sprint("p", i), "label=app=web", "cpu=100m", "memory=128Mi", rulesOf[rule]))
	}
	for i := range placed {
		h.next(t, h.pod(i))
	}
	return h
}

// next decides about a pod and places it.
func (h *hardCase) next(t testing.TB, pod *plugin.Pod) {
	d := h.DecideAll(t.Context(), h.c, scheduler.Question{Pod: pod, From: h.from, Signature: pod.Signature()})
	if d.Node == "" {
		t.Fatal(d.String())
	}
	h.c.Place(pod, d.Node)
	h.from = d.Next
	h.placed = append(h.placed, pod)
}

// end lets the oldest pod end.
func (h *hardCase) end() {
	h.c.Unplace(h.placed[0].UID)
	h.placed = h.placed[1:]
}

// BenchmarkHard decides about pods with rules on 5,000 nodes in 100 zones, half of which have such a pod already.
func BenchmarkHard(b *testing.B) {
	for _, rule := range []string{"Plain", "AntiAffinity", "Spread"} {
		b.Run(rule, func(b *testing.B) {
			h := newCase(b, rule, 5000, 2500)
			pods := make([]*plugin.Pod, b.N)
			for i := range pods {
				pods[i] = h.pod(2500 + i)
			}
			b.ReportAllocs()
			b.ResetTimer()
			began := cpu(b)
			for _, p := range pods {
				h.next(b, p)
				h.end()
			}
			b.ReportMetric(float64((cpu(b)-began).Microseconds())/float64(b.N), "cpu-µs/pod")
		})
	}
}

// fullCase returns nodes without room, each with four pods of no importance, and an important pod.
func fullCase(t testing.TB, nodes int) *hardCase {
	h := &hardCase{Decider: deciderOf(t, builtin.Default()), c: inZones(nodes)}
	for i := range 4 * nodes {
		p := plugin.NewPod(plugintest.Pod(fmt.Sprint("low", i), "cpu=900m", "memory=500Mi", "label=app=low", fmt.Sprintf("age=%dm", i%60)))
		h.c.Place(p, fmt.Sprintf("node-%05d", i%nodes))
	}
	h.pod = func(i int) *plugin.Pod {
		return plugin.NewPod(plugintest.Pod(fmt.Sprint("high", i), "cpu=3", "memory=500Mi", "label=app=high", "priority=10"))
	}
	return h
}

// BenchmarkPreemption makes room for important pods on 5,000 full nodes, and places them there.
func BenchmarkPreemption(b *testing.B) {
	h := fullCase(b, 5000)
	pods := make([]*plugin.Pod, 500)
	for i := range pods {
		pods[i] = h.pod(i)
	}
	b.ReportAllocs()
	b.ResetTimer()
	var used time.Duration
	for b.Loop() {
		c := h.c
		b.StopTimer()
		h.c = c.Copy()
		h.Decider, h.from = deciderOf(b, builtin.Default()), 0
		began := cpu(b)
		b.StartTimer()
		for _, p := range pods {
			d := h.DecideAll(b.Context(), h.c, scheduler.Question{Pod: p, From: h.from, Signature: p.Signature()})
			if d.Room.Node == "" {
				b.Fatal(d.String())
			}
			h.c.Nominate(p, d.Room.Node)
			for _, v := range d.Room.Victims {
				h.c.Unplace(v.UID)
			}
		}
		for _, p := range pods {
			h.next(b, p)
		}
		h.c = c
		used += cpu(b) - began
	}
	b.ReportMetric(float64(used.Microseconds())/float64(b.N*len(pods)), "cpu-µs/pod")
}

// TestHardDecisionsAllocate pins what decisions about pods with rules may allocate, whatever the size of the cluster: some
// things for the pod, and for pre-emption the list of nodes that come into question.
func TestHardDecisionsAllocate(t *testing.T) {
	for _, nodes := range []int{200, 1000} {
		for rule, most := range map[string]float64{"Plain": 0, "AntiAffinity": 4, "Spread": 4} {
			h := newCase(t, rule, nodes, nodes/2)
			pod := h.pod(nodes)
			q := scheduler.Question{Pod: pod, Signature: pod.Signature()}
			if got := testing.AllocsPerRun(50, func() { h.Decide(t.Context(), h.c, q) }); got > most {
				t.Errorf("%s: Decide on %d nodes allocates %v times, want at most %v", rule, nodes, got, most)
			}
		}
		h := fullCase(t, nodes)
		pod := h.pod(0)
		q := scheduler.Question{Pod: pod, Signature: pod.Signature()}
		if got := testing.AllocsPerRun(50, func() {
			if d := h.DecideAll(t.Context(), h.c, q); d.Room.Node == "" {
				t.Fatal(d.String())
			}
		}); got > 6 { // one of them with -race only
			t.Errorf("making room on %d nodes allocates %v times, want at most 6", nodes, got)
		}
	}
}
