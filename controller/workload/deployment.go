package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/controller/dependents"
)

// deployments rolls Deployments out: it makes, sizes and removes ReplicaSets.
type deployments struct {
	*dependents.Controller[*appsv1.Deployment]
	sets dependents.Claims[*appsv1.ReplicaSet]
	pods *cache.Cache[*corev1.Pod]
}

func newDeployments(config controller.Config, sets *cache.Cache[*appsv1.ReplicaSet], pods *cache.Cache[*corev1.Pod]) *deployments {
	d := &deployments{
		sets: dependents.Claims[*appsv1.ReplicaSet]{Client: config.Client, Resource: client.ReplicaSets, Cache: sets},
		pods: pods,
	}
	d.Controller = dependents.NewController(dependents.Options[*appsv1.Deployment]{
		Name: "deployment-controller", Client: config.Client, Caches: config.Caches, Resource: client.Deployments, Workers: config.Workers, Log: config.Log, Quarantine: config.Quarantine,
		Selector: func(one *appsv1.Deployment) labels.Selector { return dependents.Selector(one.Spec.Selector) },
		Needs:    []<-chan struct{}{sets.Ready(), pods.Ready()}, Reconcile: d.reconcile,
	})
	dependents.Follow(d.Controller, sets)
	pods.Subscribe(d.podChanged)
	return d
}

// podChanged queues Deployments that depend on more than the status of their ReplicaSets: on the deletion of a pod, or on a
// pod that will never work.
func (d *deployments) podChanged(before, after *corev1.Pod) {
	pod := after
	if pod == nil {
		pod = before
	}
	of, ok := dependents.Key(pod, client.ReplicaSets.Kind)
	if !ok {
		return
	}
	set, ok := d.sets.Cache.Get(of.Namespace, of.Name)
	if !ok {
		return
	}
	key, ok := dependents.Key(set, client.Deployments.Kind)
	if !ok {
		return
	}
	one, ok := d.Objects.Get(key.Namespace, key.Name)
	if !ok {
		return
	}
	recreated := after == nil && one.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType
	if recreated || one.Annotations[autoRollbackAnnotation] == "true" {
		d.Loop.Add(key)
	}
}

func (d *deployments) podsOf(set *appsv1.ReplicaSet) []*corev1.Pod {
	if set.UID == "" {
		return nil
	}
	return d.pods.ByIndex(dependents.ByController, string(set.UID))
}

func (d *deployments) reconcile(ctx context.Context, one *appsv1.Deployment) (controller.Result, error) {
	if changed := handBack(one); changed != nil {
		if err := d.Write(ctx, changed, ""); err != nil {
			return controller.Result{}, err
		}
		return controller.Result{}, nil // the write queues it again
	}
	owner := d.Owner(one)
	sets, err := d.sets.Claim(ctx, owner, "")
	if err != nil {
		return controller.Result{}, err
	}
	plan := newRollout(one, sets, d.podsOf, time.Now())
	if err := plan.plan(); err != nil {
		return controller.Result{}, err
	}
	made, err := d.carryOut(ctx, plan)
	if err != nil || ctx.Err() != nil {
		return controller.Result{}, err
	}
	// The status is that of the sets as they are after the changes.
	now := newRollout(one, d.sets.Mine(owner), d.podsOf, time.Now())
	if now.current != nil && one.DeletionTimestamp == nil {
		now.current.annotations = annotateSet(one, now.current.set, now.old)
	}
	status, after := now.status(made)
	if back := now.retreat(&status); back != nil {
		return controller.Result{}, d.goBack(ctx, one, back)
	}
	if err := d.writeStatus(ctx, one, now.withStatus(status)); err != nil {
		return controller.Result{}, errors.Join(made.failure, err)
	}
	if made.failure != nil {
		return controller.Result{}, made.failure
	}
	if one.DeletionTimestamp == nil && (one.Spec.Paused || now.complete(&status)) {
		if err := d.forget(ctx, outdated(one, now.old)); err != nil {
			return controller.Result{}, err
		}
	}
	return controller.Result{After: after}, nil
}

