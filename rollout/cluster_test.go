package rollout_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/internal/leaktest"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/rollout"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const (
	bootTime = 2 * time.Second // from the making of a pod to its readiness
	stopTime = 3 * time.Second // from the deletion of a pod to its end
	evictIn  = time.Minute     // from the loss of a node to the deletion of its pods
)

// A testCluster is a cluster with a small replication controller and nodes. It creates and deletes pods, and adopts and
// releases them. A pod becomes ready after bootTime unless its image is bad, and ends stopTime after its deletion. A
// watcher checks the invariants after every change of a pod. It runs in a synctest bubble.
type testCluster struct {
	t     *testing.T
	s     *clienttest.Server
	group *run.Group
	stop  func()
	wake  func() // has the controllers look again

	mu       sync.Mutex
	min, max int                       // guarded by mu; what to check
	made     int                       // guarded by mu; pods made in all
	fault    string                    // guarded by mu; the first broken invariant
	seen     map[types.UID]*corev1.Pod // guarded by mu; pods as the watcher has them
	reaped   map[types.UID]bool        // guarded by mu; pods that are about to end
	lost     map[string]bool           // guarded by mu; nodes
}

// inCluster runs a test in a testCluster with these controllers.
func inCluster(t *testing.T, f func(t *testing.T, h *testCluster), rcs ...*corev1.ReplicationController) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newTestCluster(t, rcs...)
		defer h.stop()
		f(t, h)
	})
}

func newTestCluster(t *testing.T, rcs ...*corev1.ReplicationController) *testCluster {
	h := &testCluster{
		t: t, s: clienttest.New(t), max: 1 << 30,
		seen: map[types.UID]*corev1.Pod{}, reaped: map[types.UID]bool{}, lost: map[string]bool{},
	}
	for _, rc := range rcs {
		h.s.Set(t, rc)
	}
	quiet := slog.New(slog.DiscardHandler)
	changed := make(chan struct{}, 1)
	h.wake = func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	controllers := cache.New(h.s, client.ReplicationControllers, cache.Options[*corev1.ReplicationController]{Log: quiet})
	controllers.Subscribe(func(_, _ *corev1.ReplicationController) { h.wake() })
	pods := cache.New(h.s, client.Pods, cache.Options[*corev1.Pod]{Log: quiet})
	pods.Subscribe(func(before, after *corev1.Pod) {
		h.watch(before, after)
		h.wake()
	})
	h.group = run.NewGroup(t.Context(), 0)
	h.group.Go(func(ctx context.Context) { _ = controllers.Run(ctx) })
	h.group.Go(func(ctx context.Context) { _ = pods.Run(ctx) })
	h.group.Go(func(ctx context.Context) {
		for {
			select {
			case <-changed:
				h.control(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
	h.stop = sync.OnceFunc(h.group.Stop)
	return h
}

// watch sees one change and checks the invariants.
func (h *testCluster) watch(before, after *corev1.Pod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	what := ""
	switch after {
	case nil:
		delete(h.seen, before.UID)
		what = before.Name + " was gone"
	default:
		h.seen[after.UID] = after
		what = after.Name + " changed"
	}
	pods, readyPods := 0, 0
	for _, p := range h.seen {
		if p.DeletionTimestamp == nil {
			pods++
			if ready(p) {
				readyPods++
			}
		}
	}
	if h.fault == "" && (readyPods < h.min || pods > h.max) {
		h.fault = fmt.Sprintf("when %s: %d pods, %d ready; want at most %d, at least %d", what, pods, readyPods, h.max, h.min)
	}
}

// expect says what must hold from now on.
func (h *testCluster) expect(min, max int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.min, h.max = min, max
}

// control brings each controller one round further.
func (h *testCluster) control(ctx context.Context) {
	all, _, _ := client.Pods.List(ctx, h.s, "default", metav1.ListOptions{})
	for _, p := range all {
		if p.DeletionTimestamp != nil {
			h.reap(p)
		}
	}
	rcs, _, _ := client.ReplicationControllers.List(ctx, h.s, "default", metav1.ListOptions{})
	for _, rc := range rcs {
		if rc.DeletionTimestamp == nil {
			h.controlOne(ctx, rc)
		}
	}
}

func (h *testCluster) controlOne(ctx context.Context, rc *corev1.ReplicationController) {
	all, _, _ := client.Pods.List(ctx, h.s, "default", metav1.ListOptions{})
	var own []*corev1.Pod
	for _, p := range all {
		fits := labels.SelectorFromSet(rc.Spec.Selector).Matches(labels.Set(p.Labels))
		owner := metav1.GetControllerOf(p)
		switch {
		case owner == nil && fits && p.DeletionTimestamp == nil:
			p = p.DeepCopy()
			p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(rc, client.ReplicationControllers.GVK())}
			if q, err := client.Pods.Update(ctx, h.s, p, ""); err == nil {
				own = append(own, q)
			}
		case owner != nil && owner.UID == rc.UID && !fits && p.DeletionTimestamp == nil:
			p = p.DeepCopy()
			p.OwnerReferences = nil
			_, _ = client.Pods.Update(ctx, h.s, p, "")
		case owner != nil && owner.UID == rc.UID && p.DeletionTimestamp == nil:
			own = append(own, p)
		}
	}
	slices.SortFunc(own, func(a, b *corev1.Pod) int { // not ready first
		return strings.Compare(fmt.Sprint(ready(a), a.Name), fmt.Sprint(ready(b), b.Name))
	})
	want := int(*rc.Spec.Replicas)
	for n := len(own); n < want; n++ {
		if p := h.make(ctx, rc); p != nil {
			own = append(own, p)
		}
	}
	for len(own) > want {
		_ = client.Pods.Delete(ctx, h.s, "default", own[0].Name, metav1.DeleteOptions{})
		own = own[1:]
	}
	status := corev1.ReplicationControllerStatus{ObservedGeneration: rc.Generation, Replicas: int32(len(own))}
	for _, p := range own {
		if ready(p) {
			status.ReadyReplicas++
		}
	}
	if len(own) < want && rc.Spec.Template.Spec.Containers[0].Image == "invalid" {
		status.Conditions = []corev1.ReplicationControllerCondition{{
			Type: corev1.ReplicationControllerReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate",
			Message: `Pod "web-x" is invalid: spec.containers[0].image: Invalid value: "v2 "`,
		}}
	}
	rc = rc.DeepCopy()
	rc.Status = status
	_, _ = client.ReplicationControllers.Update(ctx, h.s, rc, "status")
}

func (h *testCluster) make(ctx context.Context, rc *corev1.ReplicationController) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: *rc.Spec.Template.ObjectMeta.DeepCopy(), Spec: *rc.Spec.Template.Spec.DeepCopy()}
	if p.Spec.Containers[0].Image == "invalid" {
		return nil
	}
	p.Namespace, p.GenerateName = "default", rc.Name+"-"
	p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(rc, client.ReplicationControllers.GVK())}
	h.mu.Lock()
	p.Spec.NodeName = "node-" + strconv.Itoa(h.made%2)
	if h.lost[p.Spec.NodeName] {
		p.Spec.NodeName = "node-2"
	}
	h.made++
	h.mu.Unlock()
	p, err := client.Pods.Create(ctx, h.s, p)
	if err != nil {
		return nil
	}
	images := ""
	for _, c := range p.Spec.Containers {
		images += c.Image + " "
	}
	switch {
	case strings.Contains(images, "slow"): // it never gets there
	case strings.Contains(images, "bad"):
		h.status(ctx, p.Name, func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "InvalidImageName"}}}}
		})
	case strings.Contains(images, "flappy"):
		h.group.Go(func(ctx context.Context) {
			for is := true; run.Pause(ctx, 3*bootTime); is = !is {
				h.setReady(ctx, p.Name, is)
			}
		})
	default:
		h.group.Go(func(ctx context.Context) {
			if run.Pause(ctx, bootTime) {
				h.setReady(ctx, p.Name, true)
			}
		})
	}
	return p
}

