package compat

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/await/events"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/follow"
	"github.com/sampan-io/sampan/wait"
)

// PodsOnNodes asks the nodes, through nodes/NAME/proxy/pods, whether they have the pods that a label selector matches in a
// namespace; an empty selector matches all pods. The cause names the first missing pod and its node. It is Waiting if no
// pod matches. It checks once; [WaitForPodsOnNodes] waits.
func PodsOnNodes(ctx context.Context, c client.Interface, namespace, labels string) (await.Verdict, error) {
	items, _, err := c.List(ctx, client.Pods.GroupVersionResource, namespace, metav1.ListOptions{LabelSelector: labels})
	if err != nil {
		return await.Verdict{}, err
	}
	pods, err := podsIn(items)
	if err != nil {
		return await.Verdict{}, err
	}
	if len(pods) == 0 {
		return waiting("no pod matches"), nil
	}
	at := map[string][]*corev1.Pod{}
	var nodes []string
	for _, p := range pods {
		if p.Spec.NodeName == "" {
			return waiting("pod %s is not on a node yet", p.Name), nil
		}
		if at[p.Spec.NodeName] == nil {
			nodes = append(nodes, p.Spec.NodeName)
		}
		at[p.Spec.NodeName] = append(at[p.Spec.NodeName], p)
	}
	slices.Sort(nodes)
	for _, node := range nodes {
		has, err := podsOf(ctx, c, node)
		if err != nil {
			return await.Verdict{}, fmt.Errorf("asking node %s: %w", node, err)
		}
		for _, p := range at[node] {
			// A static pod has another UID on the node than its mirror here.
			mirrored := p.Annotations[corev1.MirrorPodAnnotationKey] != "" && has[types.UID(p.Namespace+"/"+p.Name)]
			if !has[p.UID] && !mirrored {
				return waiting("node %s does not have pod %s yet", node, p.Name), nil
			}
		}
	}
	return await.Verdict{State: await.Done}, nil
}

// WaitForPodsOnNodes waits until [PodsOnNodes] is done. Nodes have no watch, so it polls them, with growing pauses. The
// deadline is that of [WaitForJobPodsInPhase]. It retries if a node does not answer, and returns an error if the caller
// is not allowed to read the pods of the node.
func WaitForPodsOnNodes(ctx context.Context, c client.Interface, namespace, labels string) error {
	ctx, cancel := within(ctx)
	defer cancel()
	pace := wait.Pace{First: follow.FirstPause, Factor: 1.5, Max: follow.MaxPause, Jitter: 0.2}
	return wait.Until(ctx, pace, func(ctx context.Context) (bool, error) {
		verdict, err := PodsOnNodes(ctx, c, namespace, labels)
		switch {
		case err != nil && (follow.Hopeless(err) || ctx.Err() != nil):
			return false, err
		case err != nil:
			return false, wait.NotYet(err)
		case verdict.State == await.Done:
			return true, nil
		}
		return false, wait.NotYet(errors.New(verdict.Cause))
	})
}

// nodeLimit is how long a node may take to answer.
const nodeLimit = 10 * time.Second

// podsOf returns the UIDs of the pods on a node, and NAMESPACE/NAME of each.
func podsOf(ctx context.Context, c client.Interface, node string) (map[types.UID]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, nodeLimit)
	defer cancel()
	answer, err := c.Get(ctx, client.Nodes.GroupVersionResource, "", node, "proxy/pods")
	if err != nil {
		return nil, err
	}
	has := map[types.UID]bool{}
	add := func(o metav1.Object) {
		has[o.GetUID()] = true
		has[types.UID(o.GetNamespace()+"/"+o.GetName())] = true
	}
	switch list := answer.(type) {
	case *corev1.PodList:
		for i := range list.Items {
			add(&list.Items[i])
		}
	case *unstructured.Unstructured:
		err := list.EachListItem(func(o runtime.Object) error {
			if o, ok := o.(metav1.Object); ok {
				add(o)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("reading its pods: %w", err)
		}
	default:
		return nil, fmt.Errorf("it answered with a %T, want a list of pods", answer)
	}
	return has, nil
}

func waiting(format string, args ...any) await.Verdict {
	return await.Verdict{Cause: fmt.Sprintf(format, args...)}
}

func podsIn(items []runtime.Object) ([]*corev1.Pod, error) {
	pods := make([]*corev1.Pod, 0, len(items))
	for _, item := range items {
		p, err := typed[corev1.Pod](item)
		if err != nil {
			return nil, err
		}
		if p != nil {
			pods = append(pods, p)
		}
	}
	return pods, nil
}

// typed returns an object as a T, which it is or, from a client without Go types, is converted to; nil if it is neither.
func typed[T any](o runtime.Object) (*T, error) {
	switch o := o.(type) {
	case *unstructured.Unstructured:
		into := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into); err != nil {
			return nil, fmt.Errorf("reading %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		return into, nil
	default:
		t, _ := any(o).(*T)
		return t, nil
	}
}

// ControllerHasDesiredReplicas returns a condition for [wait.Poll] and [wait.WaitFor], as early Kubernetes had it. It is
// true when the controller, a target with a name, has observed its latest generation and at least the target's, and its
// status has as many replicas as its spec, ready or not. Each call is one request. New code should use [await.Until].
func ControllerHasDesiredReplicas(ctx context.Context, c client.Interface, controller await.Target) wait.ConditionFunc {
	return func() (bool, error) {
		got, err := c.Get(ctx, controller.Resource, controller.Namespace, controller.Name, "")
		if err != nil {
			return false, err
		}
		o, ok := got.(client.Object)
		if !ok {
			return false, fmt.Errorf("the server answered with a %T, want an object", got)
		}
		return hasDesiredReplicas(o, controller.Generation)
	}
}

func hasDesiredReplicas(o client.Object, generation int64) (bool, error) {
	object, err := fieldsOf(o)
	if err != nil {
		return false, err
	}
	want, asked, _ := unstructured.NestedInt64(object, "spec", "replicas")
	if !asked {
		want = 1 // the API's default
	}
	have, _, _ := unstructured.NestedInt64(object, "status", "replicas")
	seen, found := events.ObservedGeneration(object)
	generation = max(generation, o.GetGeneration())
	if !found && generation > 0 {
		return false, nil
	}
	return seen >= generation && have == want, nil
}

// fieldsOf returns the fields of an object, which must not be changed.
func fieldsOf(o client.Object) (map[string]any, error) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return u.Object, nil
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", o.GetName(), err)
	}
	return fields, nil
}
