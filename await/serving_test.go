package await_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
)

func service(name string, selector map[string]string) *corev1.Service {
	return &corev1.Service{ObjectMeta: meta(name), Spec: corev1.ServiceSpec{Selector: selector}}
}

// served is a deployment of one pod with the label app=web, and what belongs to it.
func served() (all []client.Object, d *appsv1.Deployment) {
	d = deployment(1, 1)
	d.Spec.Template.Labels = map[string]string{"app": "web"}
	rs := replicaSet(d, "web-2", "2", 1, 1)
	return []client.Object{d, rs, podOf(rs, "web-a", isReady)}, d
}

const noService = "0/1 pods serving; no Service selects pods with the labels app=web"

// TestServingNeedsAService has Services that select no pod of a deployment, until one does.
func TestServingNeedsAService(t *testing.T) {
	all, _ := served()
	v := newWait(t, append(
		all, service("other", map[string]string{"app": "other"}), service("none", nil),
		&corev1.Service{ObjectMeta: meta("name"), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, Selector: map[string]string{"app": "web"}}},
	)...)
	v.on["no Service selects"] = func() { v.s.Set(t, service("front", map[string]string{"app": "web"})) }
	v.on["waiting: 0/1 pods serving"] = func() { v.s.Set(t, endpointSlice("front", map[string]bool{"web-a": true})) }
	v.want(await.AllDone, await.Request{For: await.Serving, Targets: []await.Target{target(client.Deployments, "web")}})
	if len(v.on) != 0 {
		t.Errorf("never said: %v; it said %q", v.on, v.lines)
	}
}

// TestServingFailsWithoutService checks when the wait for each kind fails, and that it fails after the deletion of the
// last Service.
func TestServingFailsWithoutService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rc := controller(1, 1)
		rc.Name, rc.UID = "rc", "uid-rc"
		rc.Spec.Template = &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}}
		all, _ := served()
		front := service("front", map[string]string{"app": "web"})
		v := newWait(t, append(all, rc, front, podOf(rc, "rc-a", isReady))...)
		for _, tt := range []struct {
			target await.Target
			cause  string
		}{
			{target(client.Deployments, "web"), noService},
			{target(client.ReplicationControllers, "rc"), noService},
			{target(client.Pods, "web-a"), "ready, but no Service selects pods with the labels app=web"},
		} {
			began := time.Now()
			time.AfterFunc(time.Minute, func() { v.s.Remove(t, front) })
			out := v.want(await.SomeFailed, await.Request{For: await.Serving, Timeout: time.Hour, Targets: []await.Target{tt.target}})
			if took := time.Since(began); took != time.Minute+await.DefaultGrace || out.Objects[0].Verdict.Cause != tt.cause {
				t.Errorf("after %v: %s, want %s", took, out.Objects[0].Verdict, tt.cause)
			}
			v.s.Set(t, front)
		}
		v.s.Remove(t, front)
		began := time.Now()
		v.want(await.TimedOut, await.Request{For: await.Serving, Timeout: time.Hour, Fail: await.FailNever, Targets: []await.Target{target(client.Deployments, "web")}})
		if took := time.Since(began); took != time.Hour {
			t.Errorf("it took %v, want the whole hour", took)
		}
	})
}

// TestServingWithoutPermissionForServices may not list Services: nothing is said of them.
func TestServingWithoutPermissionForServices(t *testing.T) {
	all, _ := served()
	v := newWait(t, all...)
	v.s.Intercept(func(r clienttest.Request) error {
		if r.Resource == "services" {
			return apierrors.NewForbidden(r.GroupResource(), "", errors.New("no"))
		}
		return nil
	})
	v.on["waiting: 0/1 pods serving"] = func() { v.s.Set(t, endpointSlice("front", map[string]bool{"web-a": true})) }
	v.want(await.AllDone, await.Request{For: await.Serving, Fail: await.FailAtOnce, Targets: []await.Target{target(client.Deployments, "web")}})
}

// TestServiceWithoutPodsFails has few Services, whose pods are followed,
// and many, whose pods are not.
func TestServiceWithoutPodsFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newWait(t, service("web", map[string]string{"app": "web"}))
		began := time.Now()
		req := await.Request{For: await.Ready, Timeout: time.Hour, Targets: []await.Target{target(client.Services, "web")}}
		v.want(await.SomeFailed, req)
		if took := time.Since(began); took != await.DefaultGrace || !strings.Contains(v.lines[len(v.lines)-1], "no pod matches its selector") {
			t.Errorf("after %v: %q", took, v.lines)
		}
		for n := range 20 {
			name := fmt.Sprintf("s%d", n)
			v.s.Set(t, service(name, map[string]string{"app": "web"}))
			req.Targets = append(req.Targets, target(client.Services, name))
		}
		v.s.Set(t, podOf(nil, "web-a", nil)) // it has no address yet, so that no slice has it
		v.want(await.TimedOut, req)
	})
}

func TestPodWithUnknownScheduler(t *testing.T) {
	pod := podOf(nil, "web", func(p *corev1.Pod) { p.Spec.SchedulerName = "tide" })
	v := newWait(t, pod)
	v.on[`not yet on a node: spec.schedulerName is "tide", and no scheduler of that name has decided about it yet`] = func() {
		v.s.Set(t, podOf(nil, "web", func(p *corev1.Pod) { p.Spec.SchedulerName = "tide"; isReady(p) }))
	}
	v.want(await.AllDone, await.Request{For: await.Ready, Targets: []await.Target{target(client.Pods, "web")}})
	if len(v.on) != 0 {
		t.Errorf("never said: %v; it said %q", v.on, v.lines)
	}
}
