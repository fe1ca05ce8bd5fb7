package rollout_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/rollout"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A harbour is a cluster with a small replication controller: it makes and
// deletes pods, adopts and releases them, and has each become ready unless its
// image is bad. It checks the invariants after everything that it does.
type harbour struct {
	t    *testing.T
	s    *clienttest.Server
	stop func()

	mu       sync.Mutex
	min, max int    // guarded by mu; what to check
	made     int    // guarded by mu; pods made in all
	fault    string // guarded by mu; the first broken invariant
}

func newHarbour(t *testing.T, rcs ...*corev1.ReplicationController) *harbour {
	h := &harbour{t: t, s: clienttest.New(t), max: 1 << 30}
	for _, rc := range rcs {
		h.s.Set(t, rc)
	}
	quiet := slog.New(slog.DiscardHandler)
	changed := make(chan struct{}, 1)
	wake := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	controllers := cache.New(h.s, client.ReplicationControllers, cache.Options[*corev1.ReplicationController]{Log: quiet})
	controllers.Subscribe(func(_, _ *corev1.ReplicationController) { wake() })
	pods := cache.New(h.s, client.Pods, cache.Options[*corev1.Pod]{Log: quiet})
	pods.Subscribe(func(_, _ *corev1.Pod) { wake() })
	g := run.NewGroup(t.Context(), 0)
	g.Go(func(ctx context.Context) { _ = controllers.Run(ctx) })
	g.Go(func(ctx context.Context) { _ = pods.Run(ctx) })
	g.Go(func(ctx context.Context) {
		for {
			select {
			case <-changed:
				h.control(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
	h.stop = sync.OnceFunc(g.Stop)
	t.Cleanup(h.stop)
	return h
}

// control brings each controller one round further.
func (h *harbour) control(ctx context.Context) {
	rcs, _, _ := client.ReplicationControllers.List(ctx, h.s, "default", metav1.ListOptions{})
	for _, rc := range rcs {
		if rc.DeletionTimestamp != nil {
			continue
		}
		all, _, _ := client.Pods.List(ctx, h.s, "default", metav1.ListOptions{})
		var own []*corev1.Pod
		for _, p := range all {
			fits := labels.SelectorFromSet(rc.Spec.Selector).Matches(labels.Set(p.Labels))
			owner := metav1.GetControllerOf(p)
			switch {
			case owner == nil && fits:
				p = p.DeepCopy()
				p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(rc, client.ReplicationControllers.GVK())}
				if q, err := client.Pods.Update(ctx, h.s, p, ""); err == nil {
					own = append(own, q)
				}
			case owner != nil && owner.UID == rc.UID && !fits:
				p = p.DeepCopy()
				p.OwnerReferences = nil
				_, _ = client.Pods.Update(ctx, h.s, p, "")
			case owner != nil && owner.UID == rc.UID:
				own = append(own, p)
			}
		}
		slices.SortFunc(own, func(a, b *corev1.Pod) int { // not ready first
			return strings.Compare(fmt.Sprint(ready(a), a.Name), fmt.Sprint(ready(b), b.Name))
		})
		want := int(*rc.Spec.Replicas)
		for n := len(own); n < want; n++ {
			h.make(ctx, rc)
		}
		for len(own) > want {
			_ = client.Pods.Delete(ctx, h.s, "default", own[0].Name, metav1.DeleteOptions{})
			own = own[1:]
			h.check("a pod of " + rc.Name + " went")
		}
		status := corev1.ReplicationControllerStatus{ObservedGeneration: rc.Generation, Replicas: int32(want)}
		for _, p := range own {
			if ready(p) {
				status.ReadyReplicas++
			}
		}
		rc = rc.DeepCopy()
		rc.Status = status
		_, _ = client.ReplicationControllers.Update(ctx, h.s, rc, "status")
	}
}

func (h *harbour) make(ctx context.Context, rc *corev1.ReplicationController) {
	p := &corev1.Pod{ObjectMeta: *rc.Spec.Template.ObjectMeta.DeepCopy(), Spec: *rc.Spec.Template.Spec.DeepCopy()}
	p.Namespace, p.GenerateName = "default", rc.Name+"-"
	p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(rc, client.ReplicationControllers.GVK())}
	p, err := client.Pods.Create(ctx, h.s, p)
	if err != nil {
		return
	}
	h.mu.Lock()
	h.made++
	h.mu.Unlock()
	h.check("a pod of " + rc.Name + " came")
	p = p.DeepCopy()
	switch image := p.Spec.Containers[0].Image; image {
	case "slow":
		return
	case "bad":
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "InvalidImageName"}}}}
	default:
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	_, _ = client.Pods.Update(ctx, h.s, p, "status")
}

