package plugintest

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// Laws checks on random worlds that a plug-in keeps the laws of package plugin. A plug-in that looks at other
// objects is given none of them.
func Laws(t *testing.T, p plugin.Plugin) {
	t.Helper()
	LawsIn(t, p, Worlds())
}

// LawsIn is [Laws] in worlds of the caller's.
func LawsIn(t *testing.T, p plugin.Plugin, worlds *rapid.Generator[World]) {
	t.Helper()
	if err := (plugin.Set{Entries: []plugin.Entry{{Plugin: p}}}).Validate(); err != nil {
		t.Fatal(err)
	}
	for _, law := range []struct {
		name  string
		holds func(t *rapid.T, p plugin.Plugin, w World)
	}{
		{"checks and scorers have methods of the right signatures", declared},
		{"P1 changes nothing", changesNothing},
		{"P2 decides by its arguments alone", pure},
		{"P3 filter and score see what the signature covers", local},
		{"P4 a check follows the snapshot", follows},
		{"P5 refusals name no node", impersonal},
		{"P6 scores are in range", inRange},
		{"hints miss nothing", hintsMissNothing},
	} {
		t.Run(law.name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				w := worlds.Draw(rt, "world")
				law.holds(rt, p, w)
			})
		})
	}
}

// answers are a plug-in's results for a pod: by node, and its scores by node.
type answers struct {
	Before   plugin.Verdict
	Verdicts map[string]plugin.Verdict
	Scores   map[string]int64 // normalised; of the nodes that it does not refuse
	Less     [2]bool
}

// asked is a plug-in with a pod in a cluster.
type asked struct {
	p     plugin.Plugin
	pod   *plugin.Pod
	c     *plugin.Cluster
	check plugin.Check
	v     plugin.Verdict
}

func ask(p plugin.Plugin, pod *plugin.Pod, c *plugin.Cluster) *asked {
	a := &asked{p: p, pod: pod, c: c}
	if f, ok := p.(plugin.PreFilter); ok {
		a.check, a.v = f.PreFilter(context.Background(), pod, &c.Snapshot)
	}
	return a
}

// of is the verdict on a node, as the scheduler comes to it.
func (a *asked) of(n *plugin.Node) plugin.Verdict {
	switch {
	case a.v.Code == plugin.Skipped:
		return plugin.Verdict{}
	case !a.v.OK():
		return a.v
	}
	if narrower, ok := a.check.(plugin.Narrower); ok {
		if names, narrow := narrower.Narrow(); narrow && !slices.Contains(names, n.Name) {
			return plugin.Never("narrowed out")
		}
	}
	if a.check != nil {
		return a.check.Filter(n)
	}
	if f, ok := a.p.(plugin.Filter); ok {
		return f.Filter(a.pod, n)
	}
	return plugin.Verdict{}
}

func (a *asked) all() answers {
	out := answers{Before: a.v, Verdicts: map[string]plugin.Verdict{}, Scores: map[string]int64{}}
	var fit []*plugin.Node
	for _, n := range a.c.Snapshot.Nodes() {
		v := a.of(n)
		if out.Verdicts[n.Name] = v; v.OK() {
			fit = append(fit, n)
		}
	}
	for i, s := range a.scores(fit) {
		out.Scores[fit[i].Name] = s
	}
	if q, ok := a.p.(plugin.QueueSort); ok {
		other := plugin.NewPod(&corev1.Pod{})
		out.Less = [2]bool{q.Less(&plugin.Queued{Pod: a.pod}, &plugin.Queued{Pod: other}), q.Less(&plugin.Queued{Pod: other}, &plugin.Queued{Pod: a.pod})}
	}
	return out
}

// scores returns normalised scores, or nil if the plug-in gives none.
func (a *asked) scores(fit []*plugin.Node) []int64 {
	if len(fit) == 0 {
		return nil
	}
	var scorer any = a.p
	each := func(*plugin.Node) int64 { return 0 }
	if s, ok := a.p.(plugin.Score); ok {
		each = func(n *plugin.Node) int64 { return s.Score(a.pod, n) }
	}
	if p, ok := a.p.(plugin.PreScore); ok {
		s, v := p.PreScore(context.Background(), a.pod, &a.c.Snapshot, fit)
		if !v.OK() {
			return nil
		}
		if s != nil {
			scorer, each = s, s.Score
		}
	} else if _, ok := a.p.(plugin.Score); !ok {
		return nil
	}
	scores := make([]int64, len(fit))
	for i, n := range fit {
		scores[i] = each(n)
	}
	if n, ok := scorer.(plugin.Normalizer); ok {
		n.Normalize(fit, scores)
	}
	return scores
}

