package garbage_test

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/controllertest"
	"github.com/sampan-io/sampan/controller/garbage"
	"github.com/sampan-io/sampan/internal/leaktest"
	"github.com/sampan-io/sampan/internal/run"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func tasks(c client.Interface, caches *cache.Shared) []run.Task {
	return garbage.Tasks(garbage.Options{Config: controllertest.Config(c, caches), Resources: clienttest.Resources()})
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name + "-uid")}
}

func ownedBy(m metav1.ObjectMeta, owner string, blocks bool) metav1.ObjectMeta {
	m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{
		APIVersion: "v1", Kind: "ConfigMap", Name: owner, UID: types.UID(owner + "-uid"), BlockOwnerDeletion: &blocks,
	})
	return m
}

func has(s *clienttest.Server, name string) bool {
	return clienttest.Find(s, client.ConfigMaps, "default", name) != nil
}

func remove(t *testing.T, s *clienttest.Server, name string, policy metav1.DeletionPropagation) {
	t.Helper()
	if err := client.ConfigMaps.Delete(t.Context(), s, "default", name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		t.Fatal(err)
	}
	controllertest.Rest()
}

func TestDependentsAreDeletedWithOwner(t *testing.T) {
	both := ownedBy(ownedBy(meta("both"), "owner", true), "other", true)
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		remove(t, s, "owner", metav1.DeletePropagationBackground)
		if has(s, "child") || has(s, "grandchild") {
			t.Error("the dependents are still there")
		}
		o := clienttest.Find(s, client.ConfigMaps, "default", "both")
		if o == nil || len(o.OwnerReferences) != 1 || o.OwnerReferences[0].Name != "other" {
			t.Errorf("what has another owner is %+v", o)
		}
	}, &corev1.ConfigMap{ObjectMeta: meta("owner")}, &corev1.ConfigMap{ObjectMeta: meta("other")},
		&corev1.ConfigMap{ObjectMeta: ownedBy(meta("child"), "owner", true)},
		&corev1.ConfigMap{ObjectMeta: ownedBy(meta("grandchild"), "child", true)},
		&corev1.ConfigMap{ObjectMeta: both})
}

func TestOrphanedDependentsStay(t *testing.T) {
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		remove(t, s, "owner", metav1.DeletePropagationOrphan)
		if has(s, "owner") {
			t.Error("the owner is still there")
		}
		if c := clienttest.Find(s, client.ConfigMaps, "default", "child"); c == nil || len(c.OwnerReferences) != 0 {
			t.Errorf("the child is %+v", c)
		}
	}, &corev1.ConfigMap{ObjectMeta: meta("owner")}, &corev1.ConfigMap{ObjectMeta: ownedBy(meta("child"), "owner", true)})
}

func TestForegroundDeletesOwnerLast(t *testing.T) {
	stuck := &corev1.ConfigMap{ObjectMeta: ownedBy(meta("grandchild"), "child", true)}
	stuck.Finalizers = []string{"example.com/hold"}
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		remove(t, s, "owner", metav1.DeletePropagationForeground)
		if !has(s, "owner") || !has(s, "child") || !has(s, "grandchild") {
			t.Fatalf("owner %v, child %v, grandchild %v: want all held by the last", has(s, "owner"), has(s, "child"), has(s, "grandchild"))
		}
		if has(s, "free") {
			t.Error("a dependent that nothing holds is still there")
		}
		g := clienttest.Find(s, client.ConfigMaps, "default", "grandchild").DeepCopy()
		if g.DeletionTimestamp == nil {
			t.Error("the grandchild is not being deleted")
		}
		g.Finalizers = nil
		if _, err := client.ConfigMaps.Update(t.Context(), s, g, ""); err != nil {
			t.Fatal(err)
		}
		controllertest.Rest()
		if has(s, "owner") || has(s, "child") || has(s, "grandchild") {
			t.Errorf("owner %v, child %v, grandchild %v: want none", has(s, "owner"), has(s, "child"), has(s, "grandchild"))
		}
	}, &corev1.ConfigMap{ObjectMeta: meta("owner")}, &corev1.ConfigMap{ObjectMeta: ownedBy(meta("child"), "owner", true)},
		&corev1.ConfigMap{ObjectMeta: ownedBy(meta("free"), "owner", true)}, stuck)
}

func TestCircularOwnersAreDeleted(t *testing.T) {
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		remove(t, s, "a", metav1.DeletePropagationForeground)
		time.Sleep(time.Hour)
		if has(s, "a") || has(s, "b") {
			t.Errorf("a %v, b %v: want none", has(s, "a"), has(s, "b"))
		}
	}, &corev1.ConfigMap{ObjectMeta: ownedBy(meta("a"), "b", true)}, &corev1.ConfigMap{ObjectMeta: ownedBy(meta("b"), "a", true)})
}

func TestUnknownOwnersAreNotAbsent(t *testing.T) {
	stranger := ownedBy(meta("of-a-stranger"), "x", false)
	stranger.OwnerReferences[0].APIVersion, stranger.OwnerReferences[0].Kind = "example.com/v1", "Thing"
	cluster := &corev1.Node{ObjectMeta: ownedBy(metav1.ObjectMeta{Name: "n1", UID: "n1"}, "gone", false)}
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		if !has(s, "of-a-stranger") {
			t.Error("an object of an owner of unknown kind was collected")
		}
		if clienttest.Find(s, client.Nodes, "", "n1") == nil {
			t.Error("an object of the cluster was collected for an owner in a namespace")
		}
		if has(s, "of-a-dead-namesake") {
			t.Error("an object whose owner was replaced by another of that name is still there")
		}
		// The server cannot be asked: the owner's absence is not certain.
		s.Intercept(func(r clienttest.Request) error {
			if r.Verb == "get" {
				return errors.New("connection refused")
			}
			return nil
		})
		s.Set(t, &corev1.ConfigMap{ObjectMeta: ownedBy(meta("late"), "gone", false)})
		controllertest.Rest()
		if !has(s, "late") {
			t.Error("an object was collected without asking for its owner")
		}
		s.Intercept(nil)
		time.Sleep(time.Hour)
		if has(s, "late") {
			t.Error("an object whose owner does not exist is still there")
		}
	}, &corev1.ConfigMap{ObjectMeta: stranger}, cluster,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "reborn", UID: "second"}},
		&corev1.ConfigMap{ObjectMeta: ownedBy(meta("of-a-dead-namesake"), "reborn", false)})
}