func ready(p *corev1.Pod) bool {
	return len(p.Status.Conditions) > 0 && p.Status.Conditions[0].Status == corev1.ConditionTrue
}

func (h *harbour) check(when string) {
	pods, readyPods := 0, 0
	for _, p := range clienttest.All(h.s, client.Pods, "default") {
		pods++
		if ready(p) {
			readyPods++
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fault == "" && (readyPods < h.min || pods > h.max) {
		h.fault = fmt.Sprintf("when %s: %d pods, %d ready; want at most %d, at least %d", when, pods, readyPods, h.max, h.min)
	}
}

// settled waits until a controller has its pods, and says from now on what must
// hold.
func (h *harbour) settled(name string, want, min, max int) {
	h.t.Helper()
	h.s.Await(h.t, func() error {
		rc := clienttest.Find(h.s, client.ReplicationControllers, "default", name)
		if rc == nil || int(rc.Status.ReadyReplicas) != want || rc.Status.ObservedGeneration < rc.Generation {
			return fmt.Errorf("%s is not settled", name)
		}
		return nil
	})
	h.mu.Lock()
	h.min, h.max = min, max
	h.mu.Unlock()
}

// end checks the state that every way of updating web to v2 must lead to.
func (h *harbour) end(name, image string, want, made int) {
	h.t.Helper()
	h.settled(name, want, 0, 1<<30)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fault != "" {
		h.t.Error(h.fault)
	}
	if made > 0 && h.made != made {
		h.t.Errorf("%d pods were made in all, want %d", h.made, made)
	}
	rcs := clienttest.All(h.s, client.ReplicationControllers, "default")
	if len(rcs) != 1 {
		h.t.Fatalf("%d controllers are left, want 1", len(rcs))
	}
	rc := rcs[0]
	if rc.Name != name || len(rc.Annotations) > 0 || rc.Spec.Template.Spec.Containers[0].Image != image || int(*rc.Spec.Replicas) != want {
		h.t.Errorf("left is %s, %v, %s, %d; want %s without annotations, %s, %d", rc.Name, rc.Annotations,
			rc.Spec.Template.Spec.Containers[0].Image, *rc.Spec.Replicas, name, image, want)
	}
	pods := clienttest.All(h.s, client.Pods, "default")
	for _, p := range pods {
		if p.Spec.Containers[0].Image != image || !metav1.IsControlledBy(p, rc) {
			h.t.Errorf("pod %s runs %s and belongs to %v", p.Name, p.Spec.Containers[0].Image, p.OwnerReferences)
		}
	}
	if len(pods) != want {
		h.t.Errorf("%d pods, want %d", len(pods), want)
	}
}

func web(n int32) *corev1.ReplicationController {
	return &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.ReplicationControllerSpec{
			Replicas: &n,
			Selector: map[string]string{"app": "web"},
			Template: &corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "v1"}}},
			},
		},
	}
}

// update runs an update and returns what it printed.
func (h *harbour) update(c client.Interface, ctx context.Context, change func(*rollout.Options)) (string, error) { // a client to break comes first
	var out bytes.Buffer
	o := rollout.Options{
		Client: c, Namespace: "default", Old: "web", Image: "v2", Timeout: 20 * time.Second,
		Out: &out, Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&o)
	}
	u, err := rollout.New(o)
	if err != nil {
		return "", err
	}
	err = u.Run(ctx)
	return out.String(), err
}

func (h *harbour) mustUpdate(change func(*rollout.Options)) string {
	h.t.Helper()
	out, err := h.update(h.s, h.t.Context(), change)
	if err != nil {
		h.t.Fatalf("Run = %v after\n%s", err, out)
	}
	return out
}

func TestAnUpdateKeepsTheNameAndRestartsNoPodForIt(t *testing.T) {
	h := newHarbour(t, web(3))
	h.settled("web", 3, 3, 4)
	out := h.mustUpdate(nil)
	h.end("web", "v2", 3, 6)
	name := strings.TrimPrefix(strings.SplitN(out, "\n", 2)[0], "Created ")
	want := strings.ReplaceAll(`Created NEW
Scaling up NEW from 0 to 3, scaling down web from 3 to 0 (keep 3 pods available, don't exceed 4 pods)
Scaling NEW up to 1
Scaling web down to 2
Scaling NEW up to 2
Scaling web down to 1
Scaling NEW up to 3
Scaling web down to 0
Update succeeded. Deleting old controller: web
Renaming NEW to web
`, "NEW", name)
	if out != want {
		t.Errorf("it printed\n%s\nwant\n%s", out, want)
	}
	// Asking for what is there already is done without a write.
	h.s.Writes()
	if out := h.mustUpdate(nil); out != "" {
		t.Errorf("an update to what is there printed\n%s", out)
	}
	// And back again, and to a third image.
	h.mustUpdate(func(o *rollout.Options) { o.Image = "v1" })
	h.end("web", "v1", 3, 9)
	h.mustUpdate(func(o *rollout.Options) { o.Image = "v3" })
	h.end("web", "v3", 3, 12)
}

