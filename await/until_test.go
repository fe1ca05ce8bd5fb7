package await_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A testWait is a wait under test: a server, and a line for each call of progress.
type testWait struct {
	t     *testing.T
	s     *clienttest.Server
	lines []string
	on    map[string]func() // called once, for the first line that contains the key
}

func newWait(t *testing.T, objs ...client.Object) *testWait {
	return &testWait{t: t, s: clienttest.New(t, objs...), on: map[string]func(){}}
}

func (v *testWait) until(ctx context.Context, req await.Request) (await.Outcome, error) {
	return await.Until(ctx, v.s, req, func(p await.Progress) {
		var line string
		switch p := p.(type) {
		case await.Status:
			line = fmt.Sprintf("%s %s", p.Object, p.Verdict)
		case await.ConnectionLost:
			line = "lost: " + p.Err.Error()
		case await.ConnectionRestored:
			line = "back"
		case await.Dropped:
			line = p.Object.String() + " gone"
		}
		v.lines = append(v.lines, line)
		for text, f := range v.on {
			if strings.Contains(line, text) {
				delete(v.on, text)
				f()
			}
		}
	})
}

// want runs the wait and checks its result.
func (v *testWait) want(result await.Result, req await.Request) await.Outcome {
	v.t.Helper()
	out, err := v.until(v.t.Context(), req)
	if err != nil {
		v.t.Fatalf("Until = %v, want %v; it said:\n%s", err, result, strings.Join(v.lines, "\n"))
	}
	if out.Result != result {
		v.t.Errorf("Until = %v, want %v; it said:\n%s", out.Result, result, strings.Join(v.lines, "\n"))
	}
	return out
}

func (v *testWait) said(lines ...string) {
	v.t.Helper()
	if !slices.Equal(v.lines, lines) {
		v.t.Errorf("it said\n%s\nwant\n%s", strings.Join(v.lines, "\n"), strings.Join(lines, "\n"))
	}
}

func target[T client.Object](r client.Resource[T], name string) await.Target {
	t := await.Target{Resource: r.GroupVersionResource, Kind: r.Kind, Name: name}
	if r.Namespaced {
		t.Namespace = "default"
	}
	return t
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}
}

func controller(want, ready int32) *corev1.ReplicationController {
	return &corev1.ReplicationController{
		ObjectMeta: meta("web"),
		Spec:       corev1.ReplicationControllerSpec{Replicas: &want, Selector: map[string]string{"app": "web"}},
		Status:     corev1.ReplicationControllerStatus{Replicas: want, ReadyReplicas: ready, ObservedGeneration: 1},
	}
}

func podOf(owner client.Object, name string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: meta(name)}
	p.Labels = map[string]string{"app": "web"}
	if owner != nil {
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, client.KindOf(owner))}
	}
	p.Status.Phase = corev1.PodPending
	if change != nil {
		change(p)
	}
	return p
}

func isReady(p *corev1.Pod) {
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

func cannotPull(p *corev1.Pod) {
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"},
	}}}
}

func TestAlreadyDone(t *testing.T) {
	v := newWait(t, controller(3, 3))
	v.want(await.AllDone, await.Request{For: await.Ready, Targets: []await.Target{target(client.ReplicationControllers, "web")}, Once: true})
	v.said("replicationcontroller/web done")
}

func TestControllerProgress(t *testing.T) {
	rc := controller(1, 0)
	v := newWait(t, rc)
	v.on["0/1 pods ready"] = func() { v.s.Set(t, podOf(rc, "web-a", cannotPull)) }
	v.on["ErrImagePull"] = func() { v.s.Set(t, podOf(rc, "web-a", isReady)) }
	v.lines = nil
	ready := controller(1, 1)
	v.on["0/1 pods ready; pod"] = func() { v.s.Set(t, ready) }
	v.want(await.AllDone, await.Request{For: await.Ready, Targets: []await.Target{target(client.ReplicationControllers, "web")}})
	if first := v.lines[0]; first != "replicationcontroller/web waiting: 0/1 pods ready" {
		t.Errorf("first line %q", first)
	}
	if !slices.Contains(v.lines, "replicationcontroller/web failed (likely): 0/1 pods ready; pod web-a: container main: ErrImagePull: no such image") {
		t.Errorf("the cause was not told: %q", v.lines)
	}
	if last := v.lines[len(v.lines)-1]; last != "replicationcontroller/web done" {
		t.Errorf("last line %q", last)
	}
}

