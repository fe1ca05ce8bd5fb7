package await_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
)

func selected(labels string) await.Target {
	return await.Target{Resource: client.Pods.GroupVersionResource, Kind: "Pod", Namespace: "default", Labels: labels}
}

func TestRequestCount(t *testing.T) {
	v := newWait(t, podOf(nil, "a", isReady), podOf(nil, "b", nil), podOf(nil, "c", cannotPull))
	v.on["pod/b waiting"] = func() { v.s.Set(t, podOf(nil, "d", isReady)) } // who comes in mid-wait counts
	v.want(await.AllDone, await.Request{For: await.Ready, Count: 2, Targets: []await.Target{selected("app=web")}})
	// It fails when too few are left that have not failed.
	v = newWait(t, podOf(nil, "a", isReady), podOf(nil, "c", cannotPull))
	v.want(await.SomeFailed, await.Request{For: await.Ready, Count: 2, Fail: await.FailAtOnce, Targets: []await.Target{selected("app=web")}})
	v.want(await.AllDone, await.Request{For: await.Ready, Count: 1, Fail: await.FailAtOnce, Targets: []await.Target{selected("app=web")}})
	v.want(await.TimedOut, await.Request{For: await.Ready, Count: 3, Once: true, Fail: await.FailNever, Targets: []await.Target{selected("app=web")}})
	v.want(await.NothingMatched, await.Request{For: await.Ready, Count: 3, Targets: []await.Target{selected("app=none")}})
	if _, err := v.until(t.Context(), await.Request{For: await.Ready, Count: 3, Targets: []await.Target{target(client.Pods, "a")}}); err == nil {
		t.Error("a count of names was taken")
	}
}

func TestRequestAny(t *testing.T) {
	v := newWait(t, podOf(nil, "a", cannotPull), podOf(nil, "b", nil))
	v.on["pod/b waiting"] = func() { v.s.Set(t, podOf(nil, "b", isReady)) }
	v.want(await.AllDone, await.Request{For: await.Ready, Any: true, Fail: await.FailAtOnce, Targets: []await.Target{
		target(client.Pods, "a"), target(client.Pods, "b"), target(client.Pods, "nobody"),
	}})
	v.s.Set(t, podOf(nil, "b", cannotPull))
	v.want(await.SomeFailed, await.Request{For: await.Ready, Any: true, Fail: await.FailAtOnce, Targets: []await.Target{
		target(client.Pods, "a"), target(client.Pods, "b"), target(client.Pods, "nobody"),
	}})
	v.want(await.Vanished, await.Request{For: await.Ready, Any: true, Targets: []await.Target{target(client.Pods, "nobody"), target(client.Pods, "nothing")}})
}

func TestAllAndAnyDegrees(t *testing.T) {
	path, err := await.JSONPath(".status.podIP", await.Exists, "")
	if err != nil {
		t.Fatal(err)
	}
	v := newWait(t, podOf(nil, "web", isReady))
	v.on["podIP"] = func() {
		v.s.Set(t, podOf(nil, "web", func(p *corev1.Pod) { isReady(p); p.Status.PodIP = "10.0.0.1" }))
	}
	v.want(await.AllDone, await.Request{For: await.All(await.Ready, path), Targets: []await.Target{target(client.Pods, "web")}})
	v.want(await.AllDone, await.Request{For: await.Any(await.Finished, path), Targets: []await.Target{target(client.Pods, "web")}})
	v.s.Set(t, podOf(nil, "web", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }))
	v.want(await.SomeFailed, await.Request{For: await.Any(await.Finished, path), Targets: []await.Target{target(client.Pods, "web")}})
	v.want(await.AllDone, await.Request{For: await.Any(await.Deleted, await.Finished), Targets: []await.Target{target(client.Pods, "nobody")}})
	if d := await.All(await.Ready, await.Degree{}); d != (await.Degree{}) {
		t.Errorf("All with an empty degree is %v", d)
	}
}

func TestRequestMissing(t *testing.T) {
	v := newWait(t)
	req := await.Request{For: await.Ready, Missing: true, Targets: []await.Target{target(client.Pods, "web")}}
	v.on["does not exist yet"] = func() { v.s.Set(t, podOf(nil, "web", isReady)) }
	v.want(await.AllDone, req)
	// One that is replaced under its name is followed.
	v.s.Set(t, podOf(nil, "web", nil))
	v.on["pod/web waiting: not yet on a node: no scheduler has decided about it yet"] = func() {
		v.s.Remove(t, podOf(nil, "web", nil))
		v.s.Set(t, podOf(nil, "web", func(p *corev1.Pod) { isReady(p); p.UID = "another" }))
	}
	v.want(await.AllDone, req)
	// What a selector shall pick is waited for, too.
	synctest.Test(t, func(t *testing.T) {
		v := newWait(t)
		time.AfterFunc(time.Minute, func() { v.s.Set(t, podOf(nil, "web", isReady)) })
		v.want(await.AllDone, await.Request{For: await.Ready, Missing: true, Targets: []await.Target{selected("app=web")}})
		v.want(await.TimedOut, await.Request{For: await.Ready, Missing: true, Timeout: time.Second, Targets: []await.Target{selected("app=none")}})
	})
}

