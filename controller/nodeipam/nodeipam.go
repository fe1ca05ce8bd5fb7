package nodeipam

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/run"
)

// Loop is the name of the controller's loop.
const Loop = "node-ipam-controller"

// retryConflict is after how long a node whose networks were given to another one gets others: the cache shows the
// other one by then.
const retryConflict = time.Second

// Options configures the controller. Client and Networks are required.
type Options struct {
	controller.Config
	Pool
}

// A Pool is what Nodes get their networks from.
type Pool struct {
	// Networks are the pod networks of the cluster, at most one of each IP family, the primary one first.
	Networks []Network

	// Reserved are networks that are given to no Node: the part of a node that has not registered yet.
	Reserved []netip.Prefix
}

// ipam gives Nodes their networks. One worker does, so its choice is known before the next Node gets something.
type ipam struct {
	client   client.Interface
	nodes    *cache.Cache[*corev1.Node]
	events   *client.Recorder
	networks []Network
	reserved []netip.Prefix
}

// Tasks returns the controller. Its tasks must run together, as one stage.
func Tasks(opts Options) []run.Task {
	config, caches := opts.WithDefaults()
	config = config.For("node-controller")
	c := &ipam{
		client: config.Client, nodes: cache.Of(config.Caches, client.Nodes, nil),
		events:   client.NewRecorder(config.Client, "cidrAllocator", "", config.Log),
		networks: opts.Networks, reserved: opts.Reserved,
	}
	loop := controller.New(controller.Options{
		Name: Loop, Reconcile: c.reconcile, Workers: 1, Log: config.Log, Needs: []<-chan struct{}{c.nodes.Ready()},
	})
	c.nodes.Subscribe(func(before, after *corev1.Node) {
		switch {
		case after != nil && len(after.Spec.PodCIDRs) == 0:
			loop.Add(controller.KeyOf(after))
		case after == nil && len(before.Spec.PodCIDRs) > 0: // its part is free
			for _, node := range c.nodes.List("") {
				if len(node.Spec.PodCIDRs) == 0 {
					loop.Add(controller.KeyOf(node))
				}
			}
		}
	})
	return []run.Task{caches, {Name: "events of the node IPAM controller", Run: c.events.Run}, loop.Task()}
}

func (c *ipam) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	node, ok := c.nodes.Get("", key.Name)
	if !ok || node.DeletionTimestamp != nil || len(node.Spec.PodCIDRs) > 0 {
		return controller.Result{}, nil
	}
	used := slices.Clone(c.reserved)
	for _, n := range c.nodes.List("") {
		used = append(used, usedBy(n)...)
	}
	found, ok := free(c.networks, used)
	if !ok {
		c.events.EventFor(corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}, corev1.EventTypeNormal,
			"CIDRNotAvailable", "Node %s status is now: CIDRNotAvailable", node.Name)
		return controller.Result{}, nil // the deletion of a node wakes it
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": node.UID}, "spec": map[string]any{"podCIDR": found[0], "podCIDRs": found},
	})
	if err != nil {
		return controller.Result{}, err
	}
	now, err := client.Nodes.Patch(ctx, c.client, "", node.Name, types.StrategicMergePatchType, patch, "")
	switch {
	case apierrors.IsNotFound(err):
		return controller.Result{}, nil
	case apierrors.IsConflict(err):
		// It is another node by now, or a node that is not in the cache yet has got one of the networks.
		return controller.Result{After: retryConflict}, nil
	case err != nil:
		return controller.Result{}, fmt.Errorf("failed to update node %s with its pod networks: %w", node.Name, err)
	}
	return controller.Result{}, c.nodes.Await(ctx, now.ResourceVersion)
}
