package workload

import (
	"context"
	"errors"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/controller/dependents"
	"github.com/sampan-io/sampan/internal/podstate"
)

// A replicated is the common part of a ReplicationController and a ReplicaSet.
type replicated struct {
	client.Object
	want     int
	least    time.Duration // a pod has to be ready for so long to be available
	selector labels.Selector
	template *corev1.PodTemplateSpec // nil: no pods are made or taken away
	status   appsv1.ReplicaSetStatus // as it is; conditions may be shared with the object

	tellsTerminating bool // the status has a place for pods that are going
}

// A replicaPlan says how many pods to make, or which to delete.
type replicaPlan struct {
	create int
	remove []*corev1.Pod
	after  time.Duration // until pods may be made that are not made now; 0 means that there are none
}

// planReplicas compares the wanted pods with the present ones. Neighbours are
// pods of the same application, which count when too many share a node.
func planReplicas(r replicated, pods, neighbours []*corev1.Pod, now time.Time) replicaPlan {
	if r.GetDeletionTimestamp() != nil || r.template == nil {
		return replicaPlan{}
	}
	active := slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return !podstate.Active(p) })
	switch have := len(active); {
	case have < r.want:
		if left := pauseAfterRejection(pods, r.want, now); left > 0 {
			return replicaPlan{after: left}
		}
		return replicaPlan{create: r.want - have}
	case have > r.want:
		return replicaPlan{remove: expendable(active, neighbours, now)[:have-r.want]}
	}
	return replicaPlan{}
}

// After nodes have rejected as many pods as are wanted the next ones are made after firstPause, and after each
// further such round after twice as long, up to longestPause.
const (
	firstPause   = time.Second
	longestPause = 15 * time.Minute
)

// pauseAfterRejection returns how long to wait before pods are made; 0 or less means not at all. A node rejects a pod
// at once that it cannot run, and the next one is the same: without a pause there would be thousands.
func pauseAfterRejection(pods []*corev1.Pod, want int, now time.Time) time.Duration {
	rejections := 0
	var last time.Time
	for _, p := range pods {
		if rejected(p) {
			rejections++
			if made := p.CreationTimestamp.Time; made.After(last) {
				last = made
			}
		}
	}
	if rejections == 0 {
		return 0
	}
	pause := firstPause
	for range (rejections - 1) / want {
		if pause = min(2*pause, longestPause); pause == longestPause {
			break
		}
	}
	return last.Add(pause).Sub(now)
}

// rejected reports whether a node did not run a pod that it got.
func rejected(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed && p.Status.Reason != "" && !slices.ContainsFunc(
		slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses),
		func(c corev1.ContainerStatus) bool { return c.ContainerID != "" })
}

// A replicaCount is the part of the status that counts pods.
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
		if !podstate.Active(p) {
			if !podstate.Finished(p) {
				n.terminating++
			}
			continue
		}
		n.all++
		if full.Matches(labels.Set(p.Labels)) {
			n.labeled++
		}
		wait := podstate.AvailableIn(p, r.least, now)
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

// failureReason is the reason of the condition ReplicaFailure for a failure to carry p out.
func (p replicaPlan) failureReason() string {
	if len(p.remove) > 0 {
		return "FailedDelete"
	}
	return "FailedCreate"
}

// A replicaKind is what sets one kind of controllers of replicas apart. Their status is
// that of a ReplicaSet.
type replicaKind[T client.Object] struct {
	name       string
	resource   client.Resource[T]
	describe   func(T) replicated
	withStatus func(obj T, status appsv1.ReplicaSetStatus) T // a copy of obj with that status
	neighbours func(r *replicas[T], obj T) []*corev1.Pod     // nil means none
}

// replicas keeps the pods of one kind of controllers.
type replicas[T client.Object] struct {
	*dependents.Controller[T]
	kind replicaKind[T]
	work *dependents.Pods
}

