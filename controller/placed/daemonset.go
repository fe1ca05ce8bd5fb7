package placed

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/controller/owned"
)

// daemonSets keeps the pods of DaemonSets.
type daemonSets struct {
	*sets[*appsv1.DaemonSet]
	nodes  *cache.Cache[*corev1.Node]
	spared sparing
}

func newDaemonSets(opts Options, pods *cache.Cache[*corev1.Pod], revisions *cache.Cache[*appsv1.ControllerRevision]) *daemonSets {
	d := &daemonSets{
		nodes:  cache.Of(opts.Caches, client.Nodes, nil),
		spared: sparing{nodes: map[berthKey]*spare{}},
	}
	d.sets = newSets(opts, pods, revisions, setOptions[*appsv1.DaemonSet]{
		name: "daemonset-controller", resource: client.DaemonSets, needs: []<-chan struct{}{d.nodes.Ready()},
		selector: func(set *appsv1.DaemonSet) labels.Selector { return owned.Selector(set.Spec.Selector) },
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
	told.Status.CollisionCount = owned.NextCollision(set.Status.CollisionCount)
	return told
}

func (*daemonSets) uses(_ *appsv1.DaemonSet, pods []*corev1.Pod, r *appsv1.ControllerRevision) bool {
	return slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.Labels[revisionLabel] == r.Labels[revisionLabel] })
}

func (d *daemonSets) view(set *appsv1.DaemonSet, pods []*corev1.Pod, rec record) *daemonView {
	return &daemonView{set: set, pods: pods, nodes: d.nodes.List(""), hash: hashOf(rec), now: time.Now(), pause: func(node string) time.Duration {
		return d.spared.left(berthKey{set.UID, node}, time.Now())
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
		d.spared.spare(berthKey{set.UID, meantFor(pod)}, v.now)
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

// A node on which pods of a set end is given the next one after firstSpare, and after
// each further failure after twice as long, up to longestSpare; what was quiet for that
// long begins anew.
const (
	firstSpare   = time.Second
	longestSpare = 15 * time.Minute
)

// A berthKey is a DaemonSet and a node.
type berthKey struct {
	set  types.UID
	node string
}

type spare struct {
	pause time.Duration
	until time.Time
}

// sparing remembers where pods ended, because they themselves are deleted. It is lost in
// a restart, which costs one try.
type sparing struct {
	mu    sync.Mutex
	nodes map[berthKey]*spare // guarded by mu
}

func (s *sparing) spare(key berthKey, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, old := range s.nodes { // there are few, and this is rare
		if now.Sub(old.until) > longestSpare {
			delete(s.nodes, k)
		}
	}
	one := s.nodes[key]
	if one == nil {
		one = &spare{pause: firstSpare / 2}
		s.nodes[key] = one
	}
	one.pause = min(2*one.pause, longestSpare)
	one.until = now.Add(one.pause)
}

func (s *sparing) left(key berthKey, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.nodes[key]; one != nil {
		return one.until.Sub(now)
	}
	return 0
}
