package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
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

// statefulSets keeps the pods of StatefulSets.
type statefulSets struct {
	client  client.Interface
	objects *cache.Cache[*appsv1.StatefulSet]
	work    *podWork
	history *history
	events  *client.Recorder
	loop    *controller.Loop
}

func newStatefulSets(opts Options, pods *cache.Cache[*corev1.Pod], revisions *cache.Cache[*appsv1.ControllerRevision]) (*statefulSets, []run.Task) {
	const name = "statefulset-controller"
	events := client.NewRecorder(opts.Client, name, "", opts.Log)
	s := &statefulSets{
		client:  opts.Client,
		objects: cache.Of(opts.Caches, client.StatefulSets, nil),
		work:    newPodWork(opts.Client, pods, events),
		history: newHistory(opts.Client, revisions),
		events:  events,
	}
	s.work.fits = func(owner client.Object, pod *corev1.Pod) bool {
		_, ok := ordinalOf(owner.GetName(), pod.Name)
		return ok
	}
	s.loop = controller.New(controller.Options{
		Name: name, Reconcile: s.reconcile, Workers: opts.Workers,
		Needs: []<-chan struct{}{s.objects.Ready(), pods.Ready(), revisions.Ready()}, Log: opts.Log,
	})
	wakeBy(s.objects, s.loop)
	s.history.wake(client.StatefulSets.Kind, s.loop, s.matching)
	return s, []run.Task{
		{Name: name + "-events", Run: events.Run},
		s.loop.Task(),
	}
}

// matching returns the sets that select what has those labels.
func (s *statefulSets) matching(namespace string, set labels.Set) (keys []controller.Key) {
	for _, one := range s.objects.List(namespace) {
		if labelSelector(one.Spec.Selector).Matches(set) {
			keys = append(keys, controller.KeyOf(one))
		}
	}
	return keys
}

// podChanged wakes the sets that a changed pod concerns.
func (s *statefulSets) podChanged(before, after *corev1.Pod) {
	for _, pod := range []*corev1.Pod{before, after} {
		if pod == nil {
			continue
		}
		if key, ok := ownerKey(pod, client.StatefulSets.Kind); ok {
			s.loop.Add(key)
		} else if pod == after && metav1.GetControllerOfNoCopy(pod) == nil {
			for _, key := range s.matching(pod.Namespace, labels.Set(pod.Labels)) {
				s.loop.Add(key)
			}
		}
	}
	if after == nil { // its name is free for a set that waits for that
		i := len(before.Name) - 1
		for i >= 0 && before.Name[i] != '-' {
			i--
		}
		if i > 0 {
			if one, ok := s.objects.Get(before.Namespace, before.Name[:i]); ok {
				s.loop.Add(controller.KeyOf(one))
			}
		}
	}
}

func recordedSet(set *appsv1.StatefulSet) recorded {
	return recorded{
		Object: set, selector: set.Spec.Selector, template: &set.Spec.Template, limit: set.Spec.RevisionHistoryLimit,
		collisions: set.Status.CollisionCount, hashLabel: recordedHash,
	}
}

func (s *statefulSets) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	set, ok := s.objects.Get(key.Namespace, key.Name)
	if !ok {
		return controller.Result{}, nil
	}
	ownerNow := func(ctx context.Context) (client.Object, error) {
		return client.StatefulSets.Get(ctx, s.client, key.Namespace, key.Name)
	}
	kept := recordedSet(set)
	rec, err := s.history.sync(ctx, kept, ownerNow, func() error { return s.collided(ctx, set) })
	if err != nil {
		return controller.Result{}, err
	}
	selector := labelSelector(set.Spec.Selector)
	pods, err := s.work.claim(ctx, set, ownerNow, selector, "")
	if err != nil {
		return controller.Result{}, err
	}
	v := newStatefulView(set, pods, rec, time.Now())
	plan := v.plan()
	failure := s.carryOut(ctx, v, rec, plan)
	if ctx.Err() != nil {
		return controller.Result{}, nil
	}
	v.pods, v.now = planClaim(set, selector, s.work.candidates(set)).mine, time.Now()
	status, after := v.status()
	if err := s.writeStatus(ctx, set, status); err != nil {
		return controller.Result{}, errors.Join(failure, err)
	}
	if failure != nil {
		return controller.Result{}, failure
	}
	inUse := func(r *appsv1.ControllerRevision) bool {
		return r.Name == status.CurrentRevision || slices.ContainsFunc(v.pods, func(p *corev1.Pod) bool { return revisionOfPod(p) == r.Name })
	}
	if err := s.history.forget(ctx, kept, rec, inUse); err != nil {
		return controller.Result{}, err
	}
	if plan.after > 0 && (after == 0 || plan.after < after) {
		after = plan.after
	}
	return controller.Result{After: after}, nil
}

