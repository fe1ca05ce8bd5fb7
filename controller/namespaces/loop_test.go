package namespaces_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/controllertest"
	"github.com/sampan-io/sampan/controller/namespaces"
	"github.com/sampan-io/sampan/internal/leaktest"
	"github.com/sampan-io/sampan/internal/run"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func tasks(c client.Interface, caches *cache.Shared) []run.Task {
	return namespaces.Tasks(namespaces.Options{
		Config: controllertest.Config(c, caches), Resources: clienttest.Resources(), RootCA: []byte("PEM"),
	})
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name + "-uid")}
}

func TestNamespaceGetsAccountAndCertificate(t *testing.T) {
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		if _, err := client.Namespaces.Create(t.Context(), s, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new"}}); err != nil {
			t.Fatal(err)
		}
		controllertest.Rest()
		for _, ns := range []string{"default", "kube-system", "new"} {
			if clienttest.Find(s, client.ServiceAccounts, ns, "default") == nil {
				t.Errorf("%s has no account", ns)
			}
			if c := clienttest.Find(s, client.ConfigMaps, ns, "kube-root-ca.crt"); c == nil || c.Data["ca.crt"] != "PEM" {
				t.Errorf("%s has no certificate: %v", ns, c)
			}
		}
		s.Remove(t, clienttest.Find(s, client.ServiceAccounts, "new", "default"))
		spoiled := clienttest.Find(s, client.ConfigMaps, "new", "kube-root-ca.crt").DeepCopy()
		spoiled.Data["ca.crt"] = "other"
		s.Set(t, spoiled)
		controllertest.Rest()
		if clienttest.Find(s, client.ServiceAccounts, "new", "default") == nil {
			t.Error("a deleted account did not come back")
		}
		if c := clienttest.Find(s, client.ConfigMaps, "new", "kube-root-ca.crt"); c.Data["ca.crt"] != "PEM" {
			t.Errorf("the certificate is %q", c.Data["ca.crt"])
		}
	})
}

func TestNamespaceIsDeletedAfterItsContent(t *testing.T) {
	in := func(m metav1.ObjectMeta) metav1.ObjectMeta { m.Namespace = "away"; return m }
	stuck := &corev1.ConfigMap{ObjectMeta: in(meta("stuck"))}
	stuck.Finalizers = []string{"example.com/hold"}
	p := &corev1.Pod{ObjectMeta: in(meta("a")), Spec: corev1.PodSpec{NodeName: "n1"}}
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		if err := client.Namespaces.Delete(t.Context(), s, "", "away", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Rest()
		others := func() int {
			return len(clienttest.All(s, client.ReplicationControllers, "away")) + len(clienttest.All(s, client.Events, "away"))
		}
		remains := func(kind corev1.NamespaceConditionType, want string) {
			t.Helper()
			ns := clienttest.Find(s, client.Namespaces, "", "away")
			if ns == nil {
				t.Fatal("it is gone before its content")
			}
			for _, c := range ns.Status.Conditions {
				if c.Type == kind && c.Message == want {
					return
				}
			}
			t.Errorf("conditions are %+v, want %s: %s", ns.Status.Conditions, kind, want)
		}
		// While there are pods they keep what they use.
		remains(corev1.NamespaceContentRemaining, "Some resources are remaining: pods. has 1 resource instances")
		remains(corev1.NamespaceDeletionContentFailure, "All content successfully deleted, may be waiting on finalization")
		if m := clienttest.Find(s, client.ConfigMaps, "away", "stuck"); m == nil || m.DeletionTimestamp != nil || others() != 2 {
			t.Errorf("while a pod is left there are the config map %v and %d other objects, want all", m, others())
		}
		s.Remove(t, p)
		controllertest.Rest()
		remains(corev1.NamespaceContentRemaining, "Some resources are remaining: configmaps. has 1 resource instances")
		remains(corev1.NamespaceFinalizersRemaining, "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances")
		if n := others(); n != 0 {
			t.Errorf("%d other objects are left", n)
		}
		free := clienttest.Find(s, client.ConfigMaps, "away", "stuck").DeepCopy()
		free.Finalizers = nil
		if _, err := client.ConfigMaps.Update(t.Context(), s, free, ""); err != nil {
			t.Fatal(err)
		}
		controllertest.Rest()
		if ns := clienttest.Find(s, client.Namespaces, "", "away"); ns != nil {
			t.Errorf("it is still there: %+v", ns)
		}
	}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "away"}}, stuck, p,
		&corev1.ReplicationController{ObjectMeta: in(meta("rc"))}, &corev1.Event{ObjectMeta: in(meta("e"))}, &batchv1.Job{ObjectMeta: in(meta("job"))})
}

