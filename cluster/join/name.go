package join

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/names"
)

// A TakenError says that a living node of another machine has the name.
type TakenError struct{ Name string }

func (e *TakenError) Error() string {
	return fmt.Sprintf("a Node with name %q and status %q already exists in the cluster. You must delete the existing Node or change the name of this new joining Node with --node-name", e.Name, corev1.NodeReady)
}

// Taken returns a [*TakenError] if a Node is Ready and not that of the machine with this ID.
func Taken(node *corev1.Node, id string) error {
	ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	if ready && node.Annotations[names.Machine] != id {
		return &TakenError{node.Name}
	}
	return nil
}

// Own makes the Node of a name that of the machine with an ID: it creates initial if there is none, and marks it. If it is Ready
// and that of another machine, the error is a [*TakenError]. A Node without a mark is that of another machine, unless it was
// this one's before: then it has lost its mark.
//
// Networks are the pod networks of the node; nil means that the node was not this machine's before.
func Own(ctx context.Context, api client.Interface, node, initial *corev1.Node, id string, networks []netip.Prefix) error {
	if node == nil {
		node := initial.DeepCopy()
		node.Annotations = map[string]string{names.Machine: id}
		for _, n := range networks {
			node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, n.String())
			node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
		}
		_, err := client.Nodes.Create(ctx, api, node)
		if apierrors.IsAlreadyExists(err) {
			return nil // it will be seen
		}
		return err
	}
	mark := node.Annotations[names.Machine]
	if mark == id {
		return nil
	}
	if err := Taken(node, id); err != nil && (mark != "" || networks == nil) {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": node.UID, "resourceVersion": node.ResourceVersion, "annotations": map[string]string{names.Machine: id},
	}})
	if err == nil {
		_, err = client.Nodes.Patch(ctx, api, "", initial.Name, types.MergePatchType, patch, "")
	}
	return err
}
