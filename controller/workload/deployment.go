package workload

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/run"
)

// deployments rolls Deployments out: it makes, sizes and removes ReplicaSets.
type deployments struct {
	client  client.Interface
	objects *cache.Cache[*appsv1.Deployment]
	sets    claims[*appsv1.ReplicaSet]
	pods    *cache.Cache[*corev1.Pod]
	events  *client.Recorder
	loop    *controller.Loop
	log     *slog.Logger
}

func newDeployments(opts Options, sets *cache.Cache[*appsv1.ReplicaSet], pods *cache.Cache[*corev1.Pod]) (*deployments, []run.Task) {
	const name = "deployment-controller"
	d := &deployments{
		client:  opts.Client,
		objects: cache.Of(opts.Caches, client.Deployments, nil),
		sets:    claims[*appsv1.ReplicaSet]{client: opts.Client, resource: client.ReplicaSets, cache: sets},
		pods:    pods,
		events:  client.NewRecorder(opts.Client, name, "", opts.Log),
		log:     opts.Log,
	}
	d.loop = controller.New(controller.Options{
		Name: name, Reconcile: d.reconcile, Workers: opts.Workers,
		Needs: []<-chan struct{}{d.objects.Ready(), sets.Ready(), pods.Ready()}, Log: opts.Log,
	})
	wakeBy(d.objects, d.loop)
	sets.Subscribe(d.setChanged)
	return d, []run.Task{
		{Name: name + "-events", Run: d.events.Run},
		d.loop.Task(),
	}
}

// setChanged wakes the Deployments that a changed ReplicaSet concerns.
func (d *deployments) setChanged(before, after *appsv1.ReplicaSet) {
	for _, set := range []*appsv1.ReplicaSet{before, after} {
		if set == nil {
			continue
		}
		if key, ok := ownerKey(set, client.Deployments.Kind); ok {
			d.loop.Add(key)
		} else if set == after && metav1.GetControllerOfNoCopy(set) == nil {
			for _, one := range d.objects.List(set.Namespace) {
				if labelSelector(one.Spec.Selector).Matches(labels.Set(set.Labels)) {
					d.loop.Add(controller.KeyOf(one))
				}
			}
		}
	}
}

// podChanged wakes the Deployments that want to know of pods more than their sets tell:
// whether they are gone, or will never work.
func (d *deployments) podChanged(before, after *corev1.Pod) {
	pod := after
	if pod == nil {
		pod = before
	}
	of, ok := ownerKey(pod, client.ReplicaSets.Kind)
	if !ok {
		return
	}
	set, ok := d.sets.cache.Get(of.Namespace, of.Name)
	if !ok {
		return
	}
	key, ok := ownerKey(set, client.Deployments.Kind)
	if !ok {
		return
	}
	one, ok := d.objects.Get(key.Namespace, key.Name)
	if !ok {
		return
	}
	recreated := after == nil && one.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType
	if recreated || one.Annotations[autoRollbackAnnotation] == "true" {
		d.loop.Add(key)
	}
}

func (d *deployments) podsOf(set *appsv1.ReplicaSet) []*corev1.Pod {
	if set.UID == "" {
		return nil
	}
	return d.pods.ByIndex(byController, string(set.UID))
}

