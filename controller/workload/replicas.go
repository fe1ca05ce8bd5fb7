package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/run"
)

// A replicated is what a ReplicationController and a ReplicaSet ask for alike.
type replicated struct {
	client.Object
	want     int
	least    time.Duration // a pod has to be ready for so long to be available
	selector labels.Selector
	template *corev1.PodTemplateSpec // nil: no pods are made or taken away
}

// A replicaPlan says how many pods to make, or which to delete.
type replicaPlan struct {
	create int
	remove []*corev1.Pod
}

// planReplicas compares what is asked for with the pods that are there. Neighbours are
// pods of the same application, which count when too many share a node.
func planReplicas(r replicated, pods, neighbours []*corev1.Pod, now time.Time) replicaPlan {
	if r.GetDeletionTimestamp() != nil || r.template == nil {
		return replicaPlan{}
	}
	active := slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return !isActive(p) })
	switch have := len(active); {
	case have < r.want:
		return replicaPlan{create: r.want - have}
	case have > r.want:
		return replicaPlan{remove: expendable(active, neighbours, now)[:have-r.want]}
	}
	return replicaPlan{}
}

// A replicaCount is what is to be said of the pods that are there.
type replicaCount struct {
	all, labeled, ready, available int32
	terminating                    int32
	after                          time.Duration // when it may change by the passing of time alone; 0 means never
}

func countReplicas(r replicated, pods []*corev1.Pod, now time.Time) (n replicaCount) {
	var template labels.Set
	if r.template != nil {
		template = r.template.Labels
	}
	full := labels.SelectorFromSet(template)
	for _, p := range pods {
		if !isActive(p) {
			if !isFinished(p) {
				n.terminating++
			}
			continue
		}
		n.all++
		if full.Matches(labels.Set(p.Labels)) {
			n.labeled++
		}
		wait := availableIn(p, r.least, now)
		if wait < 0 {
			continue
		}
		n.ready++
		if wait == 0 {
			n.available++
		} else if n.after == 0 || wait < n.after {
			n.after = wait
		}
	}
	return n
}

// failureReason is the reason of the condition that tells of a failure to carry p out.
func (p replicaPlan) failureReason() string {
	if len(p.remove) > 0 {
		return "FailedDelete"
	}
	return "FailedCreate"
}

// replicas keeps the pods of one kind of controllers.
type replicas[T client.Object] struct {
	client   client.Interface
	resource client.Resource[T]
	objects  *cache.Cache[T]
	work     *podWork
	loop     *controller.Loop

	describe   func(T) replicated
	neighbours func(T) []*corev1.Pod // nil means none

	// report returns obj with the status that is right, or as it is.
	report func(obj T, n replicaCount, plan replicaPlan, failure error, now time.Time) T
}

// newReplicas makes the parts of a controller of that name; its functions are left to
// the caller.
func newReplicas[T client.Object](opts Options, name string, resource client.Resource[T], pods *cache.Cache[*corev1.Pod]) (*replicas[T], []run.Task) {
	events := client.NewRecorder(opts.Client, name, "", opts.Log)
	r := &replicas[T]{
		client:   opts.Client,
		resource: resource,
		objects:  cache.Of(opts.Caches, resource, ownedIndexes[T]()),
		work:     newPodWork(opts.Client, pods, events),
	}
	r.loop = controller.New(controller.Options{
		Name: name, Reconcile: r.reconcile, Workers: opts.Workers,
		Needs: []<-chan struct{}{r.objects.Ready(), pods.Ready()}, Log: opts.Log,
	})
	wakeBy(r.objects, r.loop)
	return r, []run.Task{
		{Name: name + "-events", Run: events.Run},
		r.loop.Task(),
	}
}

// podChanged wakes the controllers that a changed pod concerns.
func (r *replicas[T]) podChanged(before, after *corev1.Pod) {
	for _, pod := range []*corev1.Pod{before, after} {
		if pod == nil {
			continue
		}
		if key, ok := ownerKey(pod, r.resource.Kind); ok {
			r.loop.Add(key)
		} else if pod == after && metav1.GetControllerOfNoCopy(pod) == nil {
			for _, obj := range r.objects.List(pod.Namespace) {
				if r.describe(obj).selector.Matches(labels.Set(pod.Labels)) {
					r.loop.Add(controller.KeyOf(obj))
				}
			}
		}
	}
}

func (r *replicas[T]) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	obj, ok := r.objects.Get(key.Namespace, key.Name)
	if !ok {
		return controller.Result{}, nil
	}
	wish := r.describe(obj)
	ownerNow := func(ctx context.Context) (client.Object, error) {
		return r.resource.Get(ctx, r.client, key.Namespace, key.Name)
	}
	pods, err := r.work.claim(ctx, obj, ownerNow, wish.selector, "")
	if err != nil {
		return controller.Result{}, err
	}
	var neighbours []*corev1.Pod
	if r.neighbours != nil && len(pods) > wish.want {
		neighbours = r.neighbours(obj)
	}
	plan := planReplicas(wish, pods, neighbours, time.Now())
	var failure error
	switch {
	case plan.create > 0:
		failure = r.work.create(ctx, obj, plan.create, func(int) *corev1.Pod { return podFrom(obj, wish.template) })
	case len(plan.remove) > 0:
		failure = r.work.remove(ctx, obj, plan.remove, "")
	}
	if ctx.Err() != nil {
		return controller.Result{}, nil
	}
	if plan.create > 0 || len(plan.remove) > 0 {
		pods = planClaim(obj, wish.selector, r.work.candidates(obj)).mine
	}
	now := time.Now()
	n := countReplicas(wish, pods, now)
	if err := r.write(ctx, obj, r.report(obj, n, plan, failure, now)); err != nil {
		return controller.Result{}, errors.Join(failure, err)
	}
	if failure != nil {
		return controller.Result{}, failure
	}
	return controller.Result{After: n.after}, nil
}

// write writes the status of told, unless it is the object itself.
func (r *replicas[T]) write(ctx context.Context, obj, told T) error {
	if client.Object(told) == client.Object(obj) {
		return nil
	}
	now, err := r.resource.Update(ctx, r.client, told, "status")
	switch {
	case apierrors.IsNotFound(err):
		return nil // it has been deleted
	case err != nil:
		return fmt.Errorf("write status of %s %s/%s: %w", r.resource.Kind, obj.GetNamespace(), obj.GetName(), err)
	}
	return r.objects.Await(ctx, now.GetResourceVersion())
}
