package admission

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/internal/podresources"
)

// PodResizeValidator refuses a resize of a pod to more than its node could ever give it. A resize to more than the node has
// left is not refused: the node defers it.
type PodResizeValidator struct{ reader Reader }

// NewPodResizeValidator returns the plug-in.
func NewPodResizeValidator(r Reader) PodResizeValidator { return PodResizeValidator{r} }

// Name implements [Plugin].
func (PodResizeValidator) Name() string { return "PodResizeValidator" }

// The types of the causes of refusals, which clients can check.
const (
	nodeCapacity        metav1.CauseType = "NodeCapacity"
	unsupportedPlatform metav1.CauseType = "UnsupportedPlatform"
)

// Validate implements [Validator].
func (p PodResizeValidator) Validate(ctx context.Context, a *Attributes) error {
	if a.Operation != Update || !a.is("pods", "resize") {
		return nil
	}
	pod, old, ok := boundPods(a)
	if !ok || equality.Semantic.DeepEqual(pod.Spec, old.Spec) {
		return nil
	}
	node, err := nodeOf(ctx, p.reader, a, pod)
	if err != nil {
		return err
	}
	// A node without the label is taken for a Linux node.
	if system, ok := node.Labels[corev1.LabelOSStable]; ok && system != string(corev1.Linux) {
		return because(refuse(a, "pod resize is only supported on linux nodes, node %q is %q", node.Name, system), unsupportedPlatform)
	}
	if lacks := beyond(pod, node.Status.Allocatable); lacks != "" {
		return because(refuse(a, "node didn't have enough allocatable resources: %s", lacks), nodeCapacity)
	}
	return nil
}

// boundPods returns both states of a pod that has a node and that a updates; ok is false if it has none, or if a is about
// something else.
func boundPods(a *Attributes) (pod, old *corev1.Pod, ok bool) {
	pod, isPod := a.Object.(*corev1.Pod)
	old, wasPod := a.Old.(*corev1.Pod)
	if !isPod || !wasPod {
		return nil, nil, false
	}
	return pod, old, pod.Spec.NodeName != ""
}

// nodeOf returns the node of a pod; its error refuses a.
func nodeOf(ctx context.Context, r Reader, a *Attributes, pod *corev1.Pod) (*corev1.Node, error) {
	o, err := r.Get(ctx, core("nodes"), "", pod.Spec.NodeName)
	if apierrors.IsNotFound(err) {
		return nil, refuse(a, "node %q not found", pod.Spec.NodeName)
	}
	if err != nil {
		return nil, err
	}
	node, ok := o.(*corev1.Node)
	if !ok {
		return nil, fmt.Errorf("nodes/%s is a %T", pod.Spec.NodeName, o)
	}
	return node, nil
}

// because adds a cause to a refusal.
func because(err *apierrors.StatusError, cause metav1.CauseType) error {
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause})
	return err
}

// beyond lists the CPU and memory that a pod requests beyond what a node can allocate; "" means none.
func beyond(pod *corev1.Pod, allocatable corev1.ResourceList) string {
	requests := podresources.Requests(pod, podresources.Options{})
	var lacks []string
	if asked, has := requests.Cpu(), allocatable.Cpu(); asked.Cmp(*has) > 0 {
		lacks = append(lacks, fmt.Sprintf("cpu, requested: %d, allocatable: %d", asked.MilliValue(), has.MilliValue()))
	}
	if asked, has := requests.Memory(), allocatable.Memory(); asked.Cmp(*has) > 0 {
		lacks = append(lacks, fmt.Sprintf("memory, requested: %d, allocatable: %d", asked.Value(), has.Value()))
	}
	return strings.Join(lacks, "; ")
}
