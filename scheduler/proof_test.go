package scheduler_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/scheduler"
	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/scheduler/plugin"
	"github.com/sampan-io/sampan/scheduler/plugin/plugintest"
)

// worldsVariable says how many random clusters the long run tries.
const worldsVariable = "SAMPAN_WORLDS"

// manyWorlds lets rapid try as many worlds as CI has time for, or as the environment says.
func manyWorlds(t *testing.T) {
	t.Helper()
	worlds, old := "2000", flag.Lookup("rapid.checks").Value.String()
	if n := os.Getenv(worldsVariable); n != "" {
		worlds = n
	}
	if err := flag.Set("rapid.checks", worlds); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = flag.Set("rapid.checks", old) })
}

// TestTheModelAgrees changes a random cluster for a while: pods are created, deleted and relabelled, nodes are added, changed
// and deleted, pods are preempted. For every decision, the model must give the same verdict on every node.
func TestTheModelAgrees(t *testing.T) {
	manyWorlds(t)
	rapid.Check(t, func(rt *rapid.T) {
		w := plugintest.Worlds().Draw(rt, "world")
		l := &life{
			Decider: deciderOf(t, builtin.Default()), set: builtin.Default(), t: t, rt: rt, c: w.Cluster(false),
			scene: scene{spaces: w.Namespaces, nodes: slices.Clone(w.Nodes), pods: slices.Clone(w.Pods)},
		}
		l.decide(w.Pending)
		for i := range rapid.IntRange(1, 5).Draw(rt, "steps") {
			l.step(i)
		}
	})
}

// A life is a cluster that is decided about, beside the model's idea of it.
type life struct {
	*scheduler.Decider
	scene
	set      plugin.Set
	t        *testing.T
	rt       *rapid.T
	c        *plugin.Cluster
	promised []*corev1.Pod // with the node as NodeName
	from     int
}

// step lets something happen.
func (l *life) step(i int) {
	switch what := rapid.SampledFrom([]string{"pod", "pod", "pod", "twin", "twin", "promised", "promised", "node", "taints", "node goes", "pod ends", "pod dies", "relabel", "namespace"}).Draw(l.rt, "step"); what {
	case "pod":
		p := plugintest.Pods(fmt.Sprint("new", i)).Draw(l.rt, "pod")
		if rapid.Bool().Draw(l.rt, "important") {
			p.Spec.Priority = new(int32(100))
		}
		l.decide(p)
	case "twin":
		if like := append(slices.Clip(l.promised), l.pods...); len(like) > 0 {
			twin := rapid.SampledFrom(like).Draw(l.rt, "of").DeepCopy()
			twin.Name, twin.Spec.NodeName, twin.DeletionTimestamp = fmt.Sprint("twin", i), "", nil
			twin.UID = types.UID(twin.Namespace + "/" + twin.Name)
			if rapid.Bool().Draw(l.rt, "not quite") {
				twin.Spec.Tolerations = []corev1.Toleration{{Key: rapid.SampledFrom([]string{"k", "x"}).Draw(l.rt, "tolerates"), Operator: corev1.TolerationOpExists}}
			}
			l.decide(twin)
		}
	case "promised":
		if len(l.promised) > 0 {
			p := rapid.SampledFrom(l.promised).Draw(l.rt, "which").DeepCopy()
			p.Spec.NodeName = ""
			l.decide(p)
		}
	case "node":
		fresh := plugintest.Nodes(fmt.Sprint("n", rapid.IntRange(0, 6).Draw(l.rt, "which"))).Draw(l.rt, "node")
		l.nodes = append(slices.DeleteFunc(l.nodes, func(n *corev1.Node) bool { return n.Name == fresh.Name }), fresh)
		l.c.SetNode(fresh)
	case "taints":
		n := rapid.SampledFrom(l.nodes).Draw(l.rt, "which").DeepCopy()
		if n.Spec.Taints = nil; rapid.Bool().Draw(l.rt, "tainted") {
			n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
		}
		l.nodes = append(slices.DeleteFunc(l.nodes, func(o *corev1.Node) bool { return o.Name == n.Name }), n)
		l.c.SetNode(n)
	case "node goes":
		if len(l.nodes) > 1 {
			gone := rapid.SampledFrom(l.nodes).Draw(l.rt, "which")
			l.nodes = slices.DeleteFunc(l.nodes, func(n *corev1.Node) bool { return n == gone })
			l.c.DropNode(gone.Name)
		}
	case "pod ends":
		if len(l.pods) > 0 {
			l.end(rapid.SampledFrom(l.pods).Draw(l.rt, "which").UID)
		}
	case "pod dies", "relabel":
		if len(l.pods) > 0 {
			p := rapid.SampledFrom(l.pods).Draw(l.rt, "which").DeepCopy()
			if what == "relabel" {
				p.Labels = map[string]string{"app": rapid.SampledFrom([]string{"web", "db"}).Draw(l.rt, "app")}
			} else {
				p.DeletionTimestamp = &metav1.Time{}
			}
			l.place(p, p.Spec.NodeName)
		}
	case "namespace":
		l.spaces = map[string]map[string]string{"default": {"team": "b"}, "other": {"team": rapid.SampledFrom([]string{"a", "b"}).Draw(l.rt, "team")}}
		for name, labels := range l.spaces {
			l.c.SetNamespace(name, labels)
		}
	}
}