func TestFailedJobEndsWait(t *testing.T) {
	job := &batchv1.Job{ObjectMeta: meta("build")}
	v := newWait(t, job)
	v.on["no pod yet"] = func() {
		bad := job.DeepCopy()
		bad.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: "True", Reason: "BackoffLimitExceeded"}}
		v.s.Set(t, bad)
	}
	v.want(await.SomeFailed, await.Request{For: await.Finished, Targets: []await.Target{target(client.Jobs, "build")}})
	v.said(
		"job.batch/build waiting: no pod yet",
		"job.batch/build failed (certain): the job failed: BackoffLimitExceeded",
	)
}

func TestLikelyFailureAfterGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newWait(t, podOf(nil, "web", cannotPull))
		began := time.Now()
		req := await.Request{For: await.Ready, Targets: []await.Target{target(client.Pods, "web")}, Grace: time.Minute}
		v.want(await.SomeFailed, req)
		if took := time.Since(began); took != time.Minute {
			t.Errorf("it took %v, want a minute", took)
		}
		req.Fail = await.FailAtOnce
		v.want(await.SomeFailed, req)
		if took := time.Since(began); took != time.Minute {
			t.Errorf("it took %v, want no more", took-time.Minute)
		}
		req.Fail, req.Timeout = await.FailNever, time.Hour
		v.want(await.TimedOut, req)
	})
}

func TestDeadlineOfSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pods []client.Object
		var targets []await.Target
		for i := range 32 {
			name := fmt.Sprintf("web-%d", i)
			pods = append(pods, podOf(nil, name, nil))
			targets = append(targets, target(client.Pods, name))
		}
		pods[7] = podOf(nil, "web-7", isReady)
		v := newWait(t, pods...)
		began := time.Now()
		out := v.want(await.TimedOut, await.Request{For: await.Ready, Targets: targets, Timeout: 3 * time.Second})
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("it took %v, want 3s", took)
		}
		if n := len(out.Objects); n != 32 || out.Objects[7].Verdict.State != await.Done {
			t.Errorf("outcome has %d objects, the eighth %v", n, out.Objects[7].Verdict)
		}
	})
}

func TestManyPodsOneWatch(t *testing.T) {
	var pods []client.Object
	for i := range 1000 {
		pods = append(pods, podOf(nil, fmt.Sprintf("web-%d", i), isReady))
	}
	v := newWait(t, pods...)
	var requests atomic.Int64
	v.s.Intercept(func(clienttest.Request) error { requests.Add(1); return nil })
	v.want(await.AllDone, await.Request{For: await.Ready, Targets: []await.Target{
		{Resource: client.Pods.GroupVersionResource, Kind: "Pod", Namespace: "default", Labels: "app=web"},
	}})
	v.s.Intercept(nil)
	if n := requests.Load(); n > 5 { // four pages and a watch
		t.Errorf("%d requests, want at most 5", n)
	}
}

func TestReplacedPodsAreFollowed(t *testing.T) {
	v := newWait(t, podOf(nil, "old", nil))
	v.on["pod/old"] = func() {
		v.s.Remove(t, podOf(nil, "old", nil))
		v.s.Set(t, podOf(nil, "new", isReady))
	}
	out := v.want(await.AllDone, await.Request{For: await.Ready, Targets: []await.Target{
		{Resource: client.Pods.GroupVersionResource, Kind: "Pod", Namespace: "default", Labels: "app=web"},
	}})
	if len(out.Objects) != 1 || out.Objects[0].Object.Name != "new" {
		t.Errorf("outcome %+v, want the new pod alone", out.Objects)
	}
	if !slices.Contains(v.lines, "pod/old gone") {
		t.Errorf("it said %q, and not that the old pod is gone", v.lines)
	}
}

func TestPodEndingDuringDeletion(t *testing.T) {
	for _, degree := range []await.Degree{await.Ready, await.Condition("Ready", "")} {
		v := newWait(t, podOf(nil, "old", nil))
		v.on["pod/old waiting"] = func() {
			v.s.Set(t, podOf(nil, "old", func(p *corev1.Pod) {
				p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"example.com/hold"}
				p.Status.Phase = corev1.PodFailed
			}))
		}
		v.on["being deleted"] = func() {
			v.s.Set(t, podOf(nil, "new", isReady))
			v.s.Remove(t, podOf(nil, "old", nil))
		}
		v.want(await.AllDone, await.Request{For: degree, Targets: []await.Target{
			{Resource: client.Pods.GroupVersionResource, Kind: "Pod", Namespace: "default", Labels: "app=web"},
		}})
	}
}

