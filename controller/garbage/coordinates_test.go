package garbage_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/controllertest"
	"github.com/sampan-io/sampan/controller/garbage"
	"github.com/sampan-io/sampan/internal/run"
)

// TestOwnersAreFoundByCoordinates has references with the UID of a living ConfigMap, in all combinations of another name, kind,
// version and namespace. The wanted results are those of kube-controller-manager 1.37.
func TestOwnersAreFoundByCoordinates(t *testing.T) {
	owner := meta("owner")
	var objs []client.Object
	stays := map[string]bool{}
	for _, namespace := range []string{"default", "kube-public"} {
		for _, kind := range []string{"v1/ConfigMap", "v1/Secret", "v9/ConfigMap", "rbac.authorization.k8s.io/v1/ClusterRole", "foo.bar/v1/Foo"} {
			for _, name := range []string{"owner", "other"} {
				at := strings.LastIndex(kind, "/")
				m := metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%d-%s", len(objs), name)}
				m.OwnerReferences = []metav1.OwnerReference{{APIVersion: kind[:at], Kind: kind[at+1:], Name: name, UID: owner.UID}}
				objs = append(objs, &corev1.ConfigMap{ObjectMeta: m})
				isOwner := namespace == "default" && kind == "v1/ConfigMap" && name == "owner"
				stays[namespace+"/"+m.Name] = isOwner || kind == "v9/ConfigMap" || kind == "foo.bar/v1/Foo"
			}
		}
	}
	both := metav1.ObjectMeta{Namespace: "default", Name: "both", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Secret", Name: "gone", UID: "1"}, {APIVersion: "foo.bar/v1", Kind: "Foo", Name: "x", UID: "2"},
	}}
	cluster := &rbacv1.ClusterRole{ObjectMeta: ownedBy(metav1.ObjectMeta{Name: "of-the-cluster"}, "owner", true)}
	objs = append(objs, &corev1.ConfigMap{ObjectMeta: owner}, &corev1.ConfigMap{ObjectMeta: both}, cluster)
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		for key, want := range stays {
			namespace, name, _ := strings.Cut(key, "/")
			o := clienttest.Find(s, client.ConfigMaps, namespace, name)
			if got := o != nil; got != want {
				t.Errorf("%s is there: %v, want %v", key, got, want)
			}
		}
		if o := clienttest.Find(s, client.ConfigMaps, "default", "both"); o == nil || len(o.OwnerReferences) != 2 {
			t.Errorf("an object with an absent owner and one of a kind that is not served is %+v", o)
		}
		if o := clienttest.Find(s, client.ClusterRoles, "", "of-the-cluster"); o == nil || len(o.OwnerReferences) != 1 {
			t.Errorf("an object of the cluster with an owner in a namespace is %+v", o)
		}
		var reported []string
		for _, e := range clienttest.All(s, client.Events, "") {
			if e.Reason == "OwnerRefInvalidNamespace" && e.Type == corev1.EventTypeWarning {
				reported = append(reported, e.Namespace+" "+e.InvolvedObject.Kind+" "+e.InvolvedObject.Name+": "+e.Message)
			}
		}
		want := `default ClusterRole of-the-cluster: ownerRef [v1/ConfigMap, namespace: , name: owner, uid: owner-uid] does not exist in namespace ""`
		if !slices.Contains(reported, want) {
			t.Errorf("the events are %q, want one of them %q", reported, want)
		}
		if len(reported) != 11 {
			t.Errorf("%d events about namespaces, want one for each object out of the owner's namespace: %q", len(reported), reported)
		}
		remove(t, s, "owner", metav1.DeletePropagationBackground)
		if o := clienttest.Find(s, client.ConfigMaps, "default", "0-owner"); o != nil {
			t.Errorf("an object whose owner is gone is %+v", o)
		}
		if o := clienttest.Find(s, client.ConfigMaps, "default", "8-owner"); o == nil {
			t.Error("an object with an owner of a kind that is not served was collected")
		}
	}, objs...)
}

