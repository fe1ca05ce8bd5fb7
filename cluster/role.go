package cluster

import (
	"context"
	"encoding/json"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/internal/run"
)

// controlPlaneRole is the label by which kubeadm, kind and k3s mark the nodes of the control plane: `kubectl get nodes` shows it as a role.
const controlPlaneRole = "node-role.kubernetes.io/control-plane"

// A roleLabel gives the Node of this host the role of the control plane. The agent of the node could not: NodeRestriction keeps roles from
// nodes. There is no taint with it, because pods run on this node.
type roleLabel struct {
	api   client.Interface // may patch Nodes
	nodes *cache.Cache[*corev1.Node]
	name  string
	log   *slog.Logger

	changed  run.Bell      // the Node may be another one
	labelled chan struct{} // closed when that was tried for the first time
}

func newRoleLabel(api client.Interface, caches *cache.Shared, name string, log *slog.Logger) *roleLabel {
	r := &roleLabel{
		api: api, nodes: cache.Of[*corev1.Node](caches, client.Nodes, nil), name: name, log: log,
		changed: run.NewBell(), labelled: make(chan struct{}),
	}
	r.nodes.Subscribe(func(before, after *corev1.Node) {
		if after == nil || after.Name != name || before != nil && before.UID == after.UID {
			return
		}
		r.changed.Ring()
	})
	return r
}

// task returns the part that labels the Node.
func (r *roleLabel) task() run.Task {
	return run.Task{Name: "role of the node", Run: r.run, Ready: r.labelled}
}

// run labels the Node once, and each Node that takes its place, until ctx is cancelled. A label that is removed meanwhile stays removed
// until the next start. Failures are logged: nothing depends on the label.
func (r *roleLabel) run(ctx context.Context) error {
	for first := true; ; first = false {
		select {
		case <-r.changed:
		case <-ctx.Done():
			return nil
		}
		if err := r.label(ctx); err != nil && ctx.Err() == nil {
			r.log.WarnContext(ctx, "the node does not have the role of the control plane", "node", r.name, "err", err)
		}
		if first {
			close(r.labelled)
		}
	}
}

func (r *roleLabel) label(ctx context.Context) error {
	node, ok := r.nodes.Get("", r.name)
	if !ok {
		return nil // it was deleted, and the next one is noticed
	}
	if _, has := node.Labels[controlPlaneRole]; has {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": node.UID, "labels": map[string]string{controlPlaneRole: ""}}})
	if err != nil {
		return err
	}
	_, err = client.Nodes.Patch(ctx, r.api, "", r.name, types.MergePatchType, patch, "")
	return err
}
