package await_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
)

func claimOf(name string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "uid-claim"}}
	c.Status.Phase = corev1.ClaimPending
	return c
}

// unplaced is a pod about which no scheduler has decided, with a claim.
func unplaced(change func(*corev1.Pod)) *corev1.Pod {
	return podOf(nil, "web-a", func(p *corev1.Pod) {
		p.Status = corev1.PodStatus{Phase: corev1.PodPending}
		p.Spec.NodeName = ""
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		if change != nil {
			change(p)
		}
	})
}

// rejected gives a pod the verdict of a scheduler.
func rejected(message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message}}
	}
}

// TestNamedObjectsExplainPods waits for a pod, and for its controller, whose cause is in an object that the pod names.
func TestNamedObjectsExplainPods(t *testing.T) {
	claim := claimOf("data")
	for name, tt := range map[string]struct {
		pod  func(*corev1.Pod)
		objs []client.Object
		want string

		fails bool // likely
	}{
		"claim that cannot be provisioned": {nil, []client.Object{claim, warning(claim, "ProvisioningFailed", "only ReadWriteOnce is supported")}, "not yet on a node: claim data is not bound to a volume; ProvisioningFailed: only ReadWriteOnce is supported", true},
		"claim without an event":           {nil, []client.Object{claim}, "not yet on a node: claim data is not bound to a volume", false},
		"missing claim":                    {nil, nil, "not yet on a node: claim data does not exist", true},
		"missing ephemeral claim": {func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
		}, nil, "not yet on a node: claim web-a-v does not exist", false},
		"missing resource claim": {func(p *corev1.Pod) {
			p.Spec.Volumes, p.Spec.ResourceClaims = nil, []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("shared")}}
		}, nil, "not yet on a node: resource claim shared does not exist", true},
		"missing resource claim template": {func(p *corev1.Pod) {
			p.Spec.Volumes, p.Spec.ResourceClaims = nil, []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("one")}}
		}, nil, "not yet on a node: resource claim template one does not exist", true},
		"claim, after the scheduler's verdict":         {rejected("0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims."), []client.Object{claim, warning(claim, "ProvisioningFailed", `storageclass.storage.k8s.io "fast" not found`)}, `not yet on a node: claim data is not bound to a volume; ProvisioningFailed: storageclass.storage.k8s.io "fast" not found`, true},
		"missing claim, after the scheduler's verdict": {rejected(`0/2 nodes are available: persistentvolumeclaim "data" not found.`), nil, "not yet on a node: claim data does not exist", true},
		"other verdict of the scheduler":               {rejected("0/2 nodes are available: 2 Insufficient cpu."), []client.Object{claim}, "Unschedulable: 0/2 nodes are available: 2 Insufficient cpu.", false},
		"node that does not exist":                     {func(p *corev1.Pod) { p.Spec.NodeName = "nowhere" }, nil, "node nowhere does not exist, and spec.nodeName names it", false},
	} {
		t.Run(name, func(t *testing.T) {
			rc := controller(1, 0)
			pod := unplaced(tt.pod)
			pod.OwnerReferences = podOf(rc, "x", nil).OwnerReferences
			v := newWait(t, append(tt.objs, rc, pod)...)
			for _, target := range []await.Target{target(client.Pods, "web-a"), target(client.ReplicationControllers, "web")} {
				want := tt.want
				if target.Kind == "ReplicationController" {
					want = "0/1 pods ready; pod web-a: " + want
				}
				out := v.want(await.TimedOut, await.Request{For: await.Ready, Once: true, Targets: []await.Target{target}})
				state := await.Waiting
				if tt.fails {
					state = await.Failed
				}
				if got := out.Objects[0].Verdict; got.Cause != want || got.State != state || got.Certainty != await.Likely {
					t.Errorf("%s: %v, want %v: %q", target.Kind, got, state, want)
				}
			}
		})
	}
}

// TestNamedObjectsNeedNoPermission refuses to list claims: the wait goes on, with the cause that it knows.
func TestNamedObjectsNeedNoPermission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newWait(t, unplaced(nil))
		v.s.Intercept(func(r clienttest.Request) error {
			if r.Resource == "persistentvolumeclaims" {
				return apierrors.NewForbidden(r.GroupResource(), r.Name, nil)
			}
			return nil
		})
		time.AfterFunc(5*time.Second, func() {
			v.s.Set(t, unplaced(func(p *corev1.Pod) {
				p.Spec.NodeName, p.Status.Phase = "a", corev1.PodRunning
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			}))
		})
		v.want(await.AllDone, await.Request{For: await.Ready, Targets: []await.Target{target(client.Pods, "web-a")}})
		v.said("pod/web-a waiting: not yet on a node: no scheduler has decided about it yet", "pod/web-a done")
	})
}

// TestNamedObjectsChange follows a claim that is made, fails and is bound.
func TestNamedObjectsChange(t *testing.T) {
	v := newWait(t, unplaced(nil))
	claim := claimOf("data")
	v.on["claim data does not exist"] = func() { v.s.Set(t, claim) }
	v.on["not bound to a volume"] = func() { v.s.Set(t, warning(claim, "ProvisioningFailed", "no room")) }
	v.on["no room"] = func() {
		bound := claim.DeepCopy()
		bound.Status.Phase = corev1.ClaimBound
		v.s.Set(t, bound)
	}
	v.on["no scheduler"] = func() {
		v.s.Set(t, unplaced(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }))
	}
	v.want(await.AllDone, await.Request{For: await.Finished, Targets: []await.Target{target(client.Pods, "web-a")}})
	v.said("pod/web-a failed (likely): not yet on a node: claim data does not exist",
		"pod/web-a waiting: not yet on a node: claim data is not bound to a volume",
		"pod/web-a failed (likely): not yet on a node: claim data is not bound to a volume; ProvisioningFailed: no room",
		"pod/web-a waiting: not yet on a node: no scheduler has decided about it yet", "pod/web-a done")
}

// TestUnusedClaim waits for a claim whose storage class waits for a pod. An apply that waits must not hang on it.
func TestUnusedClaim(t *testing.T) {
	claim := claimOf("data")
	event := warning(claim, "WaitForFirstConsumer", "waiting for first consumer to be created before binding")
	event.Type = corev1.EventTypeNormal
	for unused, want := range map[bool]await.Result{true: await.AllDone, false: await.TimedOut} {
		v := newWait(t, claim, event)
		out := v.want(want, await.Request{For: await.Ready, Once: true, Unused: unused, Targets: []await.Target{target(client.PersistentVolumeClaims, "data")}})
		if got := out.Objects[0].Verdict.Cause; !strings.Contains(got, "no pod uses it yet") {
			t.Errorf("unused %v: cause %q", unused, got)
		}
	}
}
