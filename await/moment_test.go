package await_test

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/client"
)

// isOver is what becomes of a pod that was ready and has ended well.
func isOver(p *corev1.Pod) {
	p.Status.Phase = corev1.PodSucceeded
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "PodCompleted"}}
}

// Both changes have come before the wait looks at the first.
func TestShortStateIsSeen(t *testing.T) {
	degree := func(text string) await.Degree {
		d, err := await.ParseDegree(text)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	one := []await.Target{target(client.Pods, "web")}
	two := []await.Target{target(client.Pods, "web"), target(client.Pods, "other")}
	picked := []await.Target{{Resource: client.Pods.GroupVersionResource, Kind: "Pod", Namespace: "default", Labels: "app=web"}}
	gone := func(v *testWait) { v.s.Remove(v.t, podOf(nil, "web", isReady)) }
	over := func(v *testWait) { v.s.Set(v.t, podOf(nil, "web", isOver)) }
	for name, tt := range map[string]struct {
		degree string
		req    await.Request
		then   func(*testWait)
		want   await.Result
	}{
		"a condition, then its end":    {"condition=Ready", await.Request{Targets: one}, over, await.AllDone},
		"a path, then its end":         {"jsonpath=.status.phase=Running", await.Request{Targets: one}, over, await.AllDone},
		"an expression, then its end":  {`cel=object.status.phase == "Running"`, await.Request{Targets: one}, over, await.AllDone},
		"ready, then its end":          {"ready", await.Request{Targets: one}, over, await.AllDone},
		"running, then its end":        {"running", await.Request{Targets: one}, over, await.AllDone},
		"a condition, then deletion":   {"condition=Ready", await.Request{Targets: one}, gone, await.AllDone},
		"a selector of one object":     {"condition=Ready", await.Request{Targets: picked}, over, await.AllDone},
		"a selector, then deletion":    {"condition=Ready", await.Request{Targets: picked}, gone, await.AllDone},
		"one of two is enough":         {"condition=Ready", await.Request{Targets: two, Any: true}, over, await.AllDone},
		"one of those picked":          {"condition=Ready", await.Request{Targets: picked, Count: 1}, over, await.AllDone},
		"of a set, all at once":        {"condition=Ready", await.Request{Targets: two}, over, await.SomeFailed},
		"a failure, then a good state": {`cel=object.status.phase == "Unknown"`, await.Request{Targets: one}, func(v *testWait) { over(v); gone(v) }, await.SomeFailed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := newWait(t, podOf(nil, "web", nil))
				if len(tt.req.Targets) == 2 {
					other := podOf(nil, "other", nil)
					other.Labels = nil
					v.s.Set(t, other)
				}
				v.on["pod/web waiting"] = func() {
					v.s.Set(t, podOf(nil, "web", isReady))
					tt.then(v)
					synctest.Wait() // both wait to be heard
				}
				tt.req.For, tt.req.Timeout = degree(tt.degree), time.Minute
				v.want(tt.want, tt.req)
			})
		})
	}
}