func TestAnUpdateToAnotherName(t *testing.T) {
	h := newHarbour(t, web(3))
	h.settled("web", 3, 2, 3)
	none, one := intstr.FromInt32(0), intstr.FromInt32(1)
	out := h.mustUpdate(func(o *rollout.Options) {
		o.NewName, o.Surge, o.Unavailable = "web2", &none, &one
	})
	h.end("web2", "v2", 3, 6)
	want := `Created web2
Scaling up web2 from 0 to 3, scaling down web from 3 to 0 (keep 2 pods available, don't exceed 3 pods)
Scaling web down to 2
Scaling web2 up to 1
Scaling web down to 1
Scaling web2 up to 2
Scaling web down to 0
Scaling web2 up to 3
Update succeeded. Deleting web
`
	if out != want {
		t.Errorf("it printed\n%s\nwant\n%s", out, want)
	}
}

// A fuse is a client that fails after a number of calls, as that of a killed
// program does. With lost, the last call is carried out, but nobody hears of it.
type fuse struct {
	client.Interface
	kill context.CancelFunc
	lost bool

	mu   sync.Mutex
	left int // guarded by mu
}

var errKilled = errors.New("killed")

// burn reports whether a call is made at all and whether its answer arrives.
func (f *fuse) burn() (made, heard bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left--
	if f.left > 0 {
		return true, true
	}
	f.kill()
	return f.lost && f.left == 0, false
}

func guard[T any](f *fuse, call func() (T, error)) (T, error) {
	var zero T
	made, heard := f.burn()
	if made {
		v, err := call()
		if heard {
			return v, err
		}
	}
	return zero, errKilled
}

func (f *fuse) Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name, sub string) (runtime.Object, error) {
	return guard(f, func() (runtime.Object, error) { return f.Interface.Get(ctx, gvr, namespace, name, sub) })
}

func (f *fuse) List(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) (items []runtime.Object, meta metav1.ListMeta, err error) {
	items, err = guard(f, func() (list []runtime.Object, err error) {
		list, meta, err = f.Interface.List(ctx, gvr, namespace, opts)
		return list, err
	})
	return items, meta, err
}

func (f *fuse) Watch(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) iter.Seq2[watch.Event, error] {
	if _, heard := f.burn(); !heard {
		return func(yield func(watch.Event, error) bool) { yield(watch.Event{}, errKilled) }
	}
	return f.Interface.Watch(ctx, gvr, namespace, opts)
}

func (f *fuse) Create(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.CreateOptions, sub string) (runtime.Object, error) {
	return guard(f, func() (runtime.Object, error) {
		return f.Interface.Create(context.WithoutCancel(ctx), gvr, namespace, name, obj, opts, sub)
	})
}

func (f *fuse) Update(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.UpdateOptions, sub string) (runtime.Object, error) {
	return guard(f, func() (runtime.Object, error) {
		return f.Interface.Update(context.WithoutCancel(ctx), gvr, namespace, name, obj, opts, sub)
	})
}

func (f *fuse) Patch(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, kind types.PatchType, patch []byte, opts metav1.PatchOptions, sub string) (runtime.Object, error) {
	return guard(f, func() (runtime.Object, error) {
		return f.Interface.Patch(context.WithoutCancel(ctx), gvr, namespace, name, kind, patch, opts, sub)
	})
}

func (f *fuse) Delete(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, opts metav1.DeleteOptions) error {
	_, err := guard(f, func() (any, error) {
		return nil, f.Interface.Delete(context.WithoutCancel(ctx), gvr, namespace, name, opts)
	})
	return err
}