func TestNothingMatched(t *testing.T) {
	v := newWait(t)
	v.want(await.NothingMatched, await.Request{For: await.Ready, Targets: []await.Target{
		{Resource: client.Pods.GroupVersionResource, Kind: "Pod", Namespace: "default", Labels: "app=web"},
	}})
	v.want(await.Vanished, await.Request{For: await.Ready, Targets: []await.Target{target(client.Pods, "web")}})
}

func TestDeletedObjectVanishes(t *testing.T) {
	v := newWait(t, podOf(nil, "web", nil))
	v.on["waiting"] = func() { v.s.Remove(t, podOf(nil, "web", nil)) }
	v.want(await.Vanished, await.Request{For: await.Ready, Targets: []await.Target{target(client.Pods, "web")}})
}

func TestDeletionIsByUID(t *testing.T) {
	old := podOf(nil, "web", nil)
	fresh := podOf(nil, "web", nil)
	fresh.UID = "another"
	v := newWait(t, old)
	v.on["its deletion has not been requested"] = func() {
		v.s.Remove(t, old)
		v.s.Set(t, fresh) // a namesake, made at once
	}
	v.want(await.AllDone, await.Request{For: await.Deleted, Targets: []await.Target{target(client.Pods, "web")}})

	// A namesake that is there from the start is no more the object.
	byUID := target(client.Pods, "web")
	byUID.UID = old.UID
	v.want(await.AllDone, await.Request{For: await.Deleted, Targets: []await.Target{byUID}})
	v.want(await.Vanished, await.Request{For: await.Ready, Targets: []await.Target{byUID}})
}

func TestDeletionBySelectorIgnoresNewObjects(t *testing.T) {
	old := podOf(nil, "old", nil)
	v := newWait(t, old)
	v.on["pod/old waiting"] = func() {
		v.s.Set(t, podOf(nil, "new", nil))
		v.s.Remove(t, old)
	}
	req := await.Request{For: await.Deleted, Targets: []await.Target{
		{Resource: client.Pods.GroupVersionResource, Kind: "Pod", Namespace: "default", Labels: "app=web"},
	}}
	v.want(await.AllDone, req)
	req.Targets[0].Labels = "app=none"
	v.want(await.AllDone, req)
}

func TestCreated(t *testing.T) {
	v := newWait(t)
	v.on["does not exist yet"] = func() { v.s.Set(t, podOf(nil, "web", nil)) }
	v.want(await.AllDone, await.Request{For: await.Created, Targets: []await.Target{target(client.Pods, "web")}})
}

func TestStaleGeneration(t *testing.T) {
	rc := controller(3, 3)
	rc.Generation = 1
	rc.Status.ObservedGeneration = 1
	v := newWait(t, rc)
	written := target(client.ReplicationControllers, "web")
	written.UID, written.Generation = rc.UID, 2
	v.on["not shown the latest change"] = func() {
		fresh := rc.DeepCopy()
		fresh.Generation, fresh.Status.ObservedGeneration = 2, 2
		v.s.Set(t, fresh)
	}
	v.want(await.AllDone, await.Request{For: await.Ready, Targets: []await.Target{written}})
}

func TestServerRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newWait(t, podOf(nil, "web", nil))
		down := &client.UnreachableError{Server: "https://here", Err: io.EOF}
		v.on["pod/web waiting"] = func() {
			v.s.Intercept(func(clienttest.Request) error { return down })
			v.s.BreakWatches(down)
			time.AfterFunc(10*time.Second, func() {
				v.s.Intercept(nil)
				v.s.Set(t, podOf(nil, "web", isReady))
				v.s.Forget() // and it has lost its history: 410
			})
		}
		v.want(await.AllDone, await.Request{For: await.Ready, Targets: []await.Target{target(client.Pods, "web")}, Timeout: time.Minute})
		if !slices.Contains(v.lines, "back") {
			t.Errorf("it said %q, and not that the server is back", v.lines)
		}
		if !slices.Contains(v.lines, "lost: "+down.Error()) {
			t.Errorf("nobody was told of the lost server: %q", v.lines)
		}
	})
}

func TestServerAwayAtDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newWait(t, podOf(nil, "web", nil))
		down := &client.UnreachableError{Server: "https://here", Err: io.EOF}
		v.on["pod/web waiting"] = func() {
			v.s.Intercept(func(clienttest.Request) error { return down })
			v.s.BreakWatches(down)
		}
		_, err := v.until(t.Context(), await.Request{For: await.Ready, Targets: []await.Target{target(client.Pods, "web")}, Timeout: time.Minute})
		if !errors.Is(err, io.EOF) {
			t.Errorf("Until = %v, want the lost connection", err)
		}
		v.s.Intercept(nil)
	})
}

