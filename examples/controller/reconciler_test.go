package main

import (
	"context"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patience is far more than anything here takes.
const patience = time.Minute

// until blocks until an object of a kind exists and is as wanted, and returns it. The list is one of that kind.
func until[T client.Object](
	t *testing.T, c client.WithWatch, list client.ObjectList, at client.ObjectKey, wanted func(T) bool,
) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w, err := c.Watch(ctx, list, client.InNamespace(at.Namespace), client.MatchingFields{"metadata.name": at.Name})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	var last client.Object
	for event := range w.ResultChan() {
		obj, ok := event.Object.(T)
		if !ok {
			t.Fatalf("waiting for %s: got %#v", at, event.Object)
		}
		if last = obj; event.Type != watch.Deleted && wanted(obj) {
			return obj
		}
	}
	t.Fatalf("%s was not as wanted; last: %#v", at, last)
	panic("unreachable")
}

// gone blocks until an object does not exist any more.
func gone(t *testing.T, c client.WithWatch, list client.ObjectList, obj client.Object) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	at := client.ObjectKeyFromObject(obj)
	if err := c.Get(ctx, at, obj); apierrors.IsNotFound(err) {
		return
	} else if err != nil {
		t.Fatal(err)
	}
	w, err := c.Watch(ctx, list, client.InNamespace(at.Namespace), &client.ListOptions{
		Raw: &metav1.ListOptions{FieldSelector: "metadata.name=" + at.Name, ResourceVersion: obj.GetResourceVersion()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if event.Type == watch.Deleted {
			return
		}
	}
	t.Fatalf("%T %s is not gone", obj, at)
}

// create makes an object.
func create[T client.Object](t *testing.T, c client.Client, obj T) T {
	t.Helper()
	if err := c.Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	return obj
}

func website(namespace, name string) *Website {
	return &Website{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: WebsiteSpec{Page: "<p>Hello."}}
}

// deployed blocks until there is a Deployment for a Website.
func deployed(t *testing.T, c client.WithWatch, site *Website) *appsv1.Deployment {
	t.Helper()
	exists := func(*appsv1.Deployment) bool { return true }
	return until(t, c, &appsv1.DeploymentList{}, client.ObjectKeyFromObject(site), exists)
}

func TestWebsiteIsDeployed(t *testing.T) {
	t.Parallel()
	c := fork(t)
	site := create(t, c, website("default", "hello"))
	d := deployed(t, c, site)
	if image := d.Spec.Template.Spec.Containers[0].Image; image != "nginx:1.29" || *d.Spec.Replicas != 1 {
		t.Errorf("got image %s and %d replicas, want nginx:1.29 of the settings and 1", image, *d.Spec.Replicas)
	}
	page := &corev1.ConfigMap{}
	err := c.Get(t.Context(), client.ObjectKeyFromObject(site), page)
	if got := page.Data["index.html"]; err != nil || got != site.Spec.Page {
		t.Errorf("got the page %q and error %v", got, err)
	}

	// Changes of a Website reach its Deployment.
	change := client.MergeFrom(site.deepCopy())
	site.Spec.Image, site.Spec.Replicas = "example.com/server:2", new(int32(3))
	if err := c.Patch(t.Context(), site, change); err != nil {
		t.Fatal(err)
	}
	until(t, c, &appsv1.DeploymentList{}, client.ObjectKeyFromObject(site), func(d *appsv1.Deployment) bool {
		return *d.Spec.Replicas == 3 && d.Spec.Template.Spec.Containers[0].Image == site.Spec.Image
	})
}

// TestStatusFollowsDeployment writes the status of a Deployment, as nothing else does here.
func TestStatusFollowsDeployment(t *testing.T) {
	t.Parallel()
	c := fork(t)
	site := create(t, c, website("default", "hello"))
	isAvailable := func(want metav1.ConditionStatus) func(*Website) bool {
		return func(w *Website) bool {
			return meta.IsStatusConditionPresentAndEqual(w.Status.Conditions, conditionAvailable, want)
		}
	}
	until(t, c, &WebsiteList{}, client.ObjectKeyFromObject(site), isAvailable(metav1.ConditionFalse))
	d := deployed(t, c, site)
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 1, ReadyReplicas: 1, AvailableReplicas: 1}
	if err := c.Status().Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	until(t, c, &WebsiteList{}, client.ObjectKeyFromObject(site), isAvailable(metav1.ConditionTrue))
}

// TestDependentsAreCollected needs the garbage collector, which plain envtest does not have.
func TestDependentsAreCollected(t *testing.T) {
	t.Parallel()
	c := fork(t)
	site := create(t, c, website("default", "hello"))
	d := deployed(t, c, site)
	if err := c.Delete(t.Context(), site); err != nil {
		t.Fatal(err)
	}
	gone(t, c, &appsv1.DeploymentList{}, d)
	page := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: site.Namespace, Name: site.Name}}
	gone(t, c, &corev1.ConfigMapList{}, page)
}

// TestNamespaceGoesAway needs the namespace controller, which plain envtest does not have.
func TestNamespaceGoesAway(t *testing.T) {
	t.Parallel()
	c := fork(t)
	namespace := create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "short"}})
	d := deployed(t, c, create(t, c, website("short", "hello")))
	if err := c.Delete(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	gone(t, c, &appsv1.DeploymentList{}, d)
	gone(t, c, &corev1.NamespaceList{}, namespace)
}

func TestSchemaRefusesWebsites(t *testing.T) {
	t.Parallel()
	c := fork(t)
	site := website("default", "hello")
	site.Spec.Replicas = new(int32(-1))
	if err := c.Create(t.Context(), site); !apierrors.IsInvalid(err) {
		t.Errorf("a Website of -1 replicas: got %v, want Invalid", err)
	}
}