func newReplicas[T client.Object](config controller.Config, kind replicaKind[T], pods *cache.Cache[*corev1.Pod]) *replicas[T] {
	r := &replicas[T]{kind: kind}
	r.Controller = dependents.NewController(dependents.Options[T]{
		Name: kind.name, Client: config.Client, Caches: config.Caches, Resource: kind.resource, Workers: config.Workers, Log: config.Log, Quarantine: config.Quarantine,
		Selector: func(obj T) labels.Selector { return kind.describe(obj).selector },
		Needs:    []<-chan struct{}{pods.Ready()}, Reconcile: r.reconcile,
	})
	r.work = dependents.NewPods(r.Controller, pods)
	return r
}

func (r *replicas[T]) reconcile(ctx context.Context, obj T) (controller.Result, error) {
	wish, owner := r.kind.describe(obj), r.Owner(obj)
	pods, err := r.work.Claim(ctx, owner, "")
	if err != nil {
		return controller.Result{}, err
	}
	var neighbours []*corev1.Pod
	if r.kind.neighbours != nil && len(pods) > wish.want {
		neighbours = r.kind.neighbours(r, obj)
	}
	plan := planReplicas(wish, pods, neighbours, time.Now())
	var failure error
	switch {
	case plan.create > 0:
		failure = r.work.Create(ctx, obj, plan.create, func(int) *corev1.Pod { return dependents.PodFrom(obj, wish.template) })
	case len(plan.remove) > 0:
		failure = r.work.Remove(ctx, obj, plan.remove, "")
	}
	if ctx.Err() != nil {
		return controller.Result{}, nil
	}
	if plan.create > 0 || len(plan.remove) > 0 {
		pods = r.work.Mine(owner)
	}
	now := time.Now()
	n := countReplicas(wish, pods, now)
	if status := wish.statusNow(n, plan, failure, now); !equality.Semantic.DeepEqual(status, wish.status) {
		if err := r.WriteStatus(ctx, r.kind.withStatus(obj, status)); err != nil {
			return controller.Result{}, errors.Join(failure, err)
		}
	}
	if failure != nil {
		return controller.Result{}, failure
	}
	return controller.Result{After: dependents.Sooner(n.after, plan.after)}, nil
}

// statusNow returns the wanted status.
func (r *replicated) statusNow(n replicaCount, plan replicaPlan, failure error, now time.Time) appsv1.ReplicaSetStatus {
	status := *r.status.DeepCopy()
	status.Replicas, status.FullyLabeledReplicas, status.ReadyReplicas, status.AvailableReplicas = n.all, n.labeled, n.ready, n.available
	if r.tellsTerminating {
		status.TerminatingReplicas = &n.terminating
	}
	status.ObservedGeneration = r.GetGeneration()
	conditions := dependents.Conditions[appsv1.ReplicaSetCondition]{List: &status.Conditions, Pack: packCondition, Unpack: unpackCondition}
	switch _, failing := conditions.Find(replicaFailure); {
	case failure == nil:
		conditions.Drop(replicaFailure)
	case !failing:
		conditions.Set(metav1.Condition{
			Type: replicaFailure, Status: metav1.ConditionTrue,
			Reason: plan.failureReason(), Message: failure.Error(), LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		})
	}
	return status
}

// replicaFailure is the type of the condition for a failure to create or delete pods.
const replicaFailure = string(appsv1.ReplicaSetReplicaFailure)

func packCondition(c metav1.Condition) appsv1.ReplicaSetCondition {
	return appsv1.ReplicaSetCondition{
		Type: appsv1.ReplicaSetConditionType(c.Type), Status: corev1.ConditionStatus(c.Status),
		Reason: c.Reason, Message: c.Message, LastTransitionTime: c.LastTransitionTime,
	}
}

func unpackCondition(c appsv1.ReplicaSetCondition) metav1.Condition {
	return metav1.Condition{
		Type: string(c.Type), Status: metav1.ConditionStatus(c.Status),
		Reason: c.Reason, Message: c.Message, LastTransitionTime: c.LastTransitionTime,
	}
}
