package scheduling

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/internal/sorting"
	"github.com/sampan-io/sampan/scheduler"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// A judge decides with the plug-ins of one profile, and with each of its filters alone.
type judge struct {
	profile scheduler.Profile
	whole   *scheduler.Decider
	single  []*scheduler.Decider
	names   []string // of the filters
}

func newJudge(p scheduler.Profile) (*judge, error) {
	whole, err := scheduler.NewDecider(p.Plugins)
	if err != nil {
		return nil, err
	}
	j := &judge{profile: p, whole: whole}
	for _, e := range p.Plugins.Entries {
		if e.Points()&(plugin.AtPreFilter|plugin.AtFilter) == 0 {
			continue
		}
		e.Only = e.Points() & (plugin.AtPreFilter | plugin.AtFilter)
		d, err := scheduler.NewDecider(plugin.Set{Entries: []plugin.Entry{e}})
		if err != nil {
			return nil, err
		}
		j.single, j.names = append(j.single, d), append(j.names, e.Name())
	}
	return j, nil
}

// explain decides about a pod, and counts it where it goes.
func (j *judge) explain(ctx context.Context, c *plugin.Cluster, obj *corev1.Pod) (*explanation, error) {
	e := &explanation{
		APIVersion: apiVersion, Kind: "SchedulingExplanation",
		Namespace: obj.Namespace, Name: obj.Name, SchedulerName: obj.Spec.SchedulerName,
		Terminating: obj.DeletionTimestamp != nil,
		Nodes:       []nodeResult{}, Changes: []change{},
	}
	pod := plugin.NewPod(obj)
	if podstate.Finished(obj) {
		e.Phase = string(obj.Status.Phase)
	} else if obj.Spec.NodeName != "" { // E4
		e.On = &where{NodeName: obj.Spec.NodeName}
		anew := obj.DeepCopy()
		anew.Spec.NodeName = ""
		pod = plugin.NewPod(anew)
		c.Unplace(obj.UID)
	}
	for _, entry := range j.profile.Plugins.At(plugin.AtPreEnqueue) {
		if p, ok := entry.Plugin.(plugin.PreEnqueue); ok && e.On == nil {
			if v := p.PreEnqueue(pod); !v.OK() {
				e.Waiting = &waiting{entry.Name(), v.Reason}
				break
			}
		}
	}
	got := j.whole.Explain(ctx, c, pod)
	if got.Err != nil {
		return nil, got.Err
	}
	refusals, err := j.refusals(ctx, c, pod)
	if err != nil {
		return nil, err
	}
	e.NodeName, e.Fits, e.Message = got.Node, got.Node != "", got.String()
	if e.Fits {
		e.Message = "would be scheduled on " + got.Node
	}
	for _, n := range got.ByNode {
		e.Nodes = append(e.Nodes, nodeOf(&n, refusals[n.Node]))
	}
	if !e.Fits {
		e.Changes = changes(obj, c, e.Nodes)
		e.Preemption = preemptionOf(&got)
	}
	sorting.Stable(e.Nodes, func(a, b nodeResult) int {
		switch {
		case a.Fits != b.Fits:
			return map[bool]int{true: -1, false: 1}[a.Fits]
		case !a.Fits:
			return cmp.Or(a.effort.compare(b.effort), cmp.Compare(a.Name, b.Name))
		case a.Name == got.Node || b.Name == got.Node: // of several that are best one is chosen
			return map[bool]int{true: -1, false: 1}[a.Name == got.Node]
		}
		return cmp.Or(cmp.Compare(*b.Score, *a.Score), cmp.Compare(a.Name, b.Name))
	})
	switch {
	case e.On != nil:
		e.On.judge(e.Nodes)
		c.Place(plugin.NewPod(obj), obj.Spec.NodeName)
	case e.Fits && e.Waiting == nil && e.Phase == "":
		c.Place(pod, got.Node)
	}
	return e, nil
}

// refusals returns what filters refuse each node, each filter by itself (E3).
func (j *judge) refusals(ctx context.Context, c *plugin.Cluster, pod *plugin.Pod) (map[string][]refusal, error) {
	out := map[string][]refusal{}
	for i, d := range j.single {
		got := d.Explain(ctx, c, pod)
		if got.Err != nil {
			return nil, got.Err
		}
		for _, n := range got.ByNode {
			if n.Verdict.Refused() {
				out[n.Node] = append(out[n.Node], refusalOf(j.names[i], &n))
			}
		}
	}
	return out, nil
}

func refusalOf(name string, n *scheduler.NodeExplanation) refusal {
	r := refusal{Plugin: name, Final: n.Verdict.Code == plugin.Unresolvable, Reasons: []string{}}
	n.Verdict.Each(func(reason string) { r.Reasons = append(r.Reasons, reason) })
	for _, l := range n.Lacks {
		r.Lacks = append(r.Lacks, lackOf(l))
	}
	return r
}

// nodeOf converts the explanation of a node; the refusal that decided comes first.
func nodeOf(n *scheduler.NodeExplanation, refusals []refusal) nodeResult {
	out := nodeResult{Name: n.Node, Fits: n.Verdict.OK()}
	if out.Fits {
		out.Score = &n.Total
		for _, s := range n.Scores {
			out.Scores = append(out.Scores, score{s.Plugin, s.Score, max(s.Weight, 1)})
		}
		return out
	}
	out.Refusals = []refusal{refusalOf(n.Plugin, n)}
	for _, r := range refusals {
		if r.Plugin != n.Plugin {
			out.Refusals = append(out.Refusals, r)
		}
	}
	return out
}

func preemptionOf(e *scheduler.Explanation) *preemption {
	p := &preemption{Helps: e.Room.Node != "", NodeName: e.Room.Node, Message: e.After, Victims: []victim{}}
	for _, v := range e.Room.Victims {
		p.Victims = append(p.Victims, victim{v.Namespace, v.Name, v.Priority()})
	}
	return p
}

// judge records the present verdict about the node on which a pod is.
func (w *where) judge(nodes []nodeResult) {
	w.Message = "node not found"
	for _, n := range nodes {
		if n.Name == w.NodeName {
			w.Fits, w.Message = n.Fits, n.verdict()
		}
	}
}

// sentence says in one line where the pod would go, or why nowhere.
func (e *explanation) sentence() string {
	s := e.Namespace + "/" + e.Name + ": "
	switch {
	case e.On != nil && e.On.Fits:
		s += fmt.Sprintf("is on %s, and still fits there; scheduled again, ", e.On.NodeName)
	case e.On != nil:
		s += fmt.Sprintf("is on %s, and would not fit there now (%s); scheduled again, ", e.On.NodeName, e.On.Message)
	case e.Phase != "":
		s += "has finished (" + e.Phase + ") and is not scheduled again; an identical pod: "
	case e.Terminating:
		s += "is being deleted and is not scheduled again; an identical pod: "
	case e.Obstacle != "":
		s += e.Obstacle + "; without that: "
	case e.Unattended:
		s += fmt.Sprintf("spec.schedulerName is %q, and no scheduler with that name has processed it yet: is one running? If so: ", e.SchedulerName)
	case e.Waiting != nil:
		s += fmt.Sprintf("%s keeps it out of the scheduling queue: %s; without that: ", e.Waiting.Plugin, e.Waiting.Message)
	}
	return s + e.Message
}

// stuck reports whether the pod neither has a node nor gets one.
func (e *explanation) stuck() bool {
	return e.On == nil && (!e.Fits || e.Waiting != nil || e.Obstacle != "")
}
