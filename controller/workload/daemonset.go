package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/run"
)

// daemonSets keeps the pods of DaemonSets.
type daemonSets struct {
	client  client.Interface
	objects *cache.Cache[*appsv1.DaemonSet]
	nodes   *cache.Cache[*corev1.Node]
	work    *podWork
	history *history
	events  *client.Recorder
	loop    *controller.Loop
	spared  sparing
}

func newDaemonSets(opts Options, pods *cache.Cache[*corev1.Pod], revisions *cache.Cache[*appsv1.ControllerRevision]) (*daemonSets, []run.Task) {
	const name = "daemonset-controller"
	events := client.NewRecorder(opts.Client, name, "", opts.Log)
	d := &daemonSets{
		client:  opts.Client,
		objects: cache.Of(opts.Caches, client.DaemonSets, nil),
		nodes:   cache.Of(opts.Caches, client.Nodes, nil),
		work:    newPodWork(opts.Client, pods, events),
		history: newHistory(opts.Client, revisions),
		events:  events,
		spared:  sparing{nodes: map[berthKey]*spare{}},
	}
	d.loop = controller.New(controller.Options{
		Name: name, Reconcile: d.reconcile, Workers: opts.Workers,
		Needs: []<-chan struct{}{d.objects.Ready(), d.nodes.Ready(), pods.Ready(), revisions.Ready()}, Log: opts.Log,
	})
	wakeBy(d.objects, d.loop)
	d.nodes.Subscribe(d.nodeChanged)
	d.history.wake(client.DaemonSets.Kind, d.loop, d.matching)
	return d, []run.Task{
		{Name: name + "-events", Run: events.Run},
		d.loop.Task(),
	}
}

// nodeChanged wakes all sets when a node comes, goes, or is another one for them. That
// a node is alive concerns none.
func (d *daemonSets) nodeChanged(before, after *corev1.Node) {
	if before != nil && after != nil &&
		equality.Semantic.DeepEqual(before.Labels, after.Labels) && equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints) {
		return
	}
	for _, one := range d.objects.List("") {
		d.loop.Add(controller.KeyOf(one))
	}
}

// matching returns the sets that select what has those labels.
func (d *daemonSets) matching(namespace string, set labels.Set) (keys []controller.Key) {
	for _, one := range d.objects.List(namespace) {
		if labelSelector(one.Spec.Selector).Matches(set) {
			keys = append(keys, controller.KeyOf(one))
		}
	}
	return keys
}

// podChanged wakes the sets that a changed pod concerns.
func (d *daemonSets) podChanged(before, after *corev1.Pod) {
	for _, pod := range []*corev1.Pod{before, after} {
		if pod == nil {
			continue
		}
		if key, ok := ownerKey(pod, client.DaemonSets.Kind); ok {
			d.loop.Add(key)
		} else if pod == after && metav1.GetControllerOfNoCopy(pod) == nil {
			for _, key := range d.matching(pod.Namespace, labels.Set(pod.Labels)) {
				d.loop.Add(key)
			}
		}
	}
}

func recordedDaemon(set *appsv1.DaemonSet) recorded {
	return recorded{
		Object: set, selector: set.Spec.Selector, template: &set.Spec.Template, limit: set.Spec.RevisionHistoryLimit,
		collisions: set.Status.CollisionCount, hashLabel: revisionLabel,
	}
}

func (d *daemonSets) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	set, ok := d.objects.Get(key.Namespace, key.Name)
	if !ok {
		return controller.Result{}, nil
	}
	ownerNow := func(ctx context.Context) (client.Object, error) {
		return client.DaemonSets.Get(ctx, d.client, key.Namespace, key.Name)
	}
	kept := recordedDaemon(set)
	rec, err := d.history.sync(ctx, kept, ownerNow, func() error { return d.collided(ctx, set) })
	if err != nil {
		return controller.Result{}, err
	}
	selector := labelSelector(set.Spec.Selector)
	pods, err := d.work.claim(ctx, set, ownerNow, selector, "")
	if err != nil {
		return controller.Result{}, err
	}
	v := &daemonView{set: set, pods: pods, nodes: d.nodes.List(""), now: time.Now(), pause: func(node string) time.Duration {
		return d.spared.left(berthKey{set.UID, node}, time.Now())
	}}
	if rec.present != nil {
		v.hash = rec.present.Labels[revisionLabel]
	}
	plan := v.plan()
	failure := d.carryOut(ctx, v, plan)
	if ctx.Err() != nil {
		return controller.Result{}, nil
	}
	v.pods, v.now = planClaim(set, selector, d.work.candidates(set)).mine, time.Now()
	status, after := v.status()
	if err := d.writeStatus(ctx, set, status); err != nil {
		return controller.Result{}, errors.Join(failure, err)
	}
	if failure != nil {
		return controller.Result{}, failure
	}
	inUse := func(r *appsv1.ControllerRevision) bool {
		return slices.ContainsFunc(v.pods, func(p *corev1.Pod) bool { return p.Labels[revisionLabel] == r.Labels[revisionLabel] })
	}
	if err := d.history.forget(ctx, kept, rec, inUse); err != nil {
		return controller.Result{}, err
	}
	plan.again(after)
	return controller.Result{After: plan.after}, nil
}

func (d *daemonSets) carryOut(ctx context.Context, v *daemonView, plan daemonPlan) error {
	for _, pod := range plan.failed {
		d.spared.spare(berthKey{v.set.UID, meantFor(pod)}, v.now)
		kind, reason, what := corev1.EventTypeWarning, "FailedDaemonPod", "failed"
		if pod.Status.Phase == corev1.PodSucceeded {
			kind, reason, what = corev1.EventTypeNormal, "SucceededDaemonPod", "succeeded"
		}
		d.events.Event(v.set, kind, reason, "Found %s daemon pod %s/%s on node %s, will try to delete it", what, pod.Namespace, pod.Name, meantFor(pod))
	}
	var errs []error
	if gone := slices.Concat(plan.failed, plan.remove); len(gone) > 0 {
		errs = append(errs, d.work.remove(ctx, v.set, gone, ""))
	}
	if len(plan.create) > 0 {
		errs = append(errs, d.work.create(ctx, v.set, len(plan.create), func(i int) *corev1.Pod {
			return daemonFrom(v.set, v.hash, plan.create[i])
		}))
	}
	return errors.Join(errs...)
}

func (d *daemonSets) collided(ctx context.Context, set *appsv1.DaemonSet) error {
	status := *set.Status.DeepCopy()
	count := int32(1)
	if status.CollisionCount != nil {
		count = *status.CollisionCount + 1
	}
	status.CollisionCount = &count
	return d.writeStatus(ctx, set, status)
}

func (d *daemonSets) writeStatus(ctx context.Context, set *appsv1.DaemonSet, status appsv1.DaemonSetStatus) error {
	if equality.Semantic.DeepEqual(status, set.Status) {
		return nil
	}
	told := set.DeepCopy()
	told.Status = status
	now, err := client.DaemonSets.Update(ctx, d.client, told, "status")
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("write status of daemonset %s/%s: %w", set.Namespace, set.Name, err)
	}
	return d.objects.Await(ctx, now.ResourceVersion)
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
