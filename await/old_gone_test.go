package await_test

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/client"
)

// isEnding has a pod of node a be deleted.
func isEnding(p *corev1.Pod) {
	isReady(p)
	p.Spec.NodeName = "a"
	p.DeletionTimestamp = &deletion
}

func oldGone[T client.Object](r client.Resource[T], name string) await.Request {
	return await.Request{For: await.OldGone, Targets: []await.Target{target(r, name)}}
}

// TestOldPodsAreFoundWithoutLabels waits for the end of pods of older revisions that the selector of their controller does
// not match.
func TestOldPodsAreFoundWithoutLabels(t *testing.T) {
	rc := controller(1, 1)
	rc.Spec.Selector = map[string]string{"app": "web", "deployment": "new"} // after a rename
	d := deployment(1, 1)
	old, now := replicaSet(d, "web-1", "1", 0, 0), replicaSet(d, "web-2", "2", 1, 1)
	set := &appsv1.StatefulSet{ObjectMeta: meta("web")}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	set.Status = appsv1.StatefulSetStatus{ObservedGeneration: 1, Replicas: 1, ReadyReplicas: 1, UpdatedReplicas: 1, UpdateRevision: "2"}
	daemons := &appsv1.DaemonSet{ObjectMeta: meta("web")}
	daemons.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	daemons.Status = appsv1.DaemonSetStatus{
		ObservedGeneration: 1, DesiredNumberScheduled: 1, CurrentNumberScheduled: 1, UpdatedNumberScheduled: 1, NumberReady: 1,
	}
	labelled := func(labels map[string]string, change func(*corev1.Pod)) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			change(p)
			p.Labels = labels
		}
	}
	elsewhere := map[string]string{"taken": "out"}
	for _, tt := range []struct {
		name    string
		request await.Request
		old     *corev1.Pod
		others  []client.Object
	}{
		{
			"a renamed replication controller", oldGone(client.ReplicationControllers, "web"),
			podOf(rc, "web-a", isEnding),
			[]client.Object{
				rc, podOf(rc, "web-b", labelled(map[string]string{"app": "web", "deployment": "new"}, isReady)),
			},
		},
		{
			"a replica set of a deployment", oldGone(client.Deployments, "web"),
			podOf(old, "web-a", labelled(elsewhere, isEnding)),
			[]client.Object{d, old, now, podOf(now, "web-b", isReady)},
		},
		{
			"a stateful set", oldGone(client.StatefulSets, "web"),
			podOf(set, "web-a", labelled(elsewhere, isEnding)),
			[]client.Object{
				set, podOf(set, "web-0", labelled(map[string]string{"app": "web", appsv1.StatefulSetRevisionLabel: "2"}, isReady)),
			},
		},
		{
			"a daemon set", oldGone(client.DaemonSets, "web"),
			podOf(daemons, "web-a", labelled(elsewhere, isEnding)),
			[]client.Object{daemons, podOf(daemons, "web-b", isReady)},
		},
		{
			"a replica set that was deleted before", oldGone(client.Deployments, "web"),
			podOf(old, "web-1-a", labelled(map[string]string{"app": "web", "pod-template-hash": "1"}, isEnding)),
			[]client.Object{d, now, podOf(now, "web-b", isReady)},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := newWait(t, append(tt.others, tt.old)...)
			v.on["1 old pod still there"] = func() { v.s.Remove(t, tt.old) }
			v.want(await.AllDone, tt.request)
			name := tt.request.Targets[0]
			ref := await.Ref{Resource: name.Resource, Kind: name.Kind, Name: "web"}.String()
			v.said(
				ref+" waiting: 1 old pod still there; pod "+tt.old.Name+": being deleted, node a has not stopped it yet",
				ref+" done",
			)
		})
	}
}

func TestOldGoneKeepsThePodsOfADeletedReplicaSet(t *testing.T) {
	d := deployment(1, 1)
	old, now := replicaSet(d, "web-1", "1", 0, 0), replicaSet(d, "web-2", "2", 1, 1)
	ending := []*corev1.Pod{podOf(old, "web-1-a", isEnding), podOf(old, "web-1-b", isEnding)}
	v := newWait(t, d, old, now, ending[0], ending[1], podOf(now, "web-2-a", isReady))
	v.on["2 old pods still there"] = func() {
		v.s.Remove(t, old)
		v.s.Remove(t, ending[0])
	}
	v.on["1 old pod still there"] = func() { v.s.Remove(t, ending[1]) }
	v.want(await.AllDone, oldGone(client.Deployments, "web"))
	v.lines = slices.Compact(v.lines) // parts change, too
	v.said(
		"deployment.apps/web waiting: 2 old pods still there; pod web-1-a: being deleted, node a has not stopped it yet (and 1 more)",
		"deployment.apps/web waiting: 1 old pod still there; pod web-1-b: being deleted, node a has not stopped it yet",
		"deployment.apps/web done",
	)
}

// TestOldGoneCountsPodsOfTheReplacedController looks at the pods of a controller of
// another name, which may exist no more.
func TestOldGoneCountsPodsOfTheReplacedController(t *testing.T) {
	before := controller(1, 1)
	before.Name, before.UID = "before", types.UID("uid-before")
	for name, tt := range map[string]struct {
		key    string
		exists bool
	}{
		"while the update is under way": {"kubectl.kubernetes.io/update-source-id", true},
		"when it is complete":           {"sampan.dev/rollout-replaced", false},
	} {
		t.Run(name, func(t *testing.T) {
			rc := controller(1, 1)
			rc.Annotations = map[string]string{tt.key: "before:uid-before"}
			going := podOf(before, "before-a", isEnding)
			v := newWait(t, rc, podOf(rc, "web-a", isReady), going)
			if tt.exists {
				v.s.Set(t, before)
			}
			v.on["1 old pod still there"] = func() { v.s.Remove(t, going) }
			v.want(await.AllDone, oldGone(client.ReplicationControllers, "web"))
			v.said(
				"replicationcontroller/web waiting: 1 old pod still there; pod before-a: being deleted, node a has not stopped it yet",
				"replicationcontroller/web done",
			)
			live := podOf(before, "before-b", isReady)
			v.s.Set(t, live)
			v.lines = nil
			v.on["1 old pod still there"] = func() { v.s.Remove(t, live) }
			v.want(await.AllDone, oldGone(client.ReplicationControllers, "web"))
		})
	}
}

// TestOldGoneIgnoresAnnotationCycles has two controllers each name the other.
func TestOldGoneIgnoresAnnotationCycles(t *testing.T) {
	a, b := controller(1, 1), controller(1, 1)
	b.Name, b.UID = "other", types.UID("uid-other")
	a.Annotations = map[string]string{"sampan.dev/rollout-replaced": "other:uid-other"}
	b.Annotations = map[string]string{"sampan.dev/rollout-replaced": "web:uid-web"}
	pods := []*corev1.Pod{podOf(a, "web-a", isEnding), podOf(b, "other-a", isEnding)}
	v := newWait(t, a, b, pods[0], pods[1])
	v.on["2 old pods"] = func() { v.s.Remove(t, pods[0]) }
	v.on["1 old pod"] = func() { v.s.Remove(t, pods[1]) }
	req := oldGone(client.ReplicationControllers, "web")
	req.Targets = append(req.Targets, target(client.ReplicationControllers, "other"))
	v.want(await.AllDone, req)
}