// TestOrphansElsewhereAreFreed has an object of the cluster and one in another namespace that name an owner by its UID.
func TestOrphansElsewhereAreFreed(t *testing.T) {
	unknown := metav1.OwnerReference{APIVersion: "foo.bar/v1", Kind: "Foo", Name: "owner", UID: "owner-uid"}
	there := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "there", OwnerReferences: []metav1.OwnerReference{unknown}}}
	cluster := &rbacv1.ClusterRole{ObjectMeta: ownedBy(metav1.ObjectMeta{Name: "of-the-cluster"}, "owner", true)}
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		remove(t, s, "owner", metav1.DeletePropagationOrphan)
		if o := clienttest.Find(s, client.ConfigMaps, "kube-public", "there"); o == nil || len(o.OwnerReferences) > 0 {
			t.Errorf("the object in another namespace is %+v", o)
		}
		if o := clienttest.Find(s, client.ClusterRoles, "", "of-the-cluster"); o == nil || len(o.OwnerReferences) > 0 {
			t.Errorf("the object of the cluster is %+v", o)
		}
	}, &corev1.ConfigMap{ObjectMeta: meta("owner")}, there, cluster)
}

// TestForegroundOwnersKeepTheirReferences deletes an object in the foreground that waits for a dependent. Upstream's collector leaves
// its references to other owners alone until then.
func TestForegroundOwnersKeepTheirReferences(t *testing.T) {
	middle := ownedBy(ownedBy(meta("middle"), "owner", true), "other", true)
	held := &corev1.ConfigMap{ObjectMeta: ownedBy(meta("held"), "middle", true)}
	held.Finalizers = []string{"example.com/hold"}
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		remove(t, s, "middle", metav1.DeletePropagationForeground)
		remove(t, s, "other", metav1.DeletePropagationBackground)
		if o := clienttest.Find(s, client.ConfigMaps, "default", "middle"); o == nil || len(o.OwnerReferences) != 2 {
			t.Errorf("an object that waits for a dependent is %+v", o)
		}
	}, &corev1.ConfigMap{ObjectMeta: meta("owner")}, &corev1.ConfigMap{ObjectMeta: meta("other")}, &corev1.ConfigMap{ObjectMeta: middle}, held)
}

// TestObjectsOfKindsThatAreNotServedExist has a definition that serves no version for a while, which leaves its objects in the store,
// and one that is deleted.
func TestObjectsOfKindsThatAreNotServedExist(t *testing.T) {
	a := &away{}
	custom := leases
	custom.Elsewhere = false
	crd := &apiextensionsv1.CustomResourceDefinition{TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"}, ObjectMeta: metav1.ObjectMeta{Name: "leases.coordination.k8s.io"}}
	tasks := func(c client.Interface, caches *cache.Shared) []run.Task {
		a.Interface = c
		a.serve(custom)
		own := slices.DeleteFunc(clienttest.Resources(), func(r client.Resource[client.Object]) bool { return r == leases.Resource })
		dynamic := cache.NewDynamic(a, []cache.Served{a.Served}, garbage.Indexes(), nil)
		all := garbage.Tasks(garbage.Options{Config: controllertest.Config(a, caches), Resources: own, Custom: dynamic})
		return append(all, run.Task{Name: "custom", Run: dynamic.Run})
	}
	child := &corev1.ConfigMap{ObjectMeta: ofLease("child", "owner")}
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		a.serve()
		time.Sleep(time.Hour)
		if !has(s, "child") {
			t.Fatal("a dependent was collected because the kind of its owner is not served")
		}
		a.serve(custom)
		time.Sleep(time.Hour)
		if !has(s, "child") {
			t.Fatal("a dependent was collected when the kind of its owner was served again")
		}
		a.serve()
		time.Sleep(time.Hour)
		s.Set(t, &corev1.ConfigMap{ObjectMeta: ofLease("young", "unseen")})
		s.Remove(t, crd)
		controllertest.Rest()
		if has(s, "child") {
			t.Error("the dependent of an object whose definition was deleted is still there")
		}
		if !has(s, "young") {
			t.Error("a dependent of an object that was never seen was collected")
		}
	}, lease(meta("owner")), child, crd)
}

// TestBusyObjectsAreCollected has an object that changes before each deletion of it.
func TestBusyObjectsAreCollected(t *testing.T) {
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		var changes atomic.Int64
		s.Intercept(func(r clienttest.Request) error {
			if r.Verb == "delete" && r.Name == "busy" {
				l := lease(ownedBy(meta("busy"), "owner", true))
				holder := fmt.Sprint(changes.Add(1))
				l.Spec = coordinationv1.LeaseSpec{HolderIdentity: &holder}
				s.Set(t, l)
			}
			return nil
		})
		remove(t, s, "owner", metav1.DeletePropagationBackground)
		if hasLease(s, "busy") {
			t.Errorf("after %d changes the object is still there", changes.Load())
		}
		if n := changes.Load(); n > 2 {
			t.Errorf("the deletion took %d requests", n)
		}
	}, &corev1.ConfigMap{ObjectMeta: meta("owner")}, lease(ownedBy(meta("busy"), "owner", true)))
}
