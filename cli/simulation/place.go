package simulation

import (
	"cmp"
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/client"
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
// the order given; pods that name their node are there before. Services and what has pods are
// among others: they say which pods are to be spread. It returns the nodes as they are then.
func place(ctx context.Context, pods []*placement, objs []*corev1.Node, others []client.Object) ([]*plugin.Node, error) {
	decider, err := scheduler.NewDecider(builtin.Default())
	if err != nil {
		return nil, err
	}
	var c plugin.Cluster
	for _, obj := range objs {
		c.SetNode(obj)
	}
	SetOthers(&c, others)
	order := slices.Clone(pods)
	slices.SortStableFunc(order, func(a, b *placement) int {
		if x, y := a.pod.Spec.NodeName != "", b.pod.Spec.NodeName != ""; x != y {
			return map[bool]int{true: -1, false: 1}[x]
		}
		return cmp.Compare(priority(b.pod), priority(a.pod))
	})
	from := 0
	for _, p := range order {
		pod := plugin.NewPod(p.pod)
		if name := p.pod.Spec.NodeName; name != "" {
			if c.Snapshot.Node(name) == nil {
				p.why = "node " + name + " not found"
				continue
			}
			p.node = name
			c.Place(pod, name)
			continue
		}
		if len(p.pod.Spec.SchedulingGates) > 0 {
			p.why = "the pod has scheduling gates"
			continue
		}
		q := scheduler.Question{Pod: pod, From: from}
		d := decider.Decide(ctx, &c, q)
		from = d.Next
		if d.Node == "" {
			p.why = d.String()
			continue
		}
		p.node = d.Node
		c.Place(pod, d.Node)
	}
	nodes := make([]*plugin.Node, len(objs))
	for i, obj := range objs {
		nodes[i] = c.Snapshot.Node(obj.Name)
	}
	return nodes, nil
}

// SetOthers adds the objects to a cluster that decide how pods are spread: Services and controllers.
func SetOthers(c *plugin.Cluster, others []client.Object) {
	for _, obj := range others {
		switch obj.(type) {
		case *corev1.Service:
			c.SetObject(client.Services.GroupVersionResource, obj)
		case *corev1.ReplicationController:
			c.SetObject(client.ReplicationControllers.GroupVersionResource, obj)
		case *appsv1.ReplicaSet:
			c.SetObject(client.ReplicaSets.GroupVersionResource, obj)
		case *appsv1.StatefulSet:
			c.SetObject(client.StatefulSets.GroupVersionResource, obj)
		}
	}
}

func priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}