func TestNamespaceAsCause(t *testing.T) {
	v := newWait(t)
	in := target(client.Pods, "web")
	in.Namespace = "shop"
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	v.on["the namespace shop does not exist"] = func() {
		v.s.Set(t, shop)
		v.s.Set(t, podOf(nil, "web", func(p *corev1.Pod) { isReady(p); p.Namespace = "shop" }))
	}
	v.want(await.AllDone, await.Request{For: await.Ready, Missing: true, Targets: []await.Target{in}})
	if v.lines[0] != "pod/web waiting: it does not exist yet; the namespace shop does not exist" {
		t.Errorf("it said %q", v.lines)
	}
}

func TestSelectorEndsWithNamespace(t *testing.T) {
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "uid-shop"}}
	pod := podOf(nil, "web", func(p *corev1.Pod) { p.Namespace = "shop" })
	v := newWait(t, shop, pod)
	v.on["pod/web waiting"] = func() {
		v.s.Remove(t, pod)
		v.s.Remove(t, shop)
	}
	in := selected("app=web")
	in.Namespace = "shop"
	v.want(await.NothingMatched, await.Request{For: await.Ready, Targets: []await.Target{in}})
}

func TestUnservedResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := &corev1.ConfigMap{ObjectMeta: meta("settings")}
		v := newWait(t, config)
		v.s.Intercept(func(r clienttest.Request) error {
			if r.Resource == "configmaps" {
				return apierrors.NewGenericServerResponse(404, "list", r.GroupResource(), "", "404 page not found", 0, true)
			}
			return nil
		})
		req := await.Request{For: await.Ready, Missing: true, Targets: []await.Target{target(client.ConfigMaps, "settings")}}
		time.AfterFunc(time.Minute, func() { v.s.Intercept(nil) })
		v.want(await.AllDone, req)
		v.said("configmap/settings waiting: it does not exist yet; the server does not serve configmaps yet", "configmap/settings done")
	})
}

// boats is a server that comes to serve a kind of which only the name is known.
type boats struct {
	client.Interface
	established chan struct{}
}

var (
	boatDefinitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	boatResource    = schema.GroupVersionResource{Group: "example.com", Version: "v2", Resource: "boats"}
)

func (b *boats) definition(status string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "boats.example.com", "uid": "uid-crd", "resourceVersion": "1"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced",
			"names": map[string]any{"plural": "boats", "singular": "boat", "kind": "Boat", "shortNames": []any{"bt"}},
			"versions": []any{
				map[string]any{"name": "v1", "served": true, "storage": false},
				map[string]any{"name": "v2", "served": true, "storage": true},
			},
		},
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": status}}},
	}}
}

func (b *boats) isServed() bool {
	select {
	case <-b.established:
		return true
	default:
		return false
	}
}

func (b *boats) List(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error) {
	switch {
	case gvr == boatDefinitions && !b.isServed():
		return []runtime.Object{b.definition("False")}, metav1.ListMeta{ResourceVersion: "1"}, nil
	case gvr == boatResource && b.isServed():
		return []runtime.Object{&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v2", "kind": "Boat",
			"metadata": map[string]any{"name": "junk", "namespace": "default", "uid": "uid-junk", "generation": int64(1)},
		}}}, metav1.ListMeta{ResourceVersion: "2"}, nil
	}
	return b.Interface.List(ctx, gvr, namespace, opts)
}

func (b *boats) Watch(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) iter.Seq2[watch.Event, error] {
	if gvr != boatDefinitions {
		return b.Interface.Watch(ctx, gvr, namespace, opts)
	}
	return func(yield func(watch.Event, error) bool) {
		select {
		case <-b.established:
			if !yield(watch.Event{Type: watch.Modified, Object: b.definition("True")}, nil) {
				return
			}
		case <-ctx.Done():
		}
		<-ctx.Done()
		yield(watch.Event{}, context.Cause(ctx))
	}
}

func TestUnknownKindFromDefinition(t *testing.T) {
	for _, name := range []string{"boat", "bt", "Boat", "boats.example.com", "boats.v2.example.com"} {
		b := &boats{Interface: clienttest.New(t), established: make(chan struct{})}
		var said []string
		out, err := await.Until(t.Context(), b, await.Request{
			For: await.Ready, Missing: true, Timeout: 30 * time.Second,
			Targets: []await.Target{{Kind: name, Namespace: "default", Name: "junk"}},
		}, func(news await.Progress) {
			p, _ := news.(await.Status)
			said = append(said, p.Object.String()+" "+p.Verdict.String())
			if p.Absent && !b.isServed() {
				close(b.established)
			}
		})
		if err != nil || out.Result != await.AllDone || out.Objects[0].Object.Resource != boatResource {
			t.Errorf("%s: %v, %v, %+v", name, err, out.Result, out.Objects)
		}
		if !strings.Contains(said[0], "the server does not serve "+name+" yet") {
			t.Errorf("%s: it said %q", name, said)
		}
	}
}

