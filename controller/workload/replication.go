package workload

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/run"
)

// replication keeps the pods of ReplicationControllers.
type replication struct {
	client      client.Interface
	controllers *cache.Cache[*corev1.ReplicationController]
	work        *podWork
	loop        *controller.Loop
	log         *slog.Logger
}

func newReplication(opts Options, pods *cache.Cache[*corev1.Pod]) (*replication, []run.Task) {
	events := client.NewRecorder(opts.Client, "replication-controller", "", opts.Log)
	r := &replication{
		client: opts.Client,
		controllers: cache.New(opts.Client, client.ReplicationControllers, cache.Options[*corev1.ReplicationController]{
			Log: opts.Log,
		}),
		work: &podWork{opts.Client, pods, events},
		log:  opts.Log,
	}
	r.loop = controller.New(controller.Options{
		Name: "replication-controller", Reconcile: r.reconcile, Workers: opts.Workers,
		Needs: []<-chan struct{}{r.controllers.Ready(), pods.Ready()}, Log: opts.Log,
	})
	r.controllers.Subscribe(func(before, after *corev1.ReplicationController) {
		if after == nil {
			after = before
		}
		r.loop.Add(controller.KeyOf(after))
	})
	return r, []run.Task{
		{Name: "replication-controller-cache", Run: r.controllers.Run, Ready: r.controllers.Ready()},
		{Name: "replication-controller-events", Run: events.Run},
		r.loop.Task(),
	}
}

// podChanged wakes the controllers that a changed pod concerns.
func (r *replication) podChanged(before, after *corev1.Pod) {
	for _, pod := range []*corev1.Pod{before, after} {
		if pod == nil {
			continue
		}
		if key, ok := ownerKey(pod, "ReplicationController"); ok {
			r.loop.Add(key)
		} else if pod == after && metav1.GetControllerOfNoCopy(pod) == nil {
			for _, rc := range r.controllers.List(pod.Namespace) {
				if selectorOf(rc).Matches(labels.Set(pod.Labels)) {
					r.loop.Add(controller.KeyOf(rc))
				}
			}
		}
	}
}

// selectorOf returns what an rc selects; one without a selector has that of its
// template's labels, and one that has neither selects nothing.
func selectorOf(rc *corev1.ReplicationController) labels.Selector {
	set := rc.Spec.Selector
	if len(set) == 0 && rc.Spec.Template != nil {
		set = rc.Spec.Template.Labels
	}
	if len(set) == 0 {
		return labels.Nothing()
	}
	return labels.SelectorFromSet(set)
}

// A replicationPlan says how many pods to make, or which to delete.
type replicationPlan struct {
	create int
	remove []*corev1.Pod
}

// planReplication compares what rc wants with the pods that it has.
func planReplication(rc *corev1.ReplicationController, pods []*corev1.Pod, now time.Time) replicationPlan {
	if rc.DeletionTimestamp != nil || rc.Spec.Template == nil {
		return replicationPlan{}
	}
	want := 1
	if rc.Spec.Replicas != nil {
		want = int(*rc.Spec.Replicas)
	}
	active := slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return !isActive(p) })
	switch have := len(active); {
	case have < want:
		return replicationPlan{create: want - have}
	case have > want:
		return replicationPlan{remove: expendable(active, now)[:have-want]}
	}
	return replicationPlan{}
}

// replicationStatus returns what the status of rc is to be, given its pods and what
// went wrong with them, and when it may change by the passing of time alone (0:
// never).
func replicationStatus(rc *corev1.ReplicationController, pods []*corev1.Pod, plan replicationPlan, failure error, now time.Time) (corev1.ReplicationControllerStatus, time.Duration) {
	status := *rc.Status.DeepCopy()
	status.Replicas, status.FullyLabeledReplicas, status.ReadyReplicas, status.AvailableReplicas = 0, 0, 0, 0
	status.ObservedGeneration = rc.Generation
	least := time.Duration(rc.Spec.MinReadySeconds) * time.Second
	var template labels.Set
	if rc.Spec.Template != nil {
		template = rc.Spec.Template.Labels
	}
	full := labels.SelectorFromSet(template)
	var after time.Duration
	for _, p := range pods {
		if !isActive(p) {
			continue
		}
		status.Replicas++
		if full.Matches(labels.Set(p.Labels)) {
			status.FullyLabeledReplicas++
		}
		wait := availableIn(p, least, now)
		if wait < 0 {
			continue
		}
		status.ReadyReplicas++
		if wait == 0 {
			status.AvailableReplicas++
		} else if after == 0 || wait < after {
			after = wait
		}
	}
	failing := slices.IndexFunc(status.Conditions, func(c corev1.ReplicationControllerCondition) bool {
		return c.Type == corev1.ReplicationControllerReplicaFailure
	})
	switch {
	case failure == nil && failing >= 0:
		status.Conditions = slices.Delete(status.Conditions, failing, failing+1)
	case failure != nil && failing < 0:
		reason := "FailedCreate"
		if len(plan.remove) > 0 {
			reason = "FailedDelete"
		}
		status.Conditions = append(status.Conditions, corev1.ReplicationControllerCondition{
			Type: corev1.ReplicationControllerReplicaFailure, Status: corev1.ConditionTrue,
			Reason: reason, Message: failure.Error(), LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		})
	}
	if len(status.Conditions) == 0 {
		status.Conditions = nil
	}
	return status, after
}

func (r *replication) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	rc, ok := r.controllers.Get(key.Namespace, key.Name)
	if !ok {
		return controller.Result{}, nil
	}
	pods, err := r.claim(ctx, rc)
	if err != nil {
		return controller.Result{}, err
	}
	plan := planReplication(rc, pods, time.Now())
	var failure error
	switch {
	case plan.create > 0:
		failure = r.work.create(ctx, rc, plan.create, func(int) *corev1.Pod { return podFrom(rc, rc.Spec.Template) })
	case len(plan.remove) > 0:
		failure = r.work.remove(ctx, rc, plan.remove, "")
	}
	if ctx.Err() != nil {
		return controller.Result{}, nil
	}
	if plan.create > 0 || len(plan.remove) > 0 {
		pods = planClaim(rc, selectorOf(rc), r.work.candidates(rc)).mine
	}
	status, after := replicationStatus(rc, pods, plan, failure, time.Now())
	if err := r.writeStatus(ctx, rc, status); err != nil {
		return controller.Result{}, errors.Join(failure, err)
	}
	if failure != nil {
		return controller.Result{}, failure
	}
	return controller.Result{After: after}, nil
}

func (r *replication) claim(ctx context.Context, rc *corev1.ReplicationController) ([]*corev1.Pod, error) {
	now := func(ctx context.Context) (client.Object, error) {
		return client.ReplicationControllers.Get(ctx, r.client, rc.Namespace, rc.Name)
	}
	return r.work.claim(ctx, rc, now, selectorOf(rc), "")
}

func (r *replication) writeStatus(ctx context.Context, rc *corev1.ReplicationController, status corev1.ReplicationControllerStatus) error {
	if equality.Semantic.DeepEqual(rc.Status, status) {
		return nil
	}
	fresh := rc.DeepCopy()
	fresh.Status = status
	now, err := client.ReplicationControllers.Update(ctx, r.client, fresh, "status")
	switch {
	case apierrors.IsNotFound(err):
		return nil // it has been deleted
	case err != nil:
		return fmt.Errorf("write status of replicationcontroller %s/%s: %w", rc.Namespace, rc.Name, err)
	}
	return r.controllers.Await(ctx, now.ResourceVersion)
}
