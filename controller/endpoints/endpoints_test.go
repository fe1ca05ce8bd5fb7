package endpoints_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/controllertest"
)

// eventsOf returns the events of an object.
func eventsOf(s *clienttest.Server, name string) (all []string) {
	synctest.Wait()
	for _, e := range clienttest.All(s, client.Events, "default") {
		if e.InvolvedObject.Name == name {
			all = append(all, fmt.Sprintf("%d× %s %s: %s", e.Count, e.Type, e.Reason, e.Message))
		}
	}
	slices.Sort(all)
	return all
}

func checkEventsOf(t *testing.T, s *clienttest.Server, name string, want ...string) {
	t.Helper()
	if got := eventsOf(s, name); !slices.Equal(got, want) {
		t.Errorf("events of %s:\n%s\nwant:\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// homeless returns a pod without a node.
func homeless(name, ip string) *corev1.Pod {
	p := pod(name, ip)
	p.Spec.NodeName = ""
	return p
}

func relabelled(p *corev1.Pod, labels map[string]string) *corev1.Pod {
	p = p.DeepCopy()
	p.Labels = labels
	return p
}

// TestSelectorWithoutPodsHasEvent checks that there is one event, after some time, about a selector without pods, and one
// when it matches again.
func TestSelectorWithoutPodsHasEvent(t *testing.T) {
	svc := service()
	svc.Spec.Selector = map[string]string{"app": "web", "tier": "front"}
	other := homeless("other", "10.1.0.9") // app=web alone
	none := "1× Warning SelectorMatchesNothing: No pod in namespace default matches its selector app=web,tier=front; none has tier=front"
	matching := homeless("a", "10.1.0.1")
	matching.Labels["tier"] = "front"
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		time.Sleep(14 * time.Second)
		checkEventsOf(t, s, "web") // the pods may follow in a moment
		time.Sleep(time.Second)
		checkEventsOf(t, s, "web", none)
		for range 5 {
			touched := clienttest.Find(s, client.Services, "default", "web").DeepCopy()
			touched.Labels = map[string]string{"touched": fmt.Sprint(time.Now().Unix())}
			s.Set(t, touched)
			time.Sleep(time.Minute)
		}
		checkEventsOf(t, s, "web", none)

		s.Set(t, matching)
		again := "1× Normal SelectorMatches: Its selector matches 1 pod again"
		checkEventsOf(t, s, "web", again, none)
		// All pods are replaced: that is no reason for a warning.
		s.Remove(t, matching)
		time.Sleep(10 * time.Second)
		fresh := matching.DeepCopy()
		fresh.Name, fresh.Status = "b", corev1.PodStatus{Phase: corev1.PodPending}
		s.Set(t, fresh)
		time.Sleep(time.Hour)
		checkEventsOf(t, s, "web", again, none)
		// They lose their labels.
		s.Set(t, relabelled(fresh, map[string]string{"tier": "front"}), relabelled(other, nil))
		time.Sleep(time.Minute)
		checkEventsOf(t, s, "web", again, "1× Warning SelectorMatchesNothing: No pod in namespace default matches its selector app=web,tier=front; none has app=web", none)
	}, svc, other)
}

// TestRestartRepeatsNoEvent checks that a restart does not repeat the event.
func TestRestartRepeatsNoEvent(t *testing.T) {
	earlier := &corev1.Event{
		ObjectMeta: meta("web.1"), InvolvedObject: client.Reference(service()), Reason: "SelectorMatchesNothing", Type: corev1.EventTypeWarning,
		Count: 1, LastTimestamp: metav1.Now(),
	}
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		time.Sleep(time.Hour)
		if got := eventsOf(s, "web"); len(got) != 1 {
			t.Errorf("events = %q", got)
		}
	}, service(), earlier)
}