func differ(t *rapid.T, w World, what string, a, b answers) {
	if diff := cmp.Diff(a, b, cmp.Comparer(func(a, b error) bool { return a == b })); diff != "" { //nolint:errorlint // or one is nil
		t.Fatalf("%s:\n%s\n%s", what, diff, w)
	}
}

func declared(t *rapid.T, p plugin.Plugin, w World) {
	if err := misdeclared(p, w); err != nil {
		t.Fatalf("%v\n%s", err, w)
	}
}

// misdeclared returns an error for methods of the check and the scorer of a plug-in that the scheduler would not call.
func misdeclared(p plugin.Plugin, w World) error {
	c := w.Cluster(false)
	a := ask(p, plugin.NewPod(w.Pending), c)
	if a.check != nil {
		if err := plugin.ValidateCheck(a.check); err != nil {
			return fmt.Errorf("PreFilter returns a %T: %w", a.check, err)
		}
	}
	if _, asks := p.(plugin.PreFilter); asks && a.check == nil && a.v.OK() {
		if err := plugin.ValidateNoCheck(p); err != nil {
			return err
		}
	}
	if scorer := a.scorer(c.Snapshot.Nodes()); scorer != nil {
		if err := plugin.ValidateScorer(scorer); err != nil {
			return fmt.Errorf("PreScore returns a %T: %w", scorer, err)
		}
	}
	return nil
}

// scorer returns what PreScore returns, or nil.
func (a *asked) scorer(nodes []*plugin.Node) plugin.Scorer {
	p, ok := a.p.(plugin.PreScore)
	if !ok || len(nodes) == 0 {
		return nil
	}
	s, v := p.PreScore(context.Background(), a.pod, &a.c.Snapshot, nodes)
	if !v.OK() {
		return nil
	}
	return s
}

func changesNothing(t *rapid.T, p plugin.Plugin, w World) {
	c := w.Cluster(false)
	before := fingerprint(c)
	pending := w.Pending.DeepCopy()
	ask(p, plugin.NewPod(w.Pending), c).all()
	if after := fingerprint(c); before != after {
		t.Fatalf("the cluster changed: %s\n%s", cmp.Diff(before, after), w)
	}
	if diff := cmp.Diff(pending, w.Pending); diff != "" {
		t.Fatalf("the pod changed: %s\n%s", diff, w)
	}
}

// fingerprint returns everything that a plug-in could change as text.
func fingerprint(c *plugin.Cluster) string {
	var b strings.Builder
	for _, n := range c.Snapshot.Nodes() {
		names := []string{}
		for _, p := range n.Pods {
			names = append(names, fmt.Sprintf("%s %v %v", p.String(), p.Requests, p.Ports))
		}
		slices.Sort(names)
		fmt.Fprintln(&b, n.String(), n.Allocatable, n.Requested, n.Presumed, n.Ports, n.Owned, n.Images, names, n.Generation())
	}
	return b.String()
}

func pure(t *rapid.T, p plugin.Plugin, w World) {
	pod := plugin.NewPod(w.Pending)
	c := w.Cluster(false)
	first := ask(p, pod, c).all()
	differ(t, w, "asked twice, it answers otherwise", first, ask(p, pod, c).all())
	differ(t, w, "the order in which objects came makes a difference", first, ask(p, plugin.NewPod(w.Pending), w.Cluster(true)).all())
	other := rapid.Custom(func(t *rapid.T) *corev1.Pod { return randomPod(t, "between") }).Draw(t, "between")
	ask(p, plugin.NewPod(other), c).all()
	differ(t, w, "a question about another pod makes a difference", first, ask(p, pod, c).all())
}

