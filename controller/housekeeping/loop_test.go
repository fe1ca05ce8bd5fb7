package housekeeping_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/housekeeping"
	"github.com/sampan-io/sampan/internal/run"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// keeping runs the controllers on a server of the given objects while f looks at it, in a
// bubble whose time is free.
func keeping(t *testing.T, f func(t *testing.T, s *clienttest.Server), objs ...client.Object) {
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.New(t, objs...)
		g := run.NewGroup(t.Context(), 0)
		g.Go(func(ctx context.Context) {
			err := run.Stages(ctx, housekeeping.Tasks(housekeeping.Options{
				Client: s, Resources: clienttest.Resources(), RootCA: []byte("PEM"), FinishedPods: 2,
			}))
			if err != nil {
				t.Errorf("the tasks ended with %v", err)
			}
		})
		defer g.Stop()
		synctest.Wait()
		f(t, s)
	})
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

func pod(name, ip string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: meta(name)}
	p.Labels = map[string]string{"app": "web"}
	p.Spec.NodeName = "n1"
	p.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: ip,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Unix(1000, 0))}},
	}
	return p
}

func service() *corev1.Service {
	return &corev1.Service{ObjectMeta: meta("web"), Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "web"}, ClusterIP: "10.0.0.9", Ports: []corev1.ServicePort{{Port: 80}},
	}}
}

func theSlices(s *clienttest.Server) []*discoveryv1.EndpointSlice {
	return clienttest.All(s, client.EndpointSlices, "default")
}

// TestEndpointsSayWhenTheirCauseHappened has a service that is made long after its pod: proxies
// measure from there on how long it took until connections go there.
func TestEndpointsSayWhenTheirCauseHappened(t *testing.T) {
	svc := service()
	svc.CreationTimestamp = metav1.NewTime(time.Unix(2000, 0))
	keeping(t, func(t *testing.T, s *clienttest.Server) {
		check := func(when, want string) {
			t.Helper()
			synctest.Wait()
			slice, endpoints := theSlices(s)[0], clienttest.Find(s, client.Endpoints, "default", "web")
			for _, at := range []string{slice.Annotations[corev1.EndpointsLastChangeTriggerTime], endpoints.Annotations[corev1.EndpointsLastChangeTriggerTime]} {
				if at != want {
					t.Errorf("%s: the change is said to be of %q, want %q", when, at, want)
				}
			}
		}
		check("a service for a pod that was ready before", "1970-01-01T00:33:20Z")
		two := pod("b", "10.1.0.2")
		two.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Unix(3000, 0))
		s.Set(t, two)
		check("another pod is ready", "1970-01-01T00:50:00Z")
		ports := svc.DeepCopy()
		ports.Spec.Ports[0].TargetPort = intstr.FromInt32(81)
		s.Set(t, ports)
		check("another port, and nobody says since when", "")
	}, svc, pod("a", "10.1.0.1"))
}

func TestAServiceHasEndpointsInBothForms(t *testing.T) {
	keeping(t, func(t *testing.T, s *clienttest.Server) {
		all := theSlices(s)
		if len(all) != 1 || len(all[0].Endpoints) != 1 || all[0].Endpoints[0].Addresses[0] != "10.1.0.1" {
			t.Fatalf("slices = %+v", all)
		}
		l := all[0]
		if !strings.HasPrefix(l.Name, "web-") || l.Labels[discoveryv1.LabelServiceName] != "web" || l.Labels[discoveryv1.LabelManagedBy] != "endpointslice-controller.k8s.io" {
			t.Errorf("the slice is %s with %v", l.Name, l.Labels)
		}
		if ref := metav1.GetControllerOf(l); ref == nil || ref.Kind != "Service" || ref.UID != "web-uid" {
			t.Errorf("the slice belongs to %v", ref)
		}
		e := clienttest.Find(s, client.Endpoints, "default", "web")
		if e == nil || len(e.Subsets) != 1 || e.Subsets[0].Addresses[0].IP != "10.1.0.1" || e.Subsets[0].Ports[0].Port != 80 {
			t.Fatalf("endpoints = %+v", e)
		}

		s.Writes()
		gone := pod("a", "10.1.0.1")
		gone.DeletionTimestamp, gone.Finalizers = &metav1.Time{Time: time.Now()}, []string{"x/hold"}
		s.Set(t, gone)
		synctest.Wait()
		if c := theSlices(s)[0].Endpoints[0].Conditions; *c.Ready || !*c.Serving || !*c.Terminating {
			t.Errorf("the endpoint of a pod that is being deleted is ready=%v serving=%v terminating=%v", *c.Ready, *c.Serving, *c.Terminating)
		}
		if e := clienttest.Find(s, client.Endpoints, "default", "web"); len(e.Subsets) != 0 {
			t.Errorf("subsets = %+v", e.Subsets)
		}
		if w := s.Writes(); len(w) != 2 {
			t.Errorf("%d writes for one change, want 2: %v", len(w), w)
		}

		if err := client.Services.Delete(t.Context(), s, "default", "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if e := clienttest.Find(s, client.Endpoints, "default", "web"); e != nil || len(theSlices(s)) != 0 {
			t.Errorf("of the deleted service %v and %d slices are left", e, len(theSlices(s)))
		}
	}, service(), pod("a", "10.1.0.1"))
}