func (d *deployments) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	one, ok := d.objects.Get(key.Namespace, key.Name)
	if !ok {
		return controller.Result{}, nil
	}
	selector := labelSelector(one.Spec.Selector)
	ownerNow := func(ctx context.Context) (client.Object, error) {
		return client.Deployments.Get(ctx, d.client, key.Namespace, key.Name)
	}
	sets, err := d.sets.claim(ctx, one, ownerNow, selector, "")
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
	// What is said is what is: the sets as they are after the changes.
	now := newRollout(one, planClaim(one, selector, d.sets.candidates(one)).mine, d.podsOf, time.Now())
	if now.current != nil && one.DeletionTimestamp == nil {
		now.current.annotations = annotateSet(one, now.current.set, now.old)
	}
	status, after := now.status(made)
	if back := now.retreat(&status); back != nil {
		return controller.Result{}, d.goBack(ctx, one, back)
	}
	if err := d.writeStatus(ctx, one, now.told(status)); err != nil {
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

// change carries out what is planned for a set that exists.
func (d *deployments) change(ctx context.Context, one *appsv1.Deployment, p *part) error {
	set := p.changed()
	if set == nil {
		return nil
	}
	now, err := client.ReplicaSets.Update(ctx, d.client, set, "")
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
	return d.sets.cache.Await(ctx, now.ResourceVersion)
}

func (d *deployments) scaledEvent(one *appsv1.Deployment, way, name string, from, to int32) {
	d.events.Event(one, corev1.EventTypeNormal, "ScalingReplicaSet", "Scaled %s replica set %s from %d to %d", way, name, from, to)
}

// make creates the set of the present template.
func (d *deployments) make(ctx context.Context, r *rollout) (attempt, error) {
	set := r.current.set.DeepCopy()
	set.Spec.Replicas, set.Annotations = &r.current.size, r.current.annotations
	made := attempt{name: set.Name}
	now, err := client.ReplicaSets.Create(ctx, d.client, set)
	switch {
	case apierrors.IsAlreadyExists(err):
		return attempt{}, d.collided(ctx, r.d, set)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return attempt{}, nil
	case err != nil:
		if ctx.Err() == nil {
			d.events.Event(r.d, corev1.EventTypeWarning, reasonNotCreated, "Failed to create new replica set %q: %v", set.Name, err)
		}
		made.failure = fmt.Errorf("create replica set %s: %w", set.Name, err)
		return made, nil
	}
	if r.current.size > 0 {
		d.scaledEvent(r.d, "up", set.Name, 0, r.current.size)
	}
	return made, d.sets.cache.Await(ctx, now.ResourceVersion)
}

// collided deals with a set that has the name of the one to be made: if it is not that
// one, the hash of the template is another from now on.
func (d *deployments) collided(ctx context.Context, one *appsv1.Deployment, set *appsv1.ReplicaSet) error {
	there, err := client.ReplicaSets.Get(ctx, d.client, set.Namespace, set.Name)
	if err != nil {
		return fmt.Errorf("replica set %s exists, and not: %w", set.Name, err)
	}
	if metav1.IsControlledBy(there, one) && sameTemplate(there, &set.Spec.Template) {
		return d.sets.cache.Await(ctx, there.ResourceVersion)
	}
	told := one.DeepCopy()
	count := int32(1)
	if told.Status.CollisionCount != nil {
		count = *told.Status.CollisionCount + 1
	}
	told.Status.CollisionCount = &count
	if err := d.writeStatus(ctx, one, told); err != nil {
		return err
	}
	return controller.Again(fmt.Sprintf("replica set %s is another one; the next name is tried", set.Name))
}

// goBack makes a retreat.
func (d *deployments) goBack(ctx context.Context, one *appsv1.Deployment, back *retreat) error {
	changed, err := back.apply(one)
	if err != nil {
		return err
	}
	now, err := client.Deployments.Update(ctx, d.client, changed, "")
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("roll deployment %s/%s back: %w", one.Namespace, one.Name, err)
	}
	kind := corev1.EventTypeWarning
	if back.note.Reason == reasonAborted {
		kind = corev1.EventTypeNormal
	}
	d.events.Event(one, kind, string(conditionRolledBack), "%s", back.note.Message)
	return d.objects.Await(ctx, now.ResourceVersion)
}

// forget removes sets that the history has no room for.
func (d *deployments) forget(ctx context.Context, sets []*appsv1.ReplicaSet) error {
	for _, set := range sets {
		err := client.ReplicaSets.Delete(ctx, d.client, set.Namespace, set.Name, metav1.DeleteOptions{
			Preconditions:     metav1.NewUIDPreconditions(string(set.UID)),
			PropagationPolicy: new(metav1.DeletePropagationBackground),
		})
		switch {
		case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		case err != nil:
			return fmt.Errorf("delete replica set %s: %w", set.Name, err)
		}
		if err := d.sets.cache.AwaitDeletion(ctx, set); err != nil {
			return err
		}
	}
	return nil
}

func (d *deployments) writeStatus(ctx context.Context, one, told *appsv1.Deployment) error {
	if told == one {
		return nil
	}
	now, err := client.Deployments.Update(ctx, d.client, told, "status")
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("write status of deployment %s/%s: %w", one.Namespace, one.Name, err)
	}
	return d.objects.Await(ctx, now.ResourceVersion)
}