func TestUnknownKindFromResolve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newWait(t, &corev1.ConfigMap{ObjectMeta: meta("settings")})
		asked := 0
		req := await.Request{For: await.Ready, Missing: true, Targets: []await.Target{{Kind: "settings", Namespace: "default", Name: "settings"}}}
		req.Resolve = func(_ context.Context, t await.Target) (await.Target, error) {
			if asked++; asked < 4 {
				return t, apierrors.NewNotFound(schema.GroupResource{}, t.Kind)
			}
			t.Resource, t.Kind = client.ConfigMaps.GroupVersionResource, "ConfigMap"
			return t, nil
		}
		v.want(await.AllDone, req)
		req.Resolve = func(_ context.Context, t await.Target) (await.Target, error) {
			return t, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
		}
		if _, err := v.until(t.Context(), req); !apierrors.IsForbidden(err) {
			t.Errorf("Until = %v, want Forbidden", err)
		}
		req.Resolve, req.Once = nil, true
		v.want(await.TimedOut, req)
	})
}

func TestEmptySelectorIsReported(t *testing.T) {
	v := newWait(t)
	v.on["nothing matches yet"] = func() { v.s.Set(t, podOf(nil, "web", isReady)) }
	v.want(await.AllDone, await.Request{For: await.Ready, Missing: true, Targets: []await.Target{selected("app=web")}})
	v.said("pod waiting: nothing matches yet", "pod/web done", "pod gone")
}

func TestTargetResourceVersion(t *testing.T) {
	v := newWait(t, podOf(nil, "web", isReady))
	written := target(client.Pods, "web")
	version := clienttest.Find(v.s, client.Pods, "default", "web").ResourceVersion
	written.ResourceVersion = version
	v.want(await.AllDone, await.Request{For: await.Ready, Targets: []await.Target{written}})
	written.ResourceVersion += "0" // a later one
	v.want(await.TimedOut, await.Request{For: await.Ready, Once: true, Targets: []await.Target{written}})
	if last := v.lines[len(v.lines)-1]; last != "pod/web waiting: the server has not shown the latest change yet" {
		t.Errorf("it said %q", last)
	}
}

func TestExpiredListIsRestarted(t *testing.T) {
	var pods []client.Object
	for i := range 600 {
		pods = append(pods, podOf(nil, "web-"+time.Duration(i).String(), isReady))
	}
	v := newWait(t, pods...)
	lists := 0
	v.s.Intercept(func(r clienttest.Request) error {
		if r.Verb == "list" {
			if lists++; lists == 2 {
				return apierrors.NewResourceExpired("too slow")
			}
		}
		return nil
	})
	out := v.want(await.AllDone, await.Request{For: await.Ready, Targets: []await.Target{selected("app=web")}})
	v.s.Intercept(nil)
	if len(out.Objects) != 600 {
		t.Errorf("%d pods, want 600", len(out.Objects))
	}
}

func TestForbiddenPodsAreError(t *testing.T) {
	v := newWait(t, controller(1, 1))
	v.s.Intercept(func(r clienttest.Request) error {
		if r.Resource == "pods" {
			return apierrors.NewForbidden(client.Pods.GroupResource(), "", errors.New("secret"))
		}
		return nil
	})
	targets := []await.Target{target(client.ReplicationControllers, "web")}
	v.want(await.AllDone, await.Request{For: await.Ready, Targets: targets})
	if _, err := v.until(t.Context(), await.Request{For: await.Running, Targets: targets}); !apierrors.IsForbidden(err) {
		t.Errorf("Until = %v, want Forbidden", err)
	}
	v.s.Set(t, controller(1, 0)) // they only explain
	v.want(await.TimedOut, await.Request{For: await.Ready, Once: true, Targets: targets})
}

func TestUnknownConditionIsMisuse(t *testing.T) {
	v := newWait(t, podOf(nil, "web", nil))
	_, err := v.until(t.Context(), await.Request{For: await.Condition("Raedy", ""), Targets: []await.Target{target(client.Pods, "web")}})
	if _, ok := errors.AsType[*await.MisuseError](err); !ok || !strings.Contains(err.Error(), "its conditions are Ready, ContainersReady") {
		t.Errorf("Until = %v, want a MisuseError with a hint", err)
	}
}

// TestDeletedWithResource waits for the deletion of an object whose resource is not served any more: it was deleted with the
// definition of the resource.
func TestDeletedWithResource(t *testing.T) {
	v := newWait(t)
	gone := await.Target{Resource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "boats"}, Kind: "Boat", Namespace: "default", Name: "b", UID: "1"}
	v.want(await.AllDone, await.Request{For: await.Deleted, Targets: []await.Target{gone}})
	if _, err := v.until(t.Context(), await.Request{For: await.Ready, Targets: []await.Target{gone}}); !apierrors.IsNotFound(err) {
		t.Errorf("a wait for the same object to be ready ends with %v, want NotFound", err)
	}
}
