package disruption

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/controller/dependents"
	"github.com/sampan-io/sampan/internal/run"
)

const name = "disruption-controller"

// budgets keeps the status of PodDisruptionBudgets.
type budgets struct {
	client  client.Interface
	objects *cache.Cache[*policyv1.PodDisruptionBudget]
	pods    *cache.Cache[*corev1.Pod]
	rcs     *cache.Cache[*corev1.ReplicationController]
	sets    *cache.Cache[*appsv1.ReplicaSet]
	deploys *cache.Cache[*appsv1.Deployment]
	ordered *cache.Cache[*appsv1.StatefulSet]
	events  *client.Recorder
	loop    *controller.Loop
}

// Tasks returns the controller, to be run together as one stage.
func Tasks(config controller.Config) []run.Task {
	config, caches := config.WithDefaults()
	config = config.For(name)
	b := &budgets{
		client:  config.Client,
		objects: cache.Of(config.Caches, client.PodDisruptionBudgets, nil),
		pods:    cache.Of(config.Caches, client.Pods, nil),
		rcs:     cache.Of(config.Caches, client.ReplicationControllers, nil),
		sets:    cache.Of(config.Caches, client.ReplicaSets, nil),
		deploys: cache.Of(config.Caches, client.Deployments, nil),
		ordered: cache.Of(config.Caches, client.StatefulSets, nil),
		events:  client.NewRecorder(config.Client, name, "", config.Log),
	}
	b.loop = controller.New(controller.Options{
		Name: name, Reconcile: b.reconcile, Workers: config.Workers, Log: config.Log,
		Object: controller.ObjectOf(b.objects), Quarantine: config.Quarantine,
		Needs: []<-chan struct{}{b.objects.Ready(), b.pods.Ready(), b.rcs.Ready(), b.sets.Ready(), b.deploys.Ready(), b.ordered.Ready()},
	})
	b.objects.Subscribe(func(_, after *policyv1.PodDisruptionBudget) {
		if after != nil {
			b.loop.Add(controller.KeyOf(after))
		}
	})
	b.pods.Subscribe(b.podChanged)
	follow(b, b.rcs, func(rc *corev1.ReplicationController) *int32 { return rc.Spec.Replicas })
	follow(b, b.sets, func(rs *appsv1.ReplicaSet) *int32 { return rs.Spec.Replicas })
	follow(b, b.deploys, func(d *appsv1.Deployment) *int32 { return d.Spec.Replicas })
	follow(b, b.ordered, func(s *appsv1.StatefulSet) *int32 { return s.Spec.Replicas })
	return []run.Task{
		caches,
		{Name: name + "-events", Run: b.events.Run},
		b.loop.Task(),
	}
}

// follow wakes the budgets of a namespace when a controller in it is made or gets another
// size.
func follow[T client.Object](b *budgets, sized *cache.Cache[T], replicas func(T) *int32) {
	sized.Subscribe(func(before, after T) {
		var none T
		switch {
		case client.Object(after) == client.Object(none):
			return // its pods will follow
		case client.Object(before) != client.Object(none) && equality.Semantic.DeepEqual(replicas(before), replicas(after)):
			return
		}
		for _, one := range b.objects.List(after.GetNamespace()) {
			b.loop.Add(controller.KeyOf(one))
		}
	})
}

// podChanged wakes the budgets that select a pod, or did before it changed.
func (b *budgets) podChanged(before, after *corev1.Pod) {
	pod := after
	if pod == nil {
		pod = before
	}
	var names []string // of the budgets that select the pod now
	for _, one := range b.objects.List(pod.Namespace) {
		s := selectorOf(one)
		has := after != nil && s.Matches(labels.Set(after.Labels))
		if has {
			names = append(names, one.Name)
		}
		if has || before != nil && s.Matches(labels.Set(before.Labels)) {
			b.loop.Add(controller.KeyOf(one))
		}
	}
	if len(names) > 1 && (before == nil || !maps.Equal(before.Labels, after.Labels)) {
		b.events.Event(after, corev1.EventTypeWarning, "MultiplePodDisruptionBudgets",
			"Pod %q/%q matches multiple PodDisruptionBudgets.  Chose %q arbitrarily.", after.Namespace, after.Name, slices.Min(names))
	}
}

// selectorOf returns the selector of a budget: nothing without one.
func selectorOf(b *policyv1.PodDisruptionBudget) labels.Selector {
	s, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		return labels.Nothing() // the API server does not let it through
	}
	return s
}

func (b *budgets) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	one, ok := b.objects.Get(key.Namespace, key.Name)
	if !ok || one.DeletionTimestamp != nil {
		return controller.Result{}, nil
	}
	selector := selectorOf(one)
	var pods []*corev1.Pod
	for _, pod := range b.pods.List(key.Namespace) {
		if selector.Matches(labels.Set(pod.Labels)) {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) }) // the message does not change by itself
	v := plan(one, pods, b.find, time.Now())
	if equality.Semantic.DeepEqual(v.status, one.Status) {
		return controller.Result{After: v.after}, nil
	}
	for _, e := range v.events {
		if e.about != nil {
			b.events.Event(e.about, e.kind, e.reason, "%s", e.message)
		} else {
			b.events.Event(one, e.kind, e.reason, "%s", e.message)
		}
	}
	updated := one.DeepCopy()
	updated.Status = v.status
	now, err := client.PodDisruptionBudgets.Update(ctx, b.client, updated, "status")
	switch {
	case apierrors.IsNotFound(err):
		return controller.Result{}, nil
	case err != nil:
		return controller.Result{}, fmt.Errorf("write status of poddisruptionbudget %s: %w", key, err)
	}
	return controller.Result{After: v.after}, b.objects.Await(ctx, now.ResourceVersion)
}

// find is a [finder] that knows the kinds whose controllers are here.
func (b *budgets) find(pod *corev1.Pod) (scale, bool, error) {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil {
		return scale{}, false, nil
	}
	is := func(obj client.Object, kind string) bool { return ref.Kind == kind && obj.GetUID() == ref.UID }
	if rc, ok := b.rcs.Get(pod.Namespace, ref.Name); ok && is(rc, client.ReplicationControllers.Kind) {
		return scale{rc.UID, dependents.Size(rc.Spec.Replicas)}, true, nil
	}
	if rs, ok := b.sets.Get(pod.Namespace, ref.Name); ok && is(rs, client.ReplicaSets.Kind) {
		if up := metav1.GetControllerOfNoCopy(rs); up != nil && up.Kind == client.Deployments.Kind {
			if d, ok := b.deploys.Get(pod.Namespace, up.Name); ok && d.UID == up.UID {
				return scale{d.UID, dependents.Size(d.Spec.Replicas)}, true, nil
			}
		}
		return scale{rs.UID, dependents.Size(rs.Spec.Replicas)}, true, nil
	}
	if s, ok := b.ordered.Get(pod.Namespace, ref.Name); ok && is(s, client.StatefulSets.Kind) {
		return scale{s.UID, dependents.Size(s.Spec.Replicas)}, true, nil
	}
	for _, sizeless := range []schema.GroupVersionKind{client.DaemonSets.GVK(), client.Jobs.GVK()} {
		if ref.Kind == sizeless.Kind && ref.APIVersion == sizeless.GroupVersion().String() {
			return scale{}, false, fmt.Errorf("%ss.%s does not implement the scale subresource", strings.ToLower(ref.Kind), sizeless.Group)
		}
	}
	return scale{}, false, fmt.Errorf("found no controllers for pod %q", pod.Name)
}