// Proxies read slices alone, so Endpoints that people write are mirrored into slices, and
// are themselves left alone.
func TestEndpointsThatPeopleWroteAreMirrored(t *testing.T) {
	manual := service()
	manual.Spec.Selector = nil
	written := &corev1.Endpoints{ObjectMeta: meta("web"), Subsets: []corev1.EndpointSubset{{
		Addresses:         []corev1.EndpointAddress{{IP: "1.2.3.4"}, {IP: "fd00::1"}},
		NotReadyAddresses: []corev1.EndpointAddress{{IP: "1.2.3.5", Hostname: "b"}},
		Ports:             []corev1.EndpointPort{{Name: "z", Port: 443, Protocol: corev1.ProtocolTCP}, {Name: "a", Port: 80, Protocol: corev1.ProtocolTCP}},
	}}}
	written.Labels = map[string]string{"app": "old"}
	told := func(s *clienttest.Server) (lines []string) {
		for _, l := range theSlices(s) {
			ref := metav1.GetControllerOf(l)
			line := fmt.Sprintf("%s of %s %s for %s %v:", l.AddressType, ref.Kind, ref.UID, l.Labels[discoveryv1.LabelServiceName], l.Labels["app"])
			for _, p := range l.Ports {
				line += fmt.Sprintf(" %s=%d", *p.Name, *p.Port)
			}
			for _, e := range l.Endpoints {
				line += fmt.Sprintf(" %s(%v)", e.Addresses[0], *e.Conditions.Ready)
			}
			lines = append(lines, line)
		}
		slices.Sort(lines)
		return lines
	}
	keeping(t, func(t *testing.T, s *clienttest.Server) {
		want := []string{
			"IPv4 of Endpoints web-uid for web old: a=80 z=443 1.2.3.4(true) 1.2.3.5(false)",
			"IPv6 of Endpoints web-uid for web old: a=80 z=443 fd00::1(true)",
		}
		if got := told(s); !slices.Equal(got, want) {
			t.Errorf("slices:\n%s", strings.Join(got, "\n"))
		}
		e := clienttest.Find(s, client.Endpoints, "default", "web").DeepCopy()
		if len(e.Subsets) != 1 || len(e.Subsets[0].Addresses) != 2 {
			t.Errorf("endpoints = %+v", e)
		}

		s.Writes()
		e.Subsets[0].Addresses = e.Subsets[0].Addresses[:1]
		e.Subsets[0].NotReadyAddresses[0].IP = "1.2.3.4" // in both: ready
		s.Set(t, e)
		synctest.Wait()
		if got := told(s); !slices.Equal(got, []string{"IPv4 of Endpoints web-uid for web old: a=80 z=443 1.2.3.4(true)"}) {
			t.Errorf("slices after a change:\n%s", strings.Join(got, "\n"))
		}
		if w := s.Writes(); len(w) != 2 {
			t.Errorf("%d writes for one change, want 2: %v", len(w), w)
		}

		e = clienttest.Find(s, client.Endpoints, "default", "web").DeepCopy()
		e.Labels[discoveryv1.LabelSkipMirror] = "true"
		s.Set(t, e)
		synctest.Wait()
		if got := told(s); len(got) != 0 {
			t.Errorf("slices of what shall not be mirrored:\n%s", strings.Join(got, "\n"))
		}

		delete(e.Labels, discoveryv1.LabelSkipMirror)
		s.Set(t, e)
		synctest.Wait()
		selecting := service()
		selecting.UID = clienttest.Find(s, client.Services, "default", "web").UID
		s.Set(t, selecting)
		synctest.Wait()
		if got := told(s); len(got) != 1 || !strings.Contains(got[0], "of Service web-uid") {
			t.Errorf("slices of a service that has a selector now:\n%s", strings.Join(got, "\n"))
		}
	}, manual, written)
}