// newStatefulView looks up which revision the set's pods have and are to have.
func newStatefulView(set *appsv1.StatefulSet, pods []*corev1.Pod, rec record, now time.Time) *statefulView {
	v := &statefulView{set: set, pods: pods, now: now}
	if rec.present != nil {
		v.update = rec.present.Name
	}
	v.current = v.update
	for _, r := range rec.all {
		if r.Name == set.Status.CurrentRevision {
			v.current = r.Name
		}
	}
	return v
}

func (s *statefulSets) carryOut(ctx context.Context, v *statefulView, rec record, plan statefulPlan) error {
	var errs []error
	for _, pod := range plan.label {
		n, _ := ordinalOf(v.set.Name, pod.Name)
		errs = append(errs, s.work.patch(ctx, pod, map[string]any{"uid": pod.UID, "labels": map[string]string{
			appsv1.StatefulSetPodNameLabel: pod.Name, appsv1.PodIndexLabel: strconv.Itoa(n),
		}}))
	}
	for _, pod := range plan.restart {
		s.events.Event(v.set, corev1.EventTypeWarning, "RecreatingFailedPod", "StatefulSet %s/%s is recreating failed Pod %s", v.set.Namespace, v.set.Name, pod.Name)
	}
	if gone := slices.Concat(plan.restart, plan.remove); len(gone) > 0 {
		errs = append(errs, s.work.each(ctx, len(gone), func(ctx context.Context, i int) error { return s.remove(ctx, v.set, gone[i]) }))
	}
	if len(plan.create) > 0 {
		templates := map[string]*corev1.PodTemplateSpec{}
		for _, r := range rec.all {
			t, err := templateOf(r)
			if err != nil {
				return err
			}
			templates[r.Name] = t
		}
		errs = append(errs, s.work.each(ctx, len(plan.create), func(ctx context.Context, i int) error {
			one := plan.create[i]
			return s.create(ctx, v.set, statefulFrom(v.set, templates[one.revision], one))
		}))
	}
	return errors.Join(errs...)
}

func (s *statefulSets) create(ctx context.Context, set *appsv1.StatefulSet, pod *corev1.Pod) error {
	made, err := client.Pods.Create(ctx, s.client, pod)
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	case err != nil:
		if ctx.Err() == nil {
			s.events.Event(set, corev1.EventTypeWarning, "FailedCreate", "create Pod %s in StatefulSet %s failed error: %v", pod.Name, set.Name, err)
		}
		return fmt.Errorf("create pod %s: %w", pod.Name, err)
	}
	s.events.Event(set, corev1.EventTypeNormal, "SuccessfulCreate", "create Pod %s in StatefulSet %s successful", pod.Name, set.Name)
	return s.work.cache.Await(ctx, made.ResourceVersion)
}

func (s *statefulSets) remove(ctx context.Context, set *appsv1.StatefulSet, pod *corev1.Pod) error {
	err := client.Pods.Delete(ctx, s.client, pod.Namespace, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
	case err != nil:
		if ctx.Err() == nil {
			s.events.Event(set, corev1.EventTypeWarning, "FailedDelete", "delete Pod %s in StatefulSet %s failed error: %v", pod.Name, set.Name, err)
		}
		return fmt.Errorf("delete pod %s: %w", pod.Name, err)
	default:
		s.events.Event(set, corev1.EventTypeNormal, "SuccessfulDelete", "delete Pod %s in StatefulSet %s successful", pod.Name, set.Name)
	}
	return s.work.cache.AwaitDeletion(ctx, pod)
}

func (s *statefulSets) collided(ctx context.Context, set *appsv1.StatefulSet) error {
	status := *set.Status.DeepCopy()
	count := int32(1)
	if status.CollisionCount != nil {
		count = *status.CollisionCount + 1
	}
	status.CollisionCount = &count
	return s.writeStatus(ctx, set, status)
}

func (s *statefulSets) writeStatus(ctx context.Context, set *appsv1.StatefulSet, status appsv1.StatefulSetStatus) error {
	if equality.Semantic.DeepEqual(status, set.Status) {
		return nil
	}
	told := set.DeepCopy()
	told.Status = status
	now, err := client.StatefulSets.Update(ctx, s.client, told, "status")
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("write status of statefulset %s/%s: %w", set.Namespace, set.Name, err)
	}
	return s.objects.Await(ctx, now.ResourceVersion)
}
