package await_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
)

const revision = "deployment.kubernetes.io/revision"

func deployment(want, ready int32) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: meta("web")}
	d.Annotations = map[string]string{revision: "2"}
	d.Spec.Replicas = &want
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: want, UpdatedReplicas: want, ReadyReplicas: ready}
	return d
}

func replicaSet(d *appsv1.Deployment, name, of string, want, ready int32) *appsv1.ReplicaSet {
	rs := &appsv1.ReplicaSet{ObjectMeta: meta(name)}
	rs.Labels = map[string]string{"app": "web"}
	rs.Annotations = map[string]string{revision: of}
	rs.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d, client.KindOf(d))}
	rs.Spec.Replicas = &want
	rs.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	rs.Status = appsv1.ReplicaSetStatus{ObservedGeneration: 1, Replicas: want, ReadyReplicas: ready}
	return rs
}

func warning(about client.Object, reason, message string) *corev1.Event {
	e := &corev1.Event{ObjectMeta: meta("e-" + about.GetName() + "-" + strings.ToLower(reason)), Type: "Warning", Reason: reason, Message: message}
	e.InvolvedObject = corev1.ObjectReference{Kind: client.KindOf(about).Kind, Name: about.GetName(), Namespace: "default", UID: about.GetUID()}
	return e
}

// tree returns a status as text: one line for the object, and for each part and event.
func tree(p await.Status) string {
	var s strings.Builder
	s.WriteString(p.Object.String() + " " + p.Verdict.String())
	var add func(indent string, parts []await.Part)
	add = func(indent string, parts []await.Part) {
		for _, part := range parts {
			s.WriteString("\n" + indent + part.Object.String() + " " + part.Verdict.String())
			add(indent+"  ", part.Parts)
		}
	}
	add("  ", p.Parts)
	for _, e := range p.Events {
		s.WriteString("\nevent " + e.InvolvedObject.Name + " " + e.Reason)
	}
	return s.String()
}

func TestDeploymentParts(t *testing.T) {
	d := deployment(2, 0)
	old, now := replicaSet(d, "web-1", "1", 0, 0), replicaSet(d, "web-2", "2", 2, 0)
	bad := podOf(now, "web-2-a", cannotPull)
	v := newWait(t, d, old, now, bad, podOf(now, "web-2-b", isReady), podOf(old, "web-1-a", func(p *corev1.Pod) {
		cannotPull(p)
		p.Status.ContainerStatuses[0].State.Waiting.Reason = "InvalidImageName" // an old revision, which is ignored
	}), warning(bad, "Failed", "no such image"), warning(d, "Odd", "look at me"))
	var mu sync.Mutex // the sources ask at the same time
	requests := map[string]int{}
	v.s.Intercept(func(r clienttest.Request) error {
		mu.Lock()
		defer mu.Unlock()
		requests[r.Verb+" "+r.Resource]++
		return nil
	})
	out := v.want(await.SomeFailed, await.Request{For: await.Ready, Fail: await.FailAtOnce, Targets: []await.Target{target(client.Deployments, "web")}})
	v.s.Intercept(nil)
	want := `deployment.apps/web failed (likely): 0/2 pods ready; pod web-2-a: container main: ErrImagePull: no such image
  replicaset.apps/web-2 failed (likely): 0/2 pods ready; pod web-2-a: container main: ErrImagePull: no such image
    pod/web-2-a failed (likely): container main: ErrImagePull: no such image
event web-2-a Failed
event web Odd`
	if got := tree(out.Objects[0]); got != want {
		t.Errorf("it is\n%s\nwant\n%s", got, want)
	}
	for r, n := range requests {
		if n > 1 {
			t.Errorf("%d requests to %s, want one list and one watch per resource", n, r)
		}
	}
}