// TestAPodChangesOneSliceOfItsServices checks endpoints-E1: a change of one of many pods is written to one slice of its
// services, and no other service is reconciled.
func TestAPodChangesOneSliceOfItsServices(t *testing.T) {
	objs := []client.Object{}
	for i := range 10 {
		svc := service()
		svc.Name, svc.UID = fmt.Sprint("other-", i), ""
		svc.Spec.Selector = map[string]string{"app": fmt.Sprint("other-", i)}
		objs = append(objs, svc)
		p := pod(fmt.Sprint("other-", i), fmt.Sprintf("10.2.0.%d", i+1))
		p.Labels["app"] = fmt.Sprint("other-", i)
		objs = append(objs, p)
	}
	for i := range 250 {
		objs = append(objs, pod(fmt.Sprint("p", i), fmt.Sprintf("10.1.0.%d", i+1)))
	}
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		if n := len(theSlices(s)); n != 13 {
			t.Fatalf("%d slices, want 3 and 10", n)
		}
		s.Writes()
		p := pod("p120", "10.1.0.121")
		p.Status.Conditions[0].Status = corev1.ConditionFalse
		s.Set(t, p)
		synctest.Wait()
		if w := s.Writes(); len(w) != 2 || w[0].Resource != "endpointslices" || w[1].Resource != "endpoints" {
			t.Errorf("writes %v, want one slice and the Endpoints", w)
		}
	}, append(objs, service())...)
}

// A pod's endpoint is where its node is.
func TestANodeMovesToAnotherZone(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelTopologyZone: "east"}}}
	svc := service()
	svc.Spec.TrafficDistribution = new(corev1.ServiceTrafficDistributionPreferSameZone)
	zones := func(s *clienttest.Server) string {
		synctest.Wait()
		e := theSlices(s)[0].Endpoints[0]
		if e.Zone == nil || e.Hints == nil {
			return "nowhere"
		}
		return *e.Zone + " for " + e.Hints.ForZones[0].Name
	}
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		if got := zones(s); got != "east for east" {
			t.Errorf("the endpoint is in %s", got)
		}
		moved := clienttest.Find(s, client.Nodes, "", "n1").DeepCopy()
		moved.Labels[corev1.LabelTopologyZone] = "west"
		s.Set(t, moved)
		if got := zones(s); got != "west for west" {
			t.Errorf("the endpoint is in %s", got)
		}
	}, svc, pod("a", "10.1.0.1"), node)
}

// TestHintsHaveEvents checks that there is an event when a service cannot have hints, and when it gets them.
func TestHintsHaveEvents(t *testing.T) {
	node := func(name, zone string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: *resource("4")}
		return n
	}
	svc := service()
	svc.Annotations = map[string]string{corev1.AnnotationTopologyMode: "Auto"}
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		none := "1× Warning TopologyAwareHintsDisabled: IPv4 endpoints have no topology hints: the nodes that are ready are in a single zone"
		checkEventsOf(t, s, "web", none)
		s.Set(t, node("n2", "west"))
		checkEventsOf(t, s, "web", "1× Normal TopologyAwareHintsEnabled: IPv4 endpoints have topology hints", none)
		for _, e := range theSlices(s)[0].Endpoints {
			if e.Hints == nil {
				t.Errorf("%v has no hints", e.Addresses)
			}
		}
	}, svc, pod("a", "10.1.0.1"), pod("b", "10.1.0.2"), node("n1", "east"))
}

// A service that waits for its finalizers goes on leading to its pods, and gets nothing new.
func TestAServiceThatIsBeingDeleted(t *testing.T) {
	svc := service()
	svc.Finalizers = []string{"service.kubernetes.io/load-balancer-cleanup"}
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		if err := client.Services.Delete(t.Context(), s, "default", "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		gone := homeless("a", "10.1.0.1")
		s.Remove(t, gone)
		time.Sleep(time.Minute)
		synctest.Wait()
		all := theSlices(s)
		if len(all) != 1 || len(all[0].Endpoints) != 1 || all[0].Endpoints[0].TargetRef.Name != "b" {
			t.Errorf("slices %+v", all)
		}
		s.Remove(t, homeless("b", "10.1.0.2"))
		time.Sleep(time.Minute)
		checkEventsOf(t, s, "web")
	}, svc, homeless("a", "10.1.0.1"), homeless("b", "10.1.0.2"))
}