// TestAKilledUpdateIsResumedFromAfterEachCall kills the updater after its first,
// second, … call, with the answer heard and with it lost, and runs it again: the
// end is the same, no pod is made twice, and capacity is kept all the time.
func TestAKilledUpdateIsResumedFromAfterEachCall(t *testing.T) {
	for _, way := range []struct {
		name, end string
		change    func(*rollout.Options)
	}{
		{"rename", "web", nil},
		{"two names", "web2", func(o *rollout.Options) { o.NewName = "web2" }},
	} {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, answer lost %v", way.name, lost), func(t *testing.T) {
				for calls, done := 1, false; !done; calls++ {
					done = killedAfter(t, calls, lost, way.end, way.change)
					if calls > 200 {
						t.Fatal("the update makes more than 200 calls")
					}
				}
			})
		}
	}
}

// killedAfter reports whether the update needed no more than that many calls.
func killedAfter(t *testing.T, calls int, lost bool, end string, change func(*rollout.Options)) bool {
	h := newHarbour(t, web(3))
	defer h.stop()
	h.settled("web", 3, 3, 4)
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	first, err := h.update(&fuse{Interface: h.s, kill: kill, lost: lost, left: calls + 1}, ctx, change)
	completed := err == nil
	second, err := h.update(h.s, t.Context(), change)
	if end != "web" && apierrors.IsNotFound(err) {
		err = nil // the old one is gone, which is the end of it
	}
	if err != nil {
		t.Fatalf("killed after %d calls, it is not resumed: %v\nfirst:\n%ssecond:\n%s", calls, err, first, second)
	}
	h.end(end, "v2", 3, 6)
	if t.Failed() {
		t.Fatalf("killed after %d calls\nfirst:\n%ssecond:\n%s", calls, first, second)
	}
	return completed
}

func TestNoPartnerIsFoundByItsName(t *testing.T) { // defect 4
	other := web(1)
	other.Name, other.UID = "web2", "uid-web2"
	other.Spec.Selector = map[string]string{"app": "other"}
	other.Spec.Template.Labels = map[string]string{"app": "other"}
	h := newHarbour(t, web(1), other)
	h.settled("web", 1, 0, 10)
	if _, err := h.update(h.s, t.Context(), func(o *rollout.Options) { o.NewName = "web2" }); err == nil || !strings.Contains(err.Error(), "not part of an update") {
		t.Errorf("Run = %v, want a refusal to use web2", err)
	}
}

func TestTheTimeoutIsUsed(t *testing.T) { // defect 1
	h := newHarbour(t, web(1))
	h.settled("web", 1, 1, 2)
	var late *rollout.TimeoutError
	out, err := h.update(h.s, t.Context(), func(o *rollout.Options) { o.Image, o.Timeout = "slow", 50*time.Millisecond })
	if !errors.As(err, &late) || !strings.Contains(late.Why, "0 of 1 new pods ready") {
		t.Errorf("Run = %v, want a TimeoutError that says why, after\n%s", err, out)
	}

	// A failed update does not block the next one (defect 9).
	out = h.mustUpdate(nil)
	if !strings.Contains(out, "undoing it first") {
		t.Errorf("it did not tell what it found:\n%s", out)
	}
	h.end("web", "v2", 1, 0)
}

func TestPodsThatCannotBecomeReadyEndTheUpdateAtOnceAndItIsRolledBack(t *testing.T) {
	h := newHarbour(t, web(3))
	h.settled("web", 3, 3, 4)
	var failed *rollout.FailedError
	_, err := h.update(h.s, t.Context(), func(o *rollout.Options) { o.Image = "bad" })
	if !errors.As(err, &failed) || !strings.Contains(failed.Why, "InvalidImageName") {
		t.Fatalf("Run = %v, want a FailedError with the cause", err)
	}
	out := h.mustUpdate(func(o *rollout.Options) { o.Image, o.Rollback = "", true })
	if !strings.Contains(out, `Setting "web" replicas to 3`) {
		t.Errorf("the rollback printed\n%s", out)
	}
	h.end("web", "v1", 3, 4)
	if _, err := h.update(h.s, t.Context(), func(o *rollout.Options) { o.Image, o.Rollback = "", true }); err == nil {
		t.Error("a second rollback succeeded, want: nothing to roll back")
	}
}

func TestAScaleDuringTheUpdateIsNotLost(t *testing.T) { // defect 7
	for _, of := range []string{"old", "new"} {
		t.Run(of, func(t *testing.T) {
			h := newHarbour(t, web(2))
			h.settled("web", 2, 2, 1<<30)
			done := false
			_, err := h.update(h.s, t.Context(), func(o *rollout.Options) {
				o.Out = writer(func(line string) {
					if done || !strings.Contains(line, "Scaling web down to 1") {
						return
					}
					done = true
					for _, rc := range clienttest.All(h.s, client.ReplicationControllers, "default") {
						if (rc.Name == "web") == (of == "old") {
							scale(t, h, rc.Name)
						}
					}
				})
			})
			if err != nil {
				t.Fatal(err)
			}
			h.end("web", "v2", 5, 0)
		})
	}
}