func TestEveryNamespaceHasItsAccountAndCertificate(t *testing.T) {
	keeping(t, func(t *testing.T, s *clienttest.Server) {
		if _, err := client.Namespaces.Create(t.Context(), s, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new"}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
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
		synctest.Wait()
		if clienttest.Find(s, client.ServiceAccounts, "new", "default") == nil {
			t.Error("a deleted account did not come back")
		}
		if c := clienttest.Find(s, client.ConfigMaps, "new", "kube-root-ca.crt"); c.Data["ca.crt"] != "PEM" {
			t.Errorf("the certificate is %q", c.Data["ca.crt"])
		}
	})
}

func TestADeletedNamespaceGoesWithEverything(t *testing.T) {
	in := func(m metav1.ObjectMeta) metav1.ObjectMeta { m.Namespace = "away"; return m }
	stuck := &corev1.ConfigMap{ObjectMeta: in(meta("stuck"))}
	stuck.Finalizers = []string{"example.com/hold"}
	p := pod("a", "")
	p.Namespace = "away"
	p.Status.Conditions = nil
	keeping(t, func(t *testing.T, s *clienttest.Server) {
		if err := client.Namespaces.Delete(t.Context(), s, "", "away", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
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
		synctest.Wait()
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
		synctest.Wait()
		if ns := clienttest.Find(s, client.Namespaces, "", "away"); ns != nil {
			t.Errorf("it is still there: %+v", ns)
		}
	}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "away"}}, stuck, p,
		&corev1.ReplicationController{ObjectMeta: in(meta("rc"))}, &corev1.Event{ObjectMeta: in(meta("e"))}, &batchv1.Job{ObjectMeta: in(meta("job"))})
}

func has(s *clienttest.Server, name string) bool {
	return clienttest.Find(s, client.ConfigMaps, "default", name) != nil
}