func local(t *rapid.T, p plugin.Plugin, w World) {
	twin := w.Pending.DeepCopy()
	twin.Name, twin.UID, twin.Annotations = "twin", "twin", map[string]string{"a": "b"}
	twin.Status = corev1.PodStatus{Message: "x"}
	twin.Spec.Containers[0].Command = []string{"x"}
	a, b := plugin.NewPod(w.Pending), plugin.NewPod(twin)
	if a.Signature() != b.Signature() {
		t.Fatalf("the signatures of twins differ\n%s", w)
	}
	whole := w.Cluster(false)
	for _, n := range whole.Snapshot.Nodes() {
		// The same node, but nothing else, in another cluster.
		alone := &plugin.Cluster{}
		alone.SetNode(n.Node)
		for _, p := range n.Pods {
			alone.Place(p, n.Name)
		}
		m := alone.Snapshot.Node(n.Name)
		if f, ok := p.(plugin.Filter); ok {
			if diff := cmp.Diff(f.Filter(a, n), f.Filter(b, m)); diff != "" {
				t.Fatalf("Filter on node %s differs for a twin, or without the other nodes:\n%s\n%s", n.Name, diff, w)
			}
		}
		if s, ok := p.(plugin.Score); ok {
			if x, y := s.Score(a, n), s.Score(b, m); x != y {
				t.Fatalf("Score of node %s is %d, and %d for a twin or without the other nodes\n%s", n.Name, x, y, w)
			}
		}
	}
}

func follows(t *rapid.T, p plugin.Plugin, w World) {
	if len(w.Pods) == 0 {
		return
	}
	pod := plugin.NewPod(w.Pending)
	c := w.Cluster(false)
	a := ask(p, pod, c)
	if a.check == nil {
		return
	}
	before := a.all().Verdicts
	victim := rapid.SampledFrom(w.Pods).Draw(t, "victim")
	placed, node, _ := c.Snapshot.Placed(victim.UID)
	try := c.WhatIf()
	try.Remove(placed, node)
	follower, _ := a.check.(plugin.Follower)
	if follower != nil {
		follower.PodRemoved(placed, c.Snapshot.Node(node))
	}
	without := w
	without.Pods = slices.DeleteFunc(slices.Clone(w.Pods), func(p *corev1.Pod) bool { return p == victim })
	fresh := ask(p, pod, without.Cluster(false))
	if fresh.v.OK() {
		compareVerdicts(t, w, "without pod "+victim.Name, codes(fresh.all().Verdicts), codes(a.all().Verdicts))
	}
	try.Add(placed, node)
	if follower != nil {
		follower.PodAdded(placed, c.Snapshot.Node(node))
	}
	compareVerdicts(t, w, "with pod "+victim.Name+" back", before, a.all().Verdicts)

	// And one more, as if it were promised room.
	extra := plugin.NewPod(rapid.Custom(func(t *rapid.T) *corev1.Pod { return randomPod(t, "extra") }).Draw(t, "extra"))
	on := rapid.SampledFrom(w.Nodes).Draw(t, "extra on").Name
	try.Add(extra, on)
	if follower != nil {
		follower.PodAdded(extra, c.Snapshot.Node(on))
	}
	more := extra.DeepCopy()
	more.Spec.NodeName = on
	with := w
	with.Pods = append(slices.Clone(w.Pods), more)
	if fresh := ask(p, pod, with.Cluster(false)); fresh.v.OK() {
		compareVerdicts(t, w, "with one more pod on "+on+": "+extra.String(), codes(fresh.all().Verdicts), codes(a.all().Verdicts))
	}
	try.Undo()
	if follower != nil {
		follower.PodRemoved(extra, c.Snapshot.Node(on))
	}
	compareVerdicts(t, w, "in the end", before, a.all().Verdicts)
}

// codes leaves of verdicts whether they are a yes.
func codes(m map[string]plugin.Verdict) map[string]plugin.Verdict {
	out := map[string]plugin.Verdict{}
	for n, v := range m {
		out[n] = plugin.Verdict{Code: v.Code}
	}
	return out
}

func compareVerdicts(t *rapid.T, w World, when string, want, got map[string]plugin.Verdict) {
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s the check answers otherwise than a new one would:\n%s\n%s", when, diff, w)
	}
}

