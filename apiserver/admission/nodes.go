package admission

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TaintNodesByCondition gives new nodes the taint of nodes that are not ready, so that no pod is scheduled there before
// the node lifecycle controller has seen the node's conditions. That controller removes the taint.
//
// Upstream taints a node even if it is created with the condition Ready, and its controller removes that taint at once.
// Here such a node is not tainted: with 5,000 simulated nodes the second write of each would more than double the
// processor time of the start.
type TaintNodesByCondition struct{}

// Name implements [Plugin].
func (TaintNodesByCondition) Name() string { return "TaintNodesByCondition" }

// Admit implements [Mutator].
func (TaintNodesByCondition) Admit(_ context.Context, a *Attributes) error {
	node, ok := a.Object.(*corev1.Node)
	if !ok || a.Operation != Create || !a.is("nodes", "") || ready(node) {
		return nil
	}
	notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&notReady) }) {
		node.Spec.Taints = append(node.Spec.Taints, notReady)
	}
	return nil
}

func ready(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// PodTopologyLabels copies the zone and the region of a node to the labels of pods that are bound to it.
type PodTopologyLabels struct{ reader Reader }

// NewPodTopologyLabels returns the plug-in.
func NewPodTopologyLabels(r Reader) PodTopologyLabels { return PodTopologyLabels{r} }

// Name implements [Plugin].
func (PodTopologyLabels) Name() string { return "PodTopologyLabels" }

// Admit implements [Mutator].
func (p PodTopologyLabels) Admit(ctx context.Context, a *Attributes) error {
	if pod := a.createdPod(); pod != nil && pod.Spec.NodeName != "" {
		return p.label(ctx, pod.Spec.NodeName, &pod.Labels)
	}
	if b, ok := a.Object.(*corev1.Binding); ok && a.Operation == Create && a.is("pods", "binding") && b.Target.Kind == "Node" {
		return p.label(ctx, b.Target.Name, &b.Labels) // the labels of a Binding become those of the pod
	}
	return nil
}

// label adds the topology labels of a node. A node that does not exist has none.
func (p PodTopologyLabels) label(ctx context.Context, node string, labels *map[string]string) error {
	o, err := p.reader.Get(ctx, core("nodes"), "", node)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion} {
		value, ok := o.GetLabels()[key]
		if !ok {
			continue
		}
		if *labels == nil {
			*labels = map[string]string{}
		}
		(*labels)[key] = value
	}
	return nil
}
