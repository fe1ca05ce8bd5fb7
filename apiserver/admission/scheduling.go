package admission

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Priority turns the name of a pod's priority class into the number that
// schedulers compare, and gives pods that name none the class that is the default, if there is
// one. It sees to it that there is one default at most.
type Priority struct{ reader Reader }

// NewPriority returns the plug-in.
func NewPriority(r Reader) Priority { return Priority{r} }

// Name implements [Plugin].
func (Priority) Name() string { return "Priority" }

// Admit implements [Mutator].
func (p Priority) Admit(ctx context.Context, a *Attributes) error {
	if class, ok := a.Object.(*schedulingv1.PriorityClass); ok {
		return p.admitClass(ctx, a, class)
	}
	if a.Operation == Update && a.is("pods", "") {
		pod, ok := a.Object.(*corev1.Pod)
		old, had := a.Old.(*corev1.Pod)
		if ok && had {
			if pod.Spec.Priority == nil {
				pod.Spec.Priority = clone(old.Spec.Priority)
			}
			if pod.Spec.PreemptionPolicy == nil {
				pod.Spec.PreemptionPolicy = clone(old.Spec.PreemptionPolicy)
			}
		}
		return nil
	}
	pod := a.createdPod()
	if pod == nil {
		return nil
	}
	class, err := p.class(ctx, pod.Spec.PriorityClassName)
	if apierrors.IsNotFound(err) {
		return refuse(a, "no PriorityClass with name %v was found", pod.Spec.PriorityClassName)
	}
	if err != nil {
		return refuse(a, "looking up PriorityClass %v: %w", pod.Spec.PriorityClassName, err)
	}
	priority, policy := class.Value, corev1.PreemptLowerPriority
	if class.PreemptionPolicy != nil {
		policy = *class.PreemptionPolicy
	}
	if p := pod.Spec.Priority; p != nil && *p != priority {
		return refuse(a, "the integer value of priority (%d) must not be provided in pod spec; priority admission controller computed %d from the given PriorityClass name", *p, priority)
	}
	if p := pod.Spec.PreemptionPolicy; p != nil && *p != policy {
		return refuse(a, "the string value of PreemptionPolicy (%s) must not be provided in pod spec; priority admission controller computed %s from the given PriorityClass name", *p, policy)
	}
	pod.Spec.PriorityClassName, pod.Spec.Priority, pod.Spec.PreemptionPolicy = class.Name, &priority, &policy
	return nil
}

// class returns a class by name, or the default one, or one without a name and of no importance.
func (p Priority) class(ctx context.Context, name string) (*schedulingv1.PriorityClass, error) {
	if name != "" {
		o, err := p.reader.Get(ctx, priorityClasses(), "", name)
		if err != nil {
			return nil, err
		}
		class, ok := o.(*schedulingv1.PriorityClass)
		if !ok {
			return nil, fmt.Errorf("it is a %T", o)
		}
		return class, nil
	}
	all, err := p.reader.List(ctx, priorityClasses(), "", nil)
	if err != nil {
		return nil, err
	}
	best := &schedulingv1.PriorityClass{}
	for _, o := range all {
		// There may be two if both were made at the same moment: the less important one counts.
		if c, ok := o.(*schedulingv1.PriorityClass); ok && c.GlobalDefault && (best.Name == "" || c.Value < best.Value) {
			best = c
		}
	}
	return best, nil
}

func (p Priority) admitClass(ctx context.Context, a *Attributes, class *schedulingv1.PriorityClass) error {
	if !class.GlobalDefault || a.Operation != Create && a.Operation != Update {
		return nil
	}
	now, err := p.class(ctx, "")
	if err != nil {
		return refuse(a, "looking up the default PriorityClass: %w", err)
	}
	if now.Name != "" && now.Name != class.Name {
		return refuse(a, "PriorityClass %v is already marked as default. Only one default can exist", now.Name)
	}
	return nil
}

func priorityClasses() schema.GroupVersionResource {
	return schedulingv1.SchemeGroupVersion.WithResource("priorityclasses")
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// DefaultTolerationSeconds lets pods stay for five minutes on a node that is not ready or cannot be
// reached, unless the pod says something else. It acts on updates too: if a client replaces all
// tolerations, the added ones are kept.
type DefaultTolerationSeconds struct{}

// Name implements [Plugin].
func (DefaultTolerationSeconds) Name() string { return "DefaultTolerationSeconds" }

// Admit implements [Mutator].
func (DefaultTolerationSeconds) Admit(_ context.Context, a *Attributes) error {
	if pod := a.writtenPod(); pod != nil {
		for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
			tolerate(pod, taint)
		}
	}
	return nil
}

// toleration is how long, in seconds, a node may be away before its pods are evicted.
const toleration = 300

func tolerate(pod *corev1.Pod, taint string) {
	for _, t := range pod.Spec.Tolerations {
		if (t.Key == taint || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "") {
			return
		}
	}
	seconds := int64(toleration)
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
		Key:               taint,
		Operator:          corev1.TolerationOpExists,
		Effect:            corev1.TaintEffectNoExecute,
		TolerationSeconds: &seconds,
	})
}