func (l *life) end(uid types.UID) {
	l.pods = slices.DeleteFunc(l.pods, func(p *corev1.Pod) bool { return p.UID == uid })
	l.c.Unplace(uid)
}

func (l *life) place(p *corev1.Pod, node string) {
	l.promised = slices.DeleteFunc(l.promised, func(o *corev1.Pod) bool { return o.UID == p.UID })
	l.pods = slices.DeleteFunc(l.pods, func(o *corev1.Pod) bool { return o.UID == p.UID })
	p.Spec.NodeName = node
	l.pods = append(l.pods, p)
	l.c.Place(plugin.NewPod(p), node)
}

// refuses returns why the model refuses a node, or "". A pod must fit without the pods that are nominated to the node, and
// with those of the same or a higher priority.
func (l *life) refuses(s *scene, p *corev1.Pod, n *corev1.Node) string {
	if why := s.illegal(p, n); why != "" {
		return why
	}
	with := &scene{s.spaces, s.nodes, slices.Clone(s.pods)}
	for _, o := range l.promised {
		if o.Spec.NodeName == n.Name && o.UID != p.UID && important(o) >= important(p) {
			with.pods = append(with.pods, o)
		}
	}
	if why := with.illegal(p, n); why != "" {
		return why + ", with those that are promised room"
	}
	return ""
}