func remove(t *testing.T, s *clienttest.Server, name string, policy metav1.DeletionPropagation) {
	t.Helper()
	if err := client.ConfigMaps.Delete(t.Context(), s, "default", name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func TestDependentsGoWithTheirOwner(t *testing.T) {
	both := ownedBy(ownedBy(meta("both"), "owner", true), "other", true)
	keeping(t, func(t *testing.T, s *clienttest.Server) {
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

func TestWhatWasOrphanedStays(t *testing.T) {
	keeping(t, func(t *testing.T, s *clienttest.Server) {
		remove(t, s, "owner", metav1.DeletePropagationOrphan)
		if has(s, "owner") {
			t.Error("the owner is still there")
		}
		if c := clienttest.Find(s, client.ConfigMaps, "default", "child"); c == nil || len(c.OwnerReferences) != 0 {
			t.Errorf("the child is %+v", c)
		}
	}, &corev1.ConfigMap{ObjectMeta: meta("owner")}, &corev1.ConfigMap{ObjectMeta: ownedBy(meta("child"), "owner", true)})
}

func TestAnOwnerInTheForegroundGoesLast(t *testing.T) {
	stuck := &corev1.ConfigMap{ObjectMeta: ownedBy(meta("grandchild"), "child", true)}
	stuck.Finalizers = []string{"example.com/hold"}
	keeping(t, func(t *testing.T, s *clienttest.Server) {
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
		synctest.Wait()
		if has(s, "owner") || has(s, "child") || has(s, "grandchild") {
			t.Errorf("owner %v, child %v, grandchild %v: want none", has(s, "owner"), has(s, "child"), has(s, "grandchild"))
		}
	}, &corev1.ConfigMap{ObjectMeta: meta("owner")}, &corev1.ConfigMap{ObjectMeta: ownedBy(meta("child"), "owner", true)},
		&corev1.ConfigMap{ObjectMeta: ownedBy(meta("free"), "owner", true)}, stuck)
}

func TestOwnersInACircleEnd(t *testing.T) {
	keeping(t, func(t *testing.T, s *clienttest.Server) {
		remove(t, s, "a", metav1.DeletePropagationForeground)
		time.Sleep(time.Hour)
		if has(s, "a") || has(s, "b") {
			t.Errorf("a %v, b %v: want none", has(s, "a"), has(s, "b"))
		}
	}, &corev1.ConfigMap{ObjectMeta: ownedBy(meta("a"), "b", true)}, &corev1.ConfigMap{ObjectMeta: ownedBy(meta("b"), "a", true)})
}

func TestNothingIsCollectedOnAGuess(t *testing.T) {
	stranger := ownedBy(meta("of-a-stranger"), "x", false)
	stranger.OwnerReferences[0].APIVersion, stranger.OwnerReferences[0].Kind = "example.com/v1", "Thing"
	cluster := &corev1.Node{ObjectMeta: ownedBy(metav1.ObjectMeta{Name: "n1", UID: "n1"}, "gone", false)}
	keeping(t, func(t *testing.T, s *clienttest.Server) {
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
		synctest.Wait()
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

func node(ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n1"},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastHeartbeatTime: metav1.NewTime(time.Unix(1000, 0))}}},
	}
}

func lease(at time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "n1", UID: "lease"},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: at}},
	}
}

func ready(s *clienttest.Server) corev1.ConditionStatus {
	return clienttest.Find(s, client.Nodes, "", "n1").Status.Conditions[0].Status
}

func taints(s *clienttest.Server) (keys []string) {
	for _, t := range clienttest.Find(s, client.Nodes, "", "n1").Spec.Taints {
		keys = append(keys, fmt.Sprintf("%s:%s", t.Key, t.Effect))
	}
	return keys
}

func TestASilentNodeIsLostAndComesBack(t *testing.T) {
	keeping(t, func(t *testing.T, s *clienttest.Server) {
		for range 30 { // five minutes of renewals
			time.Sleep(10 * time.Second)
			s.Set(t, lease(time.Now().Add(-time.Hour))) // its clock is wrong
		}
		if ready(s) != corev1.ConditionTrue {
			t.Fatal("a node that renews its lease was lost")
		}
		s.Writes()
		time.Sleep(39 * time.Second)
		if w := s.Writes(); len(w) != 0 || ready(s) != corev1.ConditionTrue {
			t.Fatalf("it is %s before its grace is over; writes: %v", ready(s), w)
		}
		time.Sleep(2 * time.Second)
		if ready(s) != corev1.ConditionUnknown {
			t.Fatalf("it is %s when its grace is over", ready(s))
		}
		if want := []string{"node.kubernetes.io/unreachable:NoSchedule", "node.kubernetes.io/unreachable:NoExecute"}; !slices.Equal(taints(s), want) {
			t.Errorf("taints = %v", taints(s))
		}
		p := clienttest.Find(s, client.Pods, "default", "a")
		if p.Status.Conditions[0].Status != corev1.ConditionFalse || p.DeletionTimestamp != nil {
			t.Errorf("its pod is ready=%s, deleted at %v", p.Status.Conditions[0].Status, p.DeletionTimestamp)
		}
		// It comes back after four minutes, before its pods would have to go.
		time.Sleep(4 * time.Minute)
		back := clienttest.Find(s, client.Nodes, "", "n1").DeepCopy()
		back.Status = node(corev1.ConditionTrue).Status
		s.Set(t, back)
		s.Set(t, lease(time.Now()))
		synctest.Wait()
		if len(taints(s)) != 0 {
			t.Errorf("taints = %v after it came back", taints(s))
		}
		for range 60 {
			time.Sleep(10 * time.Second)
			s.Set(t, lease(time.Now()))
		}
		if p := clienttest.Find(s, client.Pods, "default", "a"); p.DeletionTimestamp != nil {
			t.Error("its pod was evicted")
		}
	}, node(corev1.ConditionTrue), lease(time.Unix(0, 0)), pod("a", "10.1.0.1"))
}

func TestPodsLeaveALostNodeInTime(t *testing.T) {
	stays := pod("stays", "10.1.0.2")
	stays.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	keeping(t, func(t *testing.T, s *clienttest.Server) {
		time.Sleep(40*time.Second + 299*time.Second)
		if p := clienttest.Find(s, client.Pods, "default", "a"); p.DeletionTimestamp != nil {
			t.Fatal("the pod was evicted before its time")
		}
		time.Sleep(2 * time.Second)
		p := clienttest.Find(s, client.Pods, "default", "a")
		if p.DeletionTimestamp == nil {
			t.Fatal("the pod was not evicted")
		}
		if !slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.DisruptionTarget && c.Reason == "DeletionByTaintManager"
		}) {
			t.Errorf("conditions = %+v", p.Status.Conditions)
		}
		time.Sleep(time.Hour)
		if p := clienttest.Find(s, client.Pods, "default", "stays"); p.DeletionTimestamp != nil {
			t.Error("a pod that tolerates everything was evicted")
		}

		// The node is given up: what is left of its pods goes.
		if err := client.Nodes.Delete(t.Context(), s, "", "n1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		if clienttest.Find(s, client.Pods, "default", "stays") == nil {
			t.Error("the pods of a node went before it could come back")
		}
		time.Sleep(11 * time.Second)
		if n := len(clienttest.All(s, client.Pods, "default")); n != 0 {
			t.Errorf("%d pods are left on a node that is gone", n)
		}
	}, node(corev1.ConditionTrue), pod("a", "10.1.0.1"), stays)
}

func TestFinishedPodsAreBounded(t *testing.T) {
	var pods []client.Object
	for i := range 5 {
		p := pod(fmt.Sprint("p", i), "")
		p.CreationTimestamp = metav1.NewTime(time.Unix(int64(1000+i), 0))
		p.Status = corev1.PodStatus{Phase: corev1.PodSucceeded}
		pods = append(pods, p)
	}
	keeping(t, func(t *testing.T, s *clienttest.Server) {
		var left []string
		for _, p := range clienttest.All(s, client.Pods, "default") {
			left = append(left, p.Name)
		}
		if !slices.Equal(left, []string{"p3", "p4"}) {
			t.Errorf("left are %v, want the two youngest", left)
		}
	}, append(pods, node(corev1.ConditionTrue))...)
}

func TestAnIdleClusterIsLeftAlone(t *testing.T) {
	keeping(t, func(t *testing.T, s *clienttest.Server) {
		var asked atomic.Int32
		s.Intercept(func(r clienttest.Request) error { asked.Add(1); return nil })
		for range 360 { // an hour of renewals
			time.Sleep(10 * time.Second)
			s.Set(t, lease(time.Now()))
		}
		if asked.Load() != 0 {
			t.Errorf("%d requests in an idle hour", asked.Load())
		}
	}, node(corev1.ConditionTrue), lease(time.Unix(0, 0)), pod("a", "10.1.0.1"), service(),
		&corev1.ConfigMap{ObjectMeta: meta("owner")}, &corev1.ConfigMap{ObjectMeta: ownedBy(meta("child"), "owner", true)})
}

func TestARefusedDeletionIsToldInTheNamespace(t *testing.T) {
	keeping(t, func(t *testing.T, s *clienttest.Server) {
		s.Intercept(func(r clienttest.Request) error {
			if r.Verb == "delete" && r.Resource == "secrets" {
				return apierrors.NewForbidden(corev1.Resource("secrets"), r.Name, errors.New("locked"))
			}
			return nil
		})
		if err := client.Namespaces.Delete(t.Context(), s, "", "away", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		told := slices.ContainsFunc(clienttest.Find(s, client.Namespaces, "", "away").Status.Conditions, func(c corev1.NamespaceCondition) bool {
			return c.Type == corev1.NamespaceDeletionContentFailure && c.Status == corev1.ConditionTrue && strings.Contains(c.Message, "locked")
		})
		if !told {
			t.Errorf("conditions = %+v", clienttest.Find(s, client.Namespaces, "", "away").Status.Conditions)
		}
		s.Intercept(nil)
		time.Sleep(time.Hour)
		if clienttest.Find(s, client.Namespaces, "", "away") != nil {
			t.Error("it is still there when nothing holds it any more")
		}
	}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "away"}}, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "away", Name: "s"}})
}
