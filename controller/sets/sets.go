package sets

import (
	"context"
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/controller/dependents"
)

// A kind is what sets one kind of sets apart from the other.
type kind[T client.Object] interface {
	// recorded returns the content of the ControllerRevision of a set, without the owner.
	recorded(set T) recorded

	// collided returns a copy of the set after one more collision.
	collided(set T) T

	// act plans the next step of a set and carries it out. It returns when to look
	// again by the passing of time alone; 0 means never.
	act(ctx context.Context, set T, pods []*corev1.Pod, rec record) (after time.Duration, err error)

	// report returns a copy of the set with the status that is right, or the set
	// itself if it has that, and when that may change by the passing of time alone.
	report(set T, pods []*corev1.Pod, rec record) (updated T, after time.Duration)

	// uses reports whether the set, with the status of updated, or one of its pods is of a revision.
	uses(updated T, pods []*corev1.Pod, r *appsv1.ControllerRevision) bool
}

// sets keeps the pods of one kind of sets and the history of their templates.
type sets[T client.Object] struct {
	*dependents.Controller[T]
	kind    kind[T]
	pods    *dependents.Pods
	history history
}

// setOptions are the options that differ between the kinds of sets.
type setOptions[T client.Object] struct {
	name     string
	resource client.Resource[T]
	selector func(T) labels.Selector
	needs    []<-chan struct{}
}

func newSets[T client.Object](config controller.Config, pods *cache.Cache[*corev1.Pod], revisions *cache.Cache[*appsv1.ControllerRevision], o setOptions[T]) *sets[T] {
	s := &sets[T]{
		history: history{dependents.Claims[*appsv1.ControllerRevision]{Client: config.Client, Resource: client.ControllerRevisions, Cache: revisions}, &matches{}},
	}
	revisions.Subscribe(func(before, after *appsv1.ControllerRevision) {
		if after == nil {
			s.history.matches.forget(before)
		}
	})
	s.Controller = dependents.NewController(dependents.Options[T]{
		Name: o.name, Client: config.Client, Caches: config.Caches, Resource: o.resource, Selector: o.selector, Workers: config.Workers, Log: config.Log, Quarantine: config.Quarantine,
		Needs: append(o.needs, pods.Ready(), revisions.Ready()), Reconcile: s.reconcile,
	})
	s.pods = dependents.NewPods(s.Controller, pods)
	dependents.Follow(s.Controller, revisions)
	return s
}

func (s *sets[T]) reconcile(ctx context.Context, set T) (controller.Result, error) {
	kept := s.kind.recorded(set)
	kept.Owner = s.Owner(set)
	rec, err := s.history.sync(ctx, kept, func() error { return s.WriteStatus(ctx, s.kind.collided(set)) })
	if err != nil {
		return controller.Result{}, err
	}
	pods, err := s.pods.Claim(ctx, kept.Owner, "")
	if err != nil {
		return controller.Result{}, err
	}
	next, failure := s.kind.act(ctx, set, pods, rec)
	if ctx.Err() != nil {
		return controller.Result{}, nil
	}
	pods = s.pods.Mine(kept.Owner)
	updated, after := s.kind.report(set, pods, rec)
	if client.Object(updated) != client.Object(set) {
		if err := s.WriteStatus(ctx, updated); err != nil {
			return controller.Result{}, errors.Join(failure, err)
		}
	}
	if failure != nil {
		return controller.Result{}, failure
	}
	inUse := func(r *appsv1.ControllerRevision) bool { return s.kind.uses(updated, pods, r) }
	if err := s.history.forget(ctx, kept, rec, inUse); err != nil {
		return controller.Result{}, err
	}
	return controller.Result{After: dependents.Sooner(after, next)}, nil
}