func TestPartsAreReportedOnChange(t *testing.T) {
	d := deployment(2, 0)
	rs := replicaSet(d, "web-2", "2", 2, 0)
	v := newWait(t, d, rs, podOf(rs, "web-a", cannotPull), podOf(rs, "web-b", nil))
	var told []await.Status
	_, err := await.Until(t.Context(), v.s, await.Request{For: await.Ready, Targets: []await.Target{target(client.Deployments, "web")}}, func(news await.Progress) {
		p, _ := news.(await.Status)
		told = append(told, p)
		switch len(told) {
		case 1:
			if len(p.Parts) != 1 || len(p.Parts[0].Parts) != 2 || p.Parts[0].Parts[0].Object.Name != "web-a" {
				t.Errorf("first it is\n%s", tree(p))
			}
			v.s.Set(t, podOf(rs, "web-a", isReady))
		case 2:
			if len(p.Parts[0].Parts) != 1 || p.Parts[0].Parts[0].Object.Name != "web-b" {
				t.Errorf("then it is\n%s", tree(p))
			}
			v.s.Set(t, deployment(2, 2), podOf(rs, "web-b", isReady))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if last := told[len(told)-1]; last.Parts != nil || last.Verdict.State != await.Done {
		t.Errorf("last it is\n%s", tree(last))
	}
}

func TestManyPartsAreCounted(t *testing.T) {
	rc := controller(30, 0)
	objs := []client.Object{rc}
	for i := range 30 {
		objs = append(objs, podOf(rc, "web-"+string(rune('a'+i%26))+string(rune('a'+i/26)), cannotPull))
	}
	v := newWait(t, objs...)
	out := v.want(await.SomeFailed, await.Request{For: await.Ready, Fail: await.FailAtOnce, Targets: []await.Target{target(client.ReplicationControllers, "web")}})
	if p := out.Objects[0]; len(p.Parts) != await.MaxParts || p.More != 20 || !strings.HasSuffix(p.Verdict.Cause, "(and 29 more)") {
		t.Errorf("%d parts, %d more, %s", len(p.Parts), p.More, p.Verdict)
	}
}

func TestOldGone(t *testing.T) {
	d := deployment(1, 1)
	old, now := replicaSet(d, "web-1", "1", 0, 0), replicaSet(d, "web-2", "2", 1, 1)
	going := podOf(old, "web-1-a", func(p *corev1.Pod) {
		isReady(p)
		p.Spec.NodeName = "a"
		p.DeletionTimestamp, p.Finalizers = &deletion, nil
	})
	v := newWait(t, d, old, now, podOf(now, "web-2-a", isReady), going)
	v.want(await.AllDone, await.Request{For: await.Ready, Targets: []await.Target{target(client.Deployments, "web")}})
	v.lines = nil
	v.on["1 old pod"] = func() { v.s.Remove(t, going) }
	v.want(await.AllDone, await.Request{For: await.OldGone, Targets: []await.Target{target(client.Deployments, "web")}})
	v.said(
		"deployment.apps/web waiting: 1 old pod still there; pod web-1-a: being deleted, node a has not stopped it yet",
		"deployment.apps/web done",
	)
}

func endpointSlice(service string, pods map[string]bool) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{ObjectMeta: meta(service + "-x")}
	s.Labels = map[string]string{discoveryv1.LabelServiceName: service}
	for name, serves := range pods {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Conditions: discoveryv1.EndpointConditions{Serving: &serves},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Name: name, UID: types.UID("uid-" + name)},
		})
	}
	return s
}

func TestServingByEndpoints(t *testing.T) {
	d := deployment(1, 1)
	rs := replicaSet(d, "web-2", "2", 1, 1)
	v := newWait(t, d, rs, podOf(rs, "web-a", isReady))
	v.on["0/1 pods serving"] = func() { v.s.Set(t, endpointSlice("web", map[string]bool{"web-a": true})) }
	v.want(await.AllDone, await.Request{For: await.Serving, Targets: []await.Target{target(client.Deployments, "web")}})
	v.on["not yet serving"] = func() { v.s.Set(t, endpointSlice("web", map[string]bool{"web-a": true})) }
	v.s.Set(t, endpointSlice("web", map[string]bool{"web-a": false}))
	v.want(await.AllDone, await.Request{For: await.Serving, Targets: []await.Target{target(client.Pods, "web-a")}})
	if len(v.on) != 0 {
		t.Errorf("never said: %v; it said %q", v.on, v.lines)
	}
}

