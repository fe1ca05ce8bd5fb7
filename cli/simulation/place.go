package simulation

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/scheduler"
	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// A placement is a pod and where it goes.
type placement struct {
	pod   *corev1.Pod
	owner string // the object that it comes of
	node  string // empty: nowhere, and why
	why   string
}

// place decides for one pod after the other, those of higher priority first, and else in
// the order given; pods that name their node are there before. It returns the nodes as
// they are then.
func place(pods []*placement, objs []*corev1.Node) []*plugin.Node {
	nodes := make([]*plugin.Node, len(objs))
	byName := make(map[string]*plugin.Node, len(objs))
	for i, obj := range objs {
		nodes[i] = &plugin.Node{}
		nodes[i].Set(obj)
		byName[obj.Name] = nodes[i]
	}
	order := slices.Clone(pods)
	slices.SortStableFunc(order, func(a, b *placement) int {
		if x, y := a.pod.Spec.NodeName != "", b.pod.Spec.NodeName != ""; x != y {
			return map[bool]int{true: -1, false: 1}[x]
		}
		return cmp.Compare(priority(b.pod), priority(a.pod))
	})
	set, from := builtin.Default(), 0
	for _, p := range order {
		pod := plugin.NewPod(p.pod)
		if name := p.pod.Spec.NodeName; name != "" {
			if n := byName[name]; n != nil {
				p.node = name
				n.Add(pod)
			} else {
				p.why = "there is no node " + name
			}
			continue
		}
		if len(p.pod.Spec.SchedulingGates) > 0 {
			p.why = "it has scheduling gates"
			continue
		}
		d := scheduler.Decide(set, pod, nodes, from)
		from = d.Next
		if d.Node == "" {
			p.why = d.String()
			continue
		}
		p.node = d.Node
		byName[d.Node].Add(pod)
	}
	return nodes
}

func priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}