func TestEmptyNamespaceWithFinalizerHasConditions(t *testing.T) {
	held := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "away", Finalizers: []string{"example.com/hold"}}}
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		if err := client.Namespaces.Delete(t.Context(), s, "", "away", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Rest()
		ns := clienttest.Find(s, client.Namespaces, "", "away")
		if ns == nil || len(ns.Spec.Finalizers) != 0 || len(ns.Status.Conditions) != 5 {
			t.Fatalf("the namespace is %+v, want one without a finalizer in its spec, and with 5 conditions", ns)
		}
		for _, c := range ns.Status.Conditions {
			if c.Status != corev1.ConditionFalse {
				t.Errorf("%s is %s: %s", c.Type, c.Status, c.Message)
			}
		}
	}, held)
}

func TestNamespaceConditionsNameRefusedDeletion(t *testing.T) {
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		s.Intercept(func(r clienttest.Request) error {
			if r.Verb == "delete" && r.Resource == "secrets" {
				return apierrors.NewForbidden(corev1.Resource("secrets"), r.Name, errors.New("locked"))
			}
			return nil
		})
		if err := client.Namespaces.Delete(t.Context(), s, "", "away", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Rest()
		found := slices.ContainsFunc(clienttest.Find(s, client.Namespaces, "", "away").Status.Conditions, func(c corev1.NamespaceCondition) bool {
			return c.Type == corev1.NamespaceDeletionContentFailure && c.Status == corev1.ConditionTrue && c.Reason == "ContentDeletionFailed" && c.Message == `Failed to delete all resource types, 1 remaining: secrets "s" is forbidden: locked`
		})
		if !found {
			t.Errorf("conditions = %+v", clienttest.Find(s, client.Namespaces, "", "away").Status.Conditions)
		}
		s.Intercept(nil)
		time.Sleep(time.Hour)
		if clienttest.Find(s, client.Namespaces, "", "away") != nil {
			t.Error("it is still there when nothing holds it any more")
		}
	}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "away"}}, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "away", Name: "s"}})
}

// absent is other servers of which one does not say what it serves.
type absent struct{ known atomic.Bool }

// Empty implements [namespaces.Others].
func (a *absent) Empty(context.Context, string) (map[string][]client.Object, []error) {
	if a.known.Load() {
		return nil, nil
	}
	whale := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "moby", Finalizers: []string{"example.com/hold"}}}
	return map[string][]client.Object{"whales.sea.example.com": {whale}}, []error{&namespaces.DiscoveryError{Versions: []string{"sky.example.com/v1"}}}
}

func TestNamespaceStaysWhileOtherServersAreUnknown(t *testing.T) {
	others := &absent{}
	with := func(c client.Interface, caches *cache.Shared) []run.Task {
		return namespaces.Tasks(namespaces.Options{Config: controllertest.Config(c, caches), Resources: clienttest.Resources(), Others: others})
	}
	controllertest.Controlling(t, with, func(t *testing.T, s *clienttest.Server) {
		if err := client.Namespaces.Delete(t.Context(), s, "", "away", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Rest()
		ns := clienttest.Find(s, client.Namespaces, "", "away")
		if ns == nil {
			t.Fatal("it is gone before its content")
		}
		for kind, want := range map[corev1.NamespaceConditionType]string{
			corev1.NamespaceDeletionDiscoveryFailure: "DiscoveryFailed: Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: sky.example.com/v1: stale GroupVersion discovery: sky.example.com/v1",
			corev1.NamespaceContentRemaining:         "SomeResourcesRemain: Some resources are remaining: whales.sea.example.com has 1 resource instances",
			corev1.NamespaceDeletionContentFailure:   "ContentDeleted: All content successfully deleted, may be waiting on finalization",
		} {
			if !slices.ContainsFunc(ns.Status.Conditions, func(c corev1.NamespaceCondition) bool { return c.Type == kind && c.Reason+": "+c.Message == want }) {
				t.Errorf("conditions are %+v, want %s: %s", ns.Status.Conditions, kind, want)
			}
		}
		others.known.Store(true)
		time.Sleep(time.Minute) // it tries again
		controllertest.Rest()
		if ns := clienttest.Find(s, client.Namespaces, "", "away"); ns != nil {
			t.Errorf("it is still there: %+v", ns.Status)
		}
	}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "away"}, Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"kubernetes"}}})
}