func TestServiceParts(t *testing.T) {
	s := &corev1.Service{ObjectMeta: meta("web"), Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}}}
	v := newWait(t, s, podOf(nil, "web-a", cannotPull))
	v.on["ErrImagePull"] = func() {
		v.s.Set(t, podOf(nil, "web-a", isReady), endpointSlice("web", map[string]bool{"web-a": true}))
	}
	v.want(await.AllDone, await.Request{For: await.Ready, Targets: []await.Target{target(client.Services, "web")}})
	if !slices.Contains(v.lines, "service/web failed (likely): no endpoint yet, 1 pod; pod web-a: container main: ErrImagePull: no such image") {
		t.Errorf("it said %q", v.lines)
	}
}

func TestSettledRestartsWithContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rc := controller(1, 1)
		pod := func(restarts int32) *corev1.Pod {
			return podOf(rc, "web-a", func(p *corev1.Pod) {
				isReady(p)
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", RestartCount: restarts}}
			})
		}
		v := newWait(t, rc, pod(1))
		began := time.Now()
		time.AfterFunc(20*time.Second, func() { v.s.Set(t, pod(2)) })
		v.want(await.AllDone, await.Request{For: await.Settled(30 * time.Second), Targets: []await.Target{target(client.ReplicationControllers, "web")}})
		if took := time.Since(began); took != 50*time.Second {
			t.Errorf("it took %v, want 50s", took)
		}
		v.said("replicationcontroller/web waiting: ready, but not for 30s yet", "replicationcontroller/web done")
		// And a pod by itself, which loses readiness.
		began = time.Now()
		time.AfterFunc(10*time.Second, func() { v.s.Set(t, podOf(rc, "web-a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })) })
		time.AfterFunc(15*time.Second, func() { v.s.Set(t, pod(2)) })
		v.want(await.AllDone, await.Request{For: await.Settled(30 * time.Second), Targets: []await.Target{target(client.Pods, "web-a")}})
		if took := time.Since(began); took != 45*time.Second {
			t.Errorf("it took %v, want 45s", took)
		}
		v.want(await.TimedOut, await.Request{For: await.Settled(time.Minute), Once: true, Targets: []await.Target{target(client.Pods, "web-a")}})
	})
}

func TestQuotaEndsWait(t *testing.T) {
	rc := controller(1, 0)
	rc.Status.Replicas = 0
	v := newWait(t, rc)
	v.on["0/1 pods ready"] = func() {
		v.s.Set(t, warning(rc, "FailedCreate", `Error creating: pods "web-x" is forbidden: exceeded quota: small`))
	}
	v.want(await.SomeFailed, await.Request{For: await.Ready, Targets: []await.Target{target(client.ReplicationControllers, "web")}})
	if last := v.lines[len(v.lines)-1]; !strings.Contains(last, "failed (certain): 0/1 pods ready; FailedCreate: Error creating") {
		t.Errorf("it said %q", last)
	}
	// An event of before is not that sure: the quota may have been raised since.
	v.lines = nil
	v.want(await.SomeFailed, await.Request{For: await.Ready, Fail: await.FailAtOnce, Targets: []await.Target{target(client.ReplicationControllers, "web")}})
	if last := v.lines[len(v.lines)-1]; !strings.Contains(last, "failed (likely): 0/1 pods ready; FailedCreate: Error creating") {
		t.Errorf("it said %q", last)
	}
}

func TestNamespaceDeletionCause(t *testing.T) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "uid-ns", DeletionTimestamp: &deletion, Finalizers: []string{"example.com/hold"}}}
	ns.Status.Phase = corev1.NamespaceTerminating
	pod := podOf(nil, "web", func(p *corev1.Pod) { p.DeletionTimestamp, p.Finalizers = &deletion, []string{"example.com/pod"} })
	v := newWait(t, ns, pod)
	v.on["pod web"] = func() { v.s.Remove(t, pod, ns) }
	v.want(await.AllDone, await.Request{For: await.Deleted, Targets: []await.Target{{Resource: client.Namespaces.GroupVersionResource, Kind: "Namespace", Name: "default"}}})
	if v.lines[0] != "namespace/default waiting: held by finalizers example.com/hold; pod web: held by finalizers example.com/pod" {
		t.Errorf("it said %q", v.lines)
	}
}
