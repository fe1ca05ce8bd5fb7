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

// A TakenError says that the Node of another machine has the name.
type TakenError struct {
	Name   string
	Status string // Ready, NotReady or Unknown
}

// Error has kubeadm's words. Kubeadm refuses only the names of nodes that are Ready.
func (e *TakenError) Error() string {
	return fmt.Sprintf("a Node with name %q and status %q already exists in the cluster. You must delete the existing Node or change the name of this new joining Node with --node-name", e.Name, e.Status)
}

// Taken returns a [*TakenError] unless a Node is that of the machine with this ID. Whether it is Ready does not matter: a
// machine that is off for a while is still the node, and comes back with the pods and the rights of it.
func Taken(node *corev1.Node, id string) error {
	if node.Annotations[names.Machine] == id {
		return nil
	}
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	switch {
	case i < 0:
		return &TakenError{node.Name, "Unknown"}
	case node.Status.Conditions[i].Status == corev1.ConditionTrue:
		return &TakenError{node.Name, "Ready"}
	}
	return &TakenError{node.Name, "NotReady"}
}

// Own makes sure that the Node of a name is that of the machine with an ID, and reports whether it is. Without a Node it creates
// initial, with a mark. Of two machines that do that at once one creates it, and the other one gets a [*TakenError] when
// it sees that Node. A Node without a mark has lost it if this machine was the node before, and gets it back;
// otherwise it is another machine's.
//
// Networks are the pod networks of the node; nil means that the machine was not the node before.
func Own(ctx context.Context, api client.Interface, node, initial *corev1.Node, id string, networks []netip.Prefix) (bool, error) {
	if node == nil {
		node := initial.DeepCopy()
		node.Annotations = map[string]string{names.Machine: id}
		for _, n := range networks {
			node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, n.String())
			node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
		}
		_, err := client.Nodes.Create(ctx, api, node)
		if apierrors.IsAlreadyExists(err) {
			return false, nil // it will be seen
		}
		return err == nil, err
	}
	mark := node.Annotations[names.Machine]
	switch {
	case mark == id:
		return true, nil
	case mark != "" || networks == nil:
		return false, Taken(node, id)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": node.UID, "resourceVersion": node.ResourceVersion, "annotations": map[string]string{names.Machine: id},
	}})
	if err == nil {
		_, err = client.Nodes.Patch(ctx, api, "", initial.Name, types.MergePatchType, patch, "")
	}
	return err == nil, err
}