// scale scales a controller to five, as somebody else does.
func scale(t *testing.T, h *harbour, name string) {
	for {
		rc := clienttest.Find(h.s, client.ReplicationControllers, "default", name).DeepCopy()
		five := int32(5)
		rc.Spec.Replicas = &five
		_, err := client.ReplicationControllers.Update(t.Context(), h.s, rc, "")
		if err == nil {
			return
		}
		if !apierrors.IsConflict(err) { // its status may have changed in between
			t.Fatal(err)
		}
	}
}

type writer func(string)

func (w writer) Write(b []byte) (int, error) { w(string(b)); return len(b), nil }

func TestTwoAtOnceDoEachOtherNoHarm(t *testing.T) {
	h := newHarbour(t, web(3))
	h.settled("web", 3, 3, 4)
	g := run.NewGroup(t.Context(), 0)
	var errs [2]error
	for i := range errs {
		g.Go(func(ctx context.Context) { _, errs[i] = h.update(h.s, ctx, nil) })
	}
	g.Wait()
	g.Stop()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	h.end("web", "v2", 3, 6)
}

func TestTheUpdatePeriodIsBetweenComingAndGoing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarbour(t, web(3))
		h.settled("web", 3, 3, 4)
		began := time.Now()
		h.mustUpdate(func(o *rollout.Options) { o.UpdatePeriod = time.Minute })
		if took := time.Since(began); took != 3*time.Minute {
			t.Errorf("it took %v, want a minute for each of three pods", took)
		}
		h.end("web", "v2", 3, 6)
		h.stop()
	})
}

func TestTargetChangesNothing(t *testing.T) { // defect 2
	h := newHarbour(t, web(3))
	h.settled("web", 3, 3, 3)
	h.stop()
	h.s.Writes()
	u, err := rollout.New(rollout.Options{Client: h.s, Namespace: "default", Old: "web", Image: "v2"})
	if err != nil {
		t.Fatal(err)
	}
	rc, err := u.Target(t.Context())
	if err != nil || rc.Spec.Template.Spec.Containers[0].Image != "v2" {
		t.Errorf("Target = %+v, %v, want a controller of v2", rc, err)
	}
	if w := h.s.Writes(); len(w) > 0 {
		t.Errorf("it wrote: %v", w)
	}
}

func TestSeveralContainers(t *testing.T) { // defect 6
	rc := web(1)
	rc.Spec.Template.Spec.Containers = append(rc.Spec.Template.Spec.Containers, corev1.Container{Name: "side", Image: "s1"})
	h := newHarbour(t, rc)
	h.settled("web", 1, 1, 2)
	for _, name := range []string{"", "none"} {
		if _, err := h.update(h.s, t.Context(), func(o *rollout.Options) { o.Container = name }); err == nil || !strings.Contains(err.Error(), "main, side") {
			t.Errorf("container %q: Run = %v, want the containers there are", name, err)
		}
	}
	h.mustUpdate(func(o *rollout.Options) { o.Container, o.Image = "side", "s2" })
	h.end("web", "v1", 1, 2)
	if got := clienttest.Find(h.s, client.ReplicationControllers, "default", "web").Spec.Template.Spec.Containers[1].Image; got != "s2" {
		t.Errorf("the second container has %s, want s2", got)
	}
}

func TestWrongOptions(t *testing.T) {
	s := clienttest.New(t)
	zero := intstr.FromInt32(0)
	for name, o := range map[string]rollout.Options{
		"nothing":         {},
		"no target":       {Client: s, Namespace: "default", Old: "web"},
		"same name":       {Client: s, Namespace: "default", Old: "web", Image: "v2", NewName: "web"},
		"two targets":     {Client: s, Namespace: "default", Old: "web", Image: "v2", Rollback: true},
		"no room":         {Client: s, Namespace: "default", Old: "web", Image: "v2", Surge: &zero},
		"bad key":         {Client: s, Namespace: "default", Old: "web", Image: "v2", Key: "a b"},
		"negative period": {Client: s, Namespace: "default", Old: "web", Image: "v2", UpdatePeriod: -1},
	} {
		if _, err := rollout.New(o); err == nil {
			t.Errorf("%s: New = nil, want an error", name)
		}
	}
	u, err := rollout.New(rollout.Options{Client: s, Namespace: "default", Old: "web", Image: "v2"})
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Run(t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("Run = %v, want NotFound", err)
	}
}