// Of Endpoints with too many addresses the first are mirrored, annotations are, and
// elections are not.
func TestMirrorSelectsEndpoints(t *testing.T) {
	manual := service()
	manual.Spec.Selector = nil
	written := &corev1.Endpoints{ObjectMeta: meta("web"), Subsets: []corev1.EndpointSubset{{Ports: []corev1.EndpointPort{{Port: 80, Protocol: corev1.ProtocolTCP}}}}}
	written.Annotations = map[string]string{"who": "me", corev1.EndpointsLastChangeTriggerTime: "2000-01-01T00:00:00Z"}
	for i := range 1007 {
		written.Subsets[0].Addresses = append(written.Subsets[0].Addresses, corev1.EndpointAddress{IP: fmt.Sprintf("10.9.%d.%d", i/250, i%250)})
	}
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		total := 0
		for _, l := range theSlices(s) {
			if total += len(l.Endpoints); len(l.Annotations) != 1 || l.Annotations["who"] != "me" {
				t.Errorf("annotations %v", l.Annotations)
			}
		}
		if total != 1000 {
			t.Errorf("%d endpoints, want 1000", total)
		}
		checkEventsOf(t, s, "web", "1× Warning TooManyAddressesToMirror: Only the first 1000 addresses of a subset are mirrored to EndpointSlices; 7 are left out")

		few := clienttest.Find(s, client.Endpoints, "default", "web").DeepCopy()
		few.Subsets[0].Addresses = few.Subsets[0].Addresses[:1]
		few.Annotations["who"] = "you"
		s.Set(t, few)
		synctest.Wait()
		if all := theSlices(s); len(all) != 1 || all[0].Annotations["who"] != "you" || len(all[0].Endpoints) != 1 {
			t.Errorf("slices %+v", all)
		}
		few = few.DeepCopy()
		few.Annotations["control-plane.alpha.kubernetes.io/leader"] = "{}"
		s.Set(t, few)
		synctest.Wait()
		if all := theSlices(s); len(all) != 0 {
			t.Errorf("slices of an election: %+v", all)
		}
	}, manual, written)
}

// Services and pods that come and go in any order: each has the slices that it should.
func TestMembersInAnyOrder(t *testing.T) {
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		web := func() string {
			synctest.Wait()
			var all []string
			for _, l := range theSlices(s) {
				for _, e := range l.Endpoints {
					all = append(all, l.Labels[discoveryv1.LabelServiceName]+":"+e.TargetRef.Name)
				}
			}
			slices.Sort(all)
			return strings.Join(all, " ")
		}
		s.Set(t, pod("a", "10.1.0.1"))
		if got := web(); got != "" {
			t.Errorf("got %q", got)
		}
		s.Set(t, service())
		if got := web(); got != "web:a" {
			t.Errorf("got %q", got)
		}
		s.Set(t, pod("b", "10.1.0.2"))
		if got := web(); got != "web:a web:b" {
			t.Errorf("got %q", got)
		}
		s.Set(t, relabelled(pod("a", "10.1.0.1"), map[string]string{"app": "db"}))
		if got := web(); got != "web:b" {
			t.Errorf("got %q", got)
		}
		svc := clienttest.Find(s, client.Services, "default", "web").DeepCopy()
		svc.Spec.Selector = map[string]string{"app": "db"}
		s.Set(t, svc)
		if got := web(); got != "web:a" {
			t.Errorf("got %q", got)
		}
		second := service()
		second.Name, second.UID = "second", "second-uid"
		s.Set(t, second)
		if got := web(); got != "second:b web:a" {
			t.Errorf("got %q", got)
		}
		s.Remove(t, pod("b", "10.1.0.2"))
		if got := web(); got != "web:a" {
			t.Errorf("got %q", got)
		}
	})
}

func resource(text string) *apiresource.Quantity {
	q := apiresource.MustParse(text)
	return &q
}