// reap ends a pod some time after its deletion was asked for.
func (h *testCluster) reap(p *corev1.Pod) {
	h.mu.Lock()
	under := h.reaped[p.UID] || h.lost[p.Spec.NodeName]
	h.reaped[p.UID] = true
	h.mu.Unlock()
	if under {
		return
	}
	h.group.Go(func(ctx context.Context) {
		if run.Pause(ctx, stopTime) {
			now := int64(0)
			_ = client.Pods.Delete(ctx, h.s, "default", p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &p.UID}})
		}
	})
}

// lose simulates the loss of a node: its pods become unready, and after evictIn they are deleted, but never terminate.
func (h *testCluster) lose(node string) {
	h.mu.Lock()
	h.lost[node] = true
	h.mu.Unlock()
	h.group.Go(func(ctx context.Context) {
		for _, p := range clienttest.All(h.s, client.Pods, "default") {
			if p.Spec.NodeName == node {
				h.setReady(ctx, p.Name, false)
			}
		}
		if !run.Pause(ctx, evictIn) {
			return
		}
		for _, p := range clienttest.All(h.s, client.Pods, "default") {
			if p.Spec.NodeName == node {
				_ = client.Pods.Delete(ctx, h.s, "default", p.Name, metav1.DeleteOptions{})
			}
		}
	})
}

func (h *testCluster) setReady(ctx context.Context, name string, is bool) {
	h.status(ctx, name, func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		c := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.Now()}
		if is {
			c.Status = corev1.ConditionTrue
		}
		p.Status.Conditions = []corev1.PodCondition{c}
	})
}