func important(p *corev1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// decide has a pod decided about, and judges the decision.
func (l *life) decide(obj *corev1.Pod) {
	pod, before := plugin.NewPod(obj), l.counts()
	e := l.Explain(l.t.Context(), l.c, pod)
	fits := 0
	for _, one := range e.ByNode {
		n := l.nodes[slices.IndexFunc(l.nodes, func(n *corev1.Node) bool { return n.Name == one.Node })]
		if why := l.refuses(&l.scene, obj, n); (why == "") != one.Verdict.OK() {
			l.fail(obj, "node %s: the model says %q, %s says %v", n.Name, why, one.Plugin, one.Verdict)
		}
		if one.Verdict.OK() {
			fits++
		}
	}
	q := scheduler.Question{Pod: pod, From: l.from}
	fresh := deciderOf(l.t, l.set).DecideAll(l.t.Context(), l.c, q)
	q.Signature = pod.Signature()
	d := l.DecideAll(l.t.Context(), l.c, q)
	if d.Err != nil {
		l.fail(obj, "%v", d.Err)
	}
	if fresh.String() != d.String() || fresh.Next != d.Next || fresh.Room.Node != d.Room.Node || !slices.Equal(fresh.Room.Victims, d.Room.Victims) {
		l.fail(obj, "one that decides for the first time says %v (%v), another %v (%v)", fresh.String(), fresh.Room, d.String(), d.Room)
	}
	if after := l.counts(); before != after {
		l.fail(obj, "the cluster was\n%sand is\n%s", before, after)
	}
	if (d.Node == "") != (fits == 0) && len(l.nodes) > 0 {
		l.fail(obj, "%d nodes fit, and the decision is %v", fits, d.String())
	}
	l.from = d.Next
	switch {
	case d.Node != "":
		l.place(obj, d.Node)
	case d.Room.Node != "":
		l.judgeRoom(obj, d.Room)
		l.promise(obj, d.Room)
	case len(l.nodes) > 0 && len(nearTerms(obj)) == 0 && l.c.Snapshot.Nomination(obj.UID) == "":
		for _, n := range l.nodes {
			less := l.without(func(v *corev1.Pod) bool { return v.Spec.NodeName == n.Name && important(v) < important(obj) })
			if l.refuses(less, obj, n) == "" {
				l.fail(obj, "the end of less important pods on node %s would help, but: %v", n.Name, d.String())
			}
		}
	}
}

// judgeRoom checks that the victims are on the node, of lower priority, and needed.
func (l *life) judgeRoom(obj *corev1.Pod, room plugin.Nomination) {
	n := l.nodes[slices.IndexFunc(l.nodes, func(n *corev1.Node) bool { return n.Name == room.Node })]
	gone, highest := map[types.UID]bool{}, int32(math.MinInt32)
	for _, v := range room.Victims {
		gone[v.UID], highest = true, max(highest, v.Priority())
		if v.Spec.NodeName != n.Name || v.Priority() >= important(obj) {
			l.fail(obj, "pod %s on node %s with priority %d is to make room on %s", v.Name, v.Spec.NodeName, v.Priority(), n.Name)
		}
	}
	less := l.without(func(p *corev1.Pod) bool { return gone[p.UID] })
	if why := l.refuses(less, obj, n); why != "" || len(gone) == 0 {
		l.fail(obj, "on node %s even without %v: %s", n.Name, gone, why)
	}
	if len(nearTerms(obj))+len(obj.Spec.TopologySpreadConstraints) > 0 {
		return // one pod less can be worse for it: what follows holds only where it cannot
	}
	for _, v := range room.Victims {
		if l.refuses(less.without(func(*corev1.Pod) bool { return false }, v.Pod), obj, n) == "" {
			l.fail(obj, "pod %s need not make room on node %s", v.Name, n.Name)
		}
	}
	for _, m := range l.nodes {
		lower := l.without(func(p *corev1.Pod) bool { return p.Spec.NodeName == m.Name && important(p) < highest })
		if l.refuses(lower, obj, m) == "" {
			l.fail(obj, "victims of a priority of %d on node %s, and node %s has lesser ones", highest, n.Name, m.Name)
		}
	}
}

// promise does what the loop does after a preemption: the victims end or are deleted, and the pod is nominated.
func (l *life) promise(obj *corev1.Pod, room plugin.Nomination) {
	for _, v := range room.Victims {
		if rapid.Bool().Draw(l.rt, "dies slowly") {
			dying := v.DeepCopy()
			dying.DeletionTimestamp = &metav1.Time{}
			l.place(dying, room.Node)
		} else {
			l.end(v.UID)
		}
	}
	l.promised = slices.DeleteFunc(l.promised, func(o *corev1.Pod) bool { return o.UID == obj.UID })
	p := obj.DeepCopy()
	l.c.Nominate(plugin.NewPod(p), room.Node)
	promised := p.DeepCopy()
	promised.Spec.NodeName = room.Node
	l.promised = append(l.promised, promised)
}

// counts returns the counts of each node as text.
func (l *life) counts() (s string) {
	for _, n := range l.c.Snapshot.Nodes() {
		var pods []string
		for _, p := range n.Pods {
			pods = append(pods, p.Name)
		}
		ports := slices.Clone(n.Ports)
		slices.Sort(pods)
		slices.SortFunc(ports, func(a, b plugin.HostPort) int { return int(a.Port - b.Port) })
		s += fmt.Sprintln(n.Name, pods, n.Requested, n.Presumed, ports, n.Owned, len(l.c.Snapshot.Nominated(n)))
	}
	return s
}

func (l *life) fail(p *corev1.Pod, format string, args ...any) {
	l.rt.Helper()
	w := plugintest.World{Nodes: l.nodes, Pods: l.pods, Pending: p, Namespaces: l.spaces}
	l.rt.Fatalf("pod %s: %s\npromised: %v\n%s", p.Name, fmt.Sprintf(format, args...), l.promised, w)
}