// carryOut makes and changes sets as planned. The attempt says how the making went.
func (d *deployments) carryOut(ctx context.Context, r *rollout) (made attempt, err error) {
	for _, p := range r.old {
		if err := d.change(ctx, r.d, p); err != nil {
			return made, err
		}
	}
	switch {
	case r.current == nil:
		return made, nil
	case r.current.made:
		return d.make(ctx, r)
	}
	return made, d.change(ctx, r.d, r.current)
}

// change carries out the plan for a set that exists.
func (d *deployments) change(ctx context.Context, one *appsv1.Deployment, p *part) error {
	set := p.changed()
	if set == nil {
		return nil
	}
	now, err := client.ReplicaSets.Update(ctx, d.Client, set, "")
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("update replica set %s: %w", set.Name, err)
	}
	if before := sizeOf(p.set); before < p.size {
		d.scaledEvent(one, "up", set.Name, before, p.size)
	} else if before > p.size {
		d.scaledEvent(one, "down", set.Name, before, p.size)
	}
	return d.sets.Cache.Await(ctx, now.ResourceVersion)
}

func (d *deployments) scaledEvent(one *appsv1.Deployment, way, name string, from, to int32) {
	d.Events.Event(one, corev1.EventTypeNormal, "ScalingReplicaSet", "Scaled %s replica set %s from %d to %d", way, name, from, to)
}

// make creates the set of the present template.
func (d *deployments) make(ctx context.Context, r *rollout) (attempt, error) {
	set := r.current.set.DeepCopy()
	set.Spec.Replicas, set.Annotations = &r.current.size, r.current.annotations
	made := attempt{name: set.Name}
	now, err := client.ReplicaSets.Create(ctx, d.Client, set)
	switch {
	case apierrors.IsAlreadyExists(err):
		return attempt{}, d.collided(ctx, r.d, set)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return attempt{}, nil
	case err != nil:
		if ctx.Err() == nil {
			d.Events.Event(r.d, corev1.EventTypeWarning, reasonNotCreated, "Failed to create new replica set %q: %v", set.Name, err)
		}
		made.failure = fmt.Errorf("create replica set %s: %w", set.Name, err)
		return made, nil
	}
	if r.current.size > 0 {
		d.scaledEvent(r.d, "up", set.Name, 0, r.current.size)
	}
	return made, d.sets.Cache.Await(ctx, now.ResourceVersion)
}

// collided deals with a set that has the name of the one to be made: if it is not that
// one, the hash of the template is another from now on.
func (d *deployments) collided(ctx context.Context, one *appsv1.Deployment, set *appsv1.ReplicaSet) error {
	there, err := client.ReplicaSets.Get(ctx, d.Client, set.Namespace, set.Name)
	if err != nil {
		return fmt.Errorf("get replica set %s, which exists: %w", set.Name, err)
	}
	if metav1.IsControlledBy(there, one) && sameTemplate(there, &set.Spec.Template) {
		return d.sets.Cache.Await(ctx, there.ResourceVersion)
	}
	updated := one.DeepCopy()
	updated.Status.CollisionCount = dependents.NextCollision(updated.Status.CollisionCount)
	if err := d.writeStatus(ctx, one, updated); err != nil {
		return err
	}
	return controller.Again(fmt.Sprintf("hash collision: replica set %s has another template", set.Name))
}

// goBack makes a retreat.
func (d *deployments) goBack(ctx context.Context, one *appsv1.Deployment, back *retreat) error {
	changed, err := back.apply(one)
	if err != nil {
		return err
	}
	if err := d.Write(ctx, changed, rollbackManager); err != nil {
		return fmt.Errorf("roll back: %w", err)
	}
	kind := corev1.EventTypeWarning
	if back.note.Reason == reasonAborted {
		kind = corev1.EventTypeNormal
	}
	d.Events.Event(one, kind, string(conditionRolledBack), "%s", back.note.Message)
	return nil
}

// forget removes sets that the history has no room for.
func (d *deployments) forget(ctx context.Context, sets []*appsv1.ReplicaSet) error {
	for _, set := range sets {
		if _, err := d.sets.Delete(ctx, set, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); err != nil {
			return err
		}
	}
	return nil
}

func (d *deployments) writeStatus(ctx context.Context, one, updated *appsv1.Deployment) error {
	if updated == one {
		return nil
	}
	return d.WriteStatus(ctx, updated)
}