func TestServerAwayAtStart(t *testing.T) {
	v := newWait(t)
	v.s.Intercept(func(clienttest.Request) error { return io.ErrClosedPipe })
	_, err := v.until(t.Context(), await.Request{For: await.Ready, Targets: []await.Target{target(client.Pods, "web")}})
	if !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Until = %v, want the error of the first list", err)
	}
}

func TestPermissionLost(t *testing.T) {
	v := newWait(t, podOf(nil, "web", nil))
	denied := apierrors.NewForbidden(client.Pods.GroupResource(), "", errors.New("no more"))
	v.on["pod/web waiting"] = func() {
		v.s.Intercept(func(clienttest.Request) error { return denied })
		v.s.BreakWatches(io.EOF)
	}
	_, err := v.until(t.Context(), await.Request{For: await.Ready, Targets: []await.Target{target(client.Pods, "web")}})
	if !apierrors.IsForbidden(err) {
		t.Errorf("Until = %v, want Forbidden", err)
	}
}

func TestForbiddenEventsAreIgnored(t *testing.T) {
	v := newWait(t, podOf(nil, "web", nil))
	v.s.Intercept(func(r clienttest.Request) error {
		if r.Resource == "events" {
			return apierrors.NewForbidden(client.Events.GroupResource(), "", errors.New("secret"))
		}
		return nil
	})
	v.on["pod/web waiting"] = func() { v.s.Set(t, podOf(nil, "web", isReady)) }
	v.want(await.AllDone, await.Request{For: await.Ready, Targets: []await.Target{target(client.Pods, "web")}})
}

func TestInterruption(t *testing.T) {
	v := newWait(t, podOf(nil, "web", nil))
	ctx, cancel := context.WithCancel(t.Context())
	v.on["pod/web waiting"] = cancel
	_, err := v.until(ctx, await.Request{For: await.Ready, Targets: []await.Target{target(client.Pods, "web")}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Until = %v, want Canceled", err)
	}
}

func TestMisuse(t *testing.T) {
	v := newWait(t, controller(1, 1))
	_, err := v.until(t.Context(), await.Request{For: await.Finished, Targets: []await.Target{target(client.ReplicationControllers, "web")}})
	if _, ok := errors.AsType[*await.MisuseError](err); !ok {
		t.Errorf("Until = %v, want a MisuseError", err)
	}
	for _, req := range []await.Request{
		{},
		{For: await.Ready},
		{For: await.Ready, Targets: []await.Target{{Name: "web"}}},
		{For: await.Ready, Targets: []await.Target{target(client.Pods, "web")}, Timeout: -1},
	} {
		if _, err := await.Until(t.Context(), v.s, req, nil); err == nil {
			t.Errorf("Until(%+v) = nil, want an error", req)
		}
	}
}

// TestRolledBackIsFailure has a Deployment taken back in mid-wait: it is as good
// as before, but not what was waited for. Who comes later finds it ready.
func TestRolledBackIsFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := int32(1)
		d := &appsv1.Deployment{ObjectMeta: meta("web"), Spec: appsv1.DeploymentSpec{Replicas: &replicas}}
		d.Generation = 2
		d.Annotations = map[string]string{"sampan.dev/auto-rollback": "true", "sampan.dev/last-good": "abc"}
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 1, Conditions: []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded"},
		}}
		v := newWait(t, d)
		v.on["ProgressDeadlineExceeded"] = func() {
			back := d.DeepCopy()
			back.Generation, back.Status = 3, appsv1.DeploymentStatus{ObservedGeneration: 3, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1}
			back.Annotations["sampan.dev/rolled-back"] = `{"generation":2,"message":"Revision 2 was rolled back to revision 1"}`
			v.s.Set(t, back)
		}
		req := await.Request{For: await.Ready, Targets: []await.Target{target(client.Deployments, "web")}}
		out := v.want(await.SomeFailed, req)
		want := await.Verdict{State: await.Failed, Certainty: await.Certain, RolledBack: true, Cause: "Revision 2 was rolled back to revision 1"}
		if got := out.Objects[0].Verdict; got != want {
			t.Errorf("verdict %+v, want %+v", got, want)
		}
		v.want(await.AllDone, req)
		req.Targets[0].Generation = 2 // what the caller wrote
		v.want(await.SomeFailed, req)
	})
}