func (h *testCluster) status(ctx context.Context, name string, change func(*corev1.Pod)) {
	for {
		p := clienttest.Find(h.s, client.Pods, "default", name)
		if p == nil {
			return
		}
		p = p.DeepCopy()
		change(p)
		if _, err := client.Pods.Update(ctx, h.s, p, "status"); !apierrors.IsConflict(err) {
			return
		}
	}
}

func ready(p *corev1.Pod) bool {
	return len(p.Status.Conditions) > 0 && p.Status.Conditions[0].Status == corev1.ConditionTrue
}

// settled waits until a controller has its pods, and says from now on what must
// hold.
func (h *testCluster) settled(name string, want, min, max int) {
	h.t.Helper()
	h.s.Await(h.t, func() error {
		rc := clienttest.Find(h.s, client.ReplicationControllers, "default", name)
		if rc == nil || int(rc.Status.ReadyReplicas) != want || int(rc.Status.Replicas) != want || rc.Status.ObservedGeneration < rc.Generation {
			return fmt.Errorf("%s is not settled", name)
		}
		return nil
	})
	synctest.Wait()
	h.expect(min, max)
}

// end checks the state that every way of updating web must lead to: one controller
// with its pods, and no trace of the update.
func (h *testCluster) end(name, image string, want, made int) {
	h.t.Helper()
	h.ends(name, image, want, made)
	if rcs := clienttest.All(h.s, client.ReplicationControllers, "default"); len(rcs) != 1 {
		h.t.Fatalf("%d controllers are left, want 1", len(rcs))
	}
}

// leftOn returns the annotations of a controller without the result of its last update.
func leftOn(rc *corev1.ReplicationController) map[string]string {
	left := maps.Clone(rc.Annotations)
	delete(left, "sampan.dev/rollout-last")
	delete(left, "sampan.dev/rollout-replaced")
	return left
}

// ends checks the same of one of several controllers; all pods must be its, but for
// those of strangers.
func (h *testCluster) ends(name, image string, want, made int, strangers ...string) {
	h.t.Helper()
	h.settled(name, want, 0, 1<<30)
	run.Pause(h.t.Context(), 2*stopTime) // what is being deleted goes
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fault != "" {
		h.t.Error(h.fault)
	}
	if made > 0 && h.made != made {
		h.t.Errorf("%d pods were made in all, want %d", h.made, made)
	}
	rc := clienttest.Find(h.s, client.ReplicationControllers, "default", name)
	if len(leftOn(rc)) > 0 || rc.Spec.Template.Spec.Containers[0].Image != image || int(*rc.Spec.Replicas) != want {
		h.t.Errorf("left is %s, %v, %s, %d; want %s without annotations, %s, %d", rc.Name, rc.Annotations,
			rc.Spec.Template.Spec.Containers[0].Image, *rc.Spec.Replicas, name, image, want)
	}
	n := 0
	for _, p := range clienttest.All(h.s, client.Pods, "default") {
		owner := metav1.GetControllerOf(p)
		if h.lost[p.Spec.NodeName] || owner != nil && slices.Contains(strangers, owner.Name) {
			continue
		}
		n++
		if p.Spec.Containers[0].Image != image || !metav1.IsControlledBy(p, rc) {
			h.t.Errorf("pod %s runs %s and belongs to %v", p.Name, p.Spec.Containers[0].Image, p.OwnerReferences)
		}
	}
	if n != want {
		h.t.Errorf("%d pods, want %d", n, want)
	}
}

func web(n int32) *corev1.ReplicationController {
	grace := int64(30)
	return &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.ReplicationControllerSpec{
			Replicas: &n,
			Selector: map[string]string{"app": "web"},
			Template: &corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
				Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{Name: "main", Image: "v1"}}},
			},
		},
	}
}

// update runs an update and returns what it printed.
func (h *testCluster) update(c client.Interface, ctx context.Context, change func(*rollout.Options)) (string, error) { // a client to break comes first
	_, text, err := h.outcome(c, ctx, change)
	return text, err
}

func (h *testCluster) outcome(c client.Interface, ctx context.Context, change func(*rollout.Options)) (rollout.Outcome, string, error) {
	var out bytes.Buffer
	o := rollout.Options{
		Client: c, Namespace: "default", Old: "web", Image: "v2", Timeout: 5 * time.Minute,
		Out: &out, Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&o)
	}
	u, err := rollout.New(o)
	if err != nil {
		return rollout.Outcome{}, "", err
	}
	result, err := u.Run(ctx)
	return result, out.String(), err
}

func (h *testCluster) mustUpdate(change func(*rollout.Options)) string {
	h.t.Helper()
	out, err := h.update(h.s, h.t.Context(), change)
	if err != nil {
		h.t.Fatalf("Run = %v after\n%s", err, out)
	}
	return out
}
