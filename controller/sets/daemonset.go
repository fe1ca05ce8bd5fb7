package sets

import (
	"context"
	"errors"
	"slices"
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

// daemonSets keeps the pods of DaemonSets.
type daemonSets struct {
	*sets[*appsv1.DaemonSet]
	nodes    *cache.Cache[*corev1.Node]
	failures backoff
}

func newDaemonSets(config controller.Config, pods *cache.Cache[*corev1.Pod], revisions *cache.Cache[*appsv1.ControllerRevision]) *daemonSets {
	d := &daemonSets{
		nodes:    cache.Of(config.Caches, client.Nodes, nil),
		failures: newBackoff(),
	}
	d.sets = newSets(config, pods, revisions, setOptions[*appsv1.DaemonSet]{
		name: "daemonset-controller", resource: client.DaemonSets, needs: []<-chan struct{}{d.nodes.Ready()},
		selector: func(set *appsv1.DaemonSet) labels.Selector { return dependents.Selector(set.Spec.Selector) },
	})
	d.kind = d
	d.nodes.Subscribe(d.nodeChanged)
	return d
}

// nodeChanged wakes all sets when a node comes, goes, or is another one for them. That
// a node is alive concerns none.
func (d *daemonSets) nodeChanged(before, after *corev1.Node) {
	if before != nil && after != nil &&
		equality.Semantic.DeepEqual(before.Labels, after.Labels) && equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints) {
		return
	}
	for _, one := range d.Objects.List("") {
		d.Loop.Add(controller.KeyOf(one))
	}
}

func (*daemonSets) recorded(set *appsv1.DaemonSet) recorded {
	return recorded{
		template: &set.Spec.Template, limit: set.Spec.RevisionHistoryLimit,
		collisions: set.Status.CollisionCount, hashLabel: revisionLabel,
	}
}

func (*daemonSets) collided(set *appsv1.DaemonSet) *appsv1.DaemonSet {
	told := set.DeepCopy()
	told.Status.CollisionCount = dependents.NextCollision(set.Status.CollisionCount)
	return told
}

func (*daemonSets) uses(_ *appsv1.DaemonSet, pods []*corev1.Pod, r *appsv1.ControllerRevision) bool {
	return slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.Labels[revisionLabel] == r.Labels[revisionLabel] })
}

func (d *daemonSets) view(set *appsv1.DaemonSet, pods []*corev1.Pod, rec record) *daemonView {
	return &daemonView{set: set, pods: pods, nodes: d.nodes.List(""), hash: hashOf(rec), now: time.Now(), pause: func(node string) time.Duration {
		return d.failures.left(placeKey{set.UID, node}, time.Now())
	}}
}

// hashOf returns the hash of the present template.
func hashOf(rec record) string {
	if rec.present == nil {
		return ""
	}
	return rec.present.Labels[revisionLabel]
}

func (d *daemonSets) report(set *appsv1.DaemonSet, pods []*corev1.Pod, rec record) (*appsv1.DaemonSet, time.Duration) {
	status, after := d.view(set, pods, rec).status()
	if equality.Semantic.DeepEqual(status, set.Status) {
		return set, after
	}
	told := set.DeepCopy()
	told.Status = status
	return told, after
}

func (d *daemonSets) act(ctx context.Context, set *appsv1.DaemonSet, pods []*corev1.Pod, rec record) (time.Duration, error) {
	v := d.view(set, pods, rec)
	plan := v.plan()
	for _, pod := range plan.failed {
		d.failures.add(placeKey{set.UID, meantFor(pod)}, v.now)
		kind, reason, what := corev1.EventTypeWarning, "FailedDaemonPod", "failed"
		if pod.Status.Phase == corev1.PodSucceeded {
			kind, reason, what = corev1.EventTypeNormal, "SucceededDaemonPod", "succeeded"
		}
		d.Events.Event(set, kind, reason, "Found %s daemon pod %s/%s on node %s, will try to delete it", what, pod.Namespace, pod.Name, meantFor(pod))
	}
	var errs []error
	if gone := slices.Concat(plan.failed, plan.remove); len(gone) > 0 {
		errs = append(errs, d.pods.Remove(ctx, set, gone, ""))
	}
	if len(plan.create) > 0 {
		errs = append(errs, d.pods.Create(ctx, set, len(plan.create), func(i int) *corev1.Pod {
			return daemonFrom(set, hashOf(rec), plan.create[i])
		}))
	}
	return plan.after, errors.Join(errs...)
}