func impersonal(t *rapid.T, p plugin.Plugin, w World) {
	all := ask(p, plugin.NewPod(w.Pending), w.Cluster(false)).all()
	for node, v := range all.Verdicts {
		v.Each(func(reason string) {
			if slices.Contains(strings.FieldsFunc(reason, func(r rune) bool { return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9') }), node) {
				t.Fatalf("the refusal %q names its node\n%s", reason, w)
			}
		})
	}
}

func inRange(t *rapid.T, p plugin.Plugin, w World) {
	for node, s := range ask(p, plugin.NewPod(w.Pending), w.Cluster(false)).all().Scores {
		if s < 0 || s > plugin.MaxScore {
			t.Fatalf("node %s has score %d\n%s", node, s, w)
		}
	}
}

// hintsMissNothing refuses a pod, changes one thing, and where that made a node fit, one of the hints must
// have said so.
func hintsMissNothing(t *rapid.T, p plugin.Plugin, w World) {
	h, ok := p.(plugin.Hinter)
	if !ok {
		return // a Follower is called for every change
	}
	if !reflect.DeepEqual(len(h.Hints()), len(h.Hints())) {
		t.Fatal("the hints differ from call to call")
	}
	pod := plugin.NewPod(w.Pending)
	c := w.Cluster(false)
	before := ask(p, pod, c).all().Verdicts
	var change plugin.Change
	kinds := []string{"node", "pod ends", "pod comes", "node comes"}
	if len(w.Changes) > 0 {
		kinds = append(kinds, "object", "object")
	}
	switch kind := rapid.SampledFrom(kinds).Draw(t, "what changes"); kind {
	case "object":
		obj := rapid.SampledFrom(w.Changes).Draw(t, "which object")
		change = plugin.Change{Resource: resourceOf(obj), Action: plugin.Added, Object: obj}
		for _, old := range w.Objects {
			if resourceOf(old) == change.Resource && old.GetNamespace() == obj.GetNamespace() && old.GetName() == obj.GetName() {
				change.Action, change.OldObject = plugin.Updated, old
			}
		}
		switch {
		case obj.GetDeletionTimestamp() == nil:
			c.SetObject(change.Resource, obj)
		case change.OldObject == nil:
			return
		default:
			change.Action, change.Object = plugin.Deleted, nil
			c.DropObject(change.Resource, obj.GetNamespace(), obj.GetName())
		}
	case "node":
		old := rapid.SampledFrom(w.Nodes).Draw(t, "which")
		fresh := rapid.Custom(func(t *rapid.T) *corev1.Node { return randomNode(t, old.Name) }).Draw(t, "node")
		change = plugin.NodeChange(old, fresh)
		c.SetNode(fresh)
	case "node comes":
		fresh := rapid.Custom(func(t *rapid.T) *corev1.Node { return randomNode(t, "fresh") }).Draw(t, "node")
		change = plugin.NodeChange(nil, fresh)
		c.SetNode(fresh)
	case "pod ends":
		if len(w.Pods) == 0 {
			return
		}
		placed, _, _ := c.Snapshot.Placed(rapid.SampledFrom(w.Pods).Draw(t, "which").UID)
		change = plugin.Change{Resource: client.Pods.GroupVersionResource, Action: plugin.Deleted, OldPod: placed}
		c.Unplace(placed.UID)
	case "pod comes":
		obj := rapid.Custom(func(t *rapid.T) *corev1.Pod { return randomPod(t, "fresh") }).Draw(t, "pod")
		obj.Spec.NodeName = rapid.SampledFrom(w.Nodes).Draw(t, "on").Name
		fresh := plugin.NewPod(obj)
		change = plugin.Change{Resource: client.Pods.GroupVersionResource, Action: plugin.Added, Pod: fresh}
		c.Place(fresh, obj.Spec.NodeName)
	}
	after := ask(p, pod, c).all().Verdicts
	for node, v := range after {
		if old, was := before[node]; v.OK() && (!was || !old.OK()) && !allOK(before) && !plugin.Helps(h, pod, change) {
			t.Fatalf("after %v of %s node %s fits (it was %v), but no hint says so\n%s", change.Action, change.Resource.Resource, node, old, w)
		}
	}
}

// allOK reports whether the plug-in refused nothing: then it is not asked for hints.
func allOK(m map[string]plugin.Verdict) bool {
	for _, v := range m {
		if !v.OK() {
			return false
		}
	}
	return true
}
