package admission

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// RuntimeClass gives new pods the overhead, the node selector and the tolerations of their RuntimeClass. It
// refuses pods whose class does not exist, and pods with other overhead than their class has.
type RuntimeClass struct{ reader Reader }

// NewRuntimeClass returns the plug-in.
func NewRuntimeClass(r Reader) RuntimeClass { return RuntimeClass{r} }

// Name implements [Plugin].
func (RuntimeClass) Name() string { return "RuntimeClass" }

// Admit implements [Mutator].
func (p RuntimeClass) Admit(ctx context.Context, a *Attributes) error {
	pod := a.createdPod()
	if pod == nil {
		return nil
	}
	class, err := p.class(ctx, a, pod)
	if err != nil || class == nil {
		return err
	}
	if class.Overhead != nil {
		if len(pod.Spec.Overhead) > 0 && !sameOverhead(class, pod) {
			return refuseOverhead(a)
		}
		pod.Spec.Overhead = maps.Clone(class.Overhead.PodFixed)
	}
	if class.Scheduling == nil {
		return nil
	}
	for key, value := range class.Scheduling.NodeSelector {
		if own, ok := pod.Spec.NodeSelector[key]; ok && own != value {
			return refuse(a, "conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s", key, value, key, own)
		}
	}
	if pod.Spec.NodeSelector == nil {
		pod.Spec.NodeSelector = maps.Clone(class.Scheduling.NodeSelector)
	} else {
		maps.Copy(pod.Spec.NodeSelector, class.Scheduling.NodeSelector)
	}
	pod.Spec.Tolerations = mergeTolerations(pod.Spec.Tolerations, class.DeepCopy().Scheduling.Tolerations)
	return nil
}

// Validate implements [Validator].
func (p RuntimeClass) Validate(ctx context.Context, a *Attributes) error {
	pod := a.createdPod()
	if pod == nil {
		return nil
	}
	class, err := p.class(ctx, a, pod)
	switch {
	case err != nil:
		return err
	case class != nil && class.Overhead != nil:
		if !sameOverhead(class, pod) {
			return refuseOverhead(a)
		}
	case pod.Spec.Overhead != nil: // even if it is empty, as upstream
		return refuse(a, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
	}
	return nil
}

// class returns the class of a pod, or nil if the pod names none.
func (p RuntimeClass) class(ctx context.Context, a *Attributes, pod *corev1.Pod) (*nodev1.RuntimeClass, error) {
	if pod.Spec.RuntimeClassName == nil {
		return nil, nil // no class
	}
	name := *pod.Spec.RuntimeClassName
	o, err := p.reader.Get(ctx, nodev1.SchemeGroupVersion.WithResource("runtimeclasses"), "", name)
	if apierrors.IsNotFound(err) {
		return nil, refuse(a, "pod rejected: RuntimeClass %q not found", name)
	}
	class, _ := o.(*nodev1.RuntimeClass)
	return class, err
}

func sameOverhead(class *nodev1.RuntimeClass, pod *corev1.Pod) bool {
	return equality.Semantic.DeepEqual(class.Overhead.PodFixed, pod.Spec.Overhead)
}

func refuseOverhead(a *Attributes) error {
	return refuse(a, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
}

// mergeTolerations returns the tolerations of both lists without each toleration that another one includes. Of
// equal ones the first stays.
func mergeTolerations(first, second []corev1.Toleration) (merged []corev1.Toleration) {
	all := append(first, second...)
	for i := range all {
		t := &all[i]
		equal := func(o corev1.Toleration) bool { return equality.Semantic.DeepEqual(o, *t) }
		wider := func(o corev1.Toleration) bool { return !equal(o) && includes(&o, t) }
		if !slices.ContainsFunc(merged, equal) && !slices.ContainsFunc(merged, wider) && !slices.ContainsFunc(all[i+1:], wider) {
			merged = append(merged, *t)
		}
	}
	return merged
}

// includes reports whether a pod with the toleration wide gains nothing by t, which differs from it.
func includes(wide, t *corev1.Toleration) bool {
	allKeys := wide.Key == "" && wide.Operator == corev1.TolerationOpExists
	switch {
	case wide.Key != t.Key && !allKeys, wide.Effect != t.Effect && wide.Effect != "":
		return false
	case wide.Effect == corev1.TaintEffectNoExecute && wide.TolerationSeconds != nil &&
		(t.TolerationSeconds == nil || *t.TolerationSeconds > *wide.TolerationSeconds):
		return false
	}
	switch wide.Operator {
	case corev1.TolerationOpEqual, "":
		return t.Operator == corev1.TolerationOpEqual && t.Value == wide.Value
	case corev1.TolerationOpExists:
		return true
	default: // comparisons of numbers include only what equals them
		return false
	}
}
