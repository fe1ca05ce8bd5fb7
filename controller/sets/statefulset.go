package sets

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/controller/dependents"
)

// statefulSets keeps the pods of StatefulSets.
type statefulSets struct {
	*sets[*appsv1.StatefulSet]
	claims   *cache.Cache[*corev1.PersistentVolumeClaim]
	failures backoff
}

func newStatefulSets(config controller.Config, pods *cache.Cache[*corev1.Pod], revisions *cache.Cache[*appsv1.ControllerRevision]) statefulSets {
	s := statefulSets{
		claims: cache.Of(config.Caches, client.PersistentVolumeClaims, nil), failures: newBackoff(),
	}
	s.sets = newSets(config, pods, revisions, setOptions[*appsv1.StatefulSet]{
		name: "statefulset-controller", resource: client.StatefulSets, needs: []<-chan struct{}{s.claims.Ready()},
		selector: func(set *appsv1.StatefulSet) labels.Selector { return dependents.Selector(set.Spec.Selector) },
	})
	s.claims.Subscribe(s.claimChanged)
	s.kind = s
	s.pods.Fits = func(owner client.Object, pod *corev1.Pod) bool {
		_, ok := ordinalOf(owner.GetName(), pod.Name)
		return ok
	}
	s.pods.Word = func(did dependents.Deed, owner client.Object, pod string, err error) string {
		outcome := "successful"
		if err != nil {
			outcome = fmt.Sprintf("failed error: %v", err)
		}
		return fmt.Sprintf("%s Pod %s in StatefulSet %s %s", strings.ToLower(string(did)), pod, owner.GetName(), outcome)
	}
	pods.Subscribe(s.podGone)
	return s
}

// podGone wakes the set that may wait for the name of a pod that is gone.
func (s statefulSets) podGone(before, after *corev1.Pod) {
	if after != nil {
		return
	}
	if i := strings.LastIndexByte(before.Name, '-'); i > 0 {
		if one, ok := s.Objects.Get(before.Namespace, before.Name[:i]); ok {
			s.Loop.Add(controller.KeyOf(one))
		}
	}
}

func (statefulSets) recorded(set *appsv1.StatefulSet) recorded {
	return recorded{
		template: &set.Spec.Template, limit: set.Spec.RevisionHistoryLimit,
		collisions: set.Status.CollisionCount, hashLabel: recordedHash,
	}
}

func (statefulSets) collided(set *appsv1.StatefulSet) *appsv1.StatefulSet {
	updated := set.DeepCopy()
	updated.Status.CollisionCount = dependents.NextCollision(set.Status.CollisionCount)
	return updated
}

func (statefulSets) uses(updated *appsv1.StatefulSet, pods []*corev1.Pod, r *appsv1.ControllerRevision) bool {
	return r.Name == updated.Status.CurrentRevision || slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return revisionOfPod(p) == r.Name })
}

func (statefulSets) report(set *appsv1.StatefulSet, pods []*corev1.Pod, rec record) (*appsv1.StatefulSet, time.Duration) {
	status, after := newStatefulView(set, pods, rec, time.Now()).status()
	if equality.Semantic.DeepEqual(status, set.Status) {
		return set, after
	}
	updated := set.DeepCopy()
	updated.Status = status
	return updated, after
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

func (s statefulSets) act(ctx context.Context, set *appsv1.StatefulSet, pods []*corev1.Pod, rec record) (time.Duration, error) {
	v := newStatefulView(set, pods, rec, time.Now())
	v.claims = func(name string) (*corev1.PersistentVolumeClaim, bool) { return s.claims.Get(set.Namespace, name) }
	v.pause = func(pod string) time.Duration { return s.failures.left(placeKey{set.UID, pod}, v.now) }
	plan := v.plan()
	if err := s.keepClaims(ctx, set, plan.claims); err != nil {
		return plan.after, err
	}
	var errs []error
	for _, pod := range plan.label {
		n, _ := ordinalOf(set.Name, pod.Name)
		errs = append(errs, s.pods.Patch(ctx, pod, map[string]any{"uid": pod.UID, "labels": map[string]string{
			appsv1.StatefulSetPodNameLabel: pod.Name, appsv1.PodIndexLabel: strconv.Itoa(n),
		}}))
	}
	for _, pod := range plan.restart {
		s.failures.add(placeKey{set.UID, pod.Name}, v.now)
		s.Events.Event(set, corev1.EventTypeWarning, "RecreatingFailedPod", "StatefulSet %s/%s is recreating failed Pod %s", set.Namespace, set.Name, pod.Name)
	}
	if gone := slices.Concat(plan.restart, plan.remove); len(gone) > 0 {
		errs = append(errs, s.pods.Remove(ctx, set, gone, ""))
	}
	if len(plan.create) > 0 {
		templates := map[string]*corev1.PodTemplateSpec{}
		for _, r := range rec.all {
			if !slices.ContainsFunc(plan.create, func(p statefulPod) bool { return p.revision == r.Name }) {
				continue
			}
			t, err := templateOf(r)
			if err != nil {
				return plan.after, err
			}
			templates[r.Name] = t
		}
		errs = append(errs, s.pods.Create(ctx, set, len(plan.create), func(i int) *corev1.Pod {
			one := plan.create[i]
			return statefulFrom(set, templates[one.revision], one)
		}))
	}
	return plan.after, errors.Join(errs...)
}
