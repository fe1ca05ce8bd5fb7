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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/controllertest"
	"github.com/sampan-io/sampan/controller/endpoints"
	"github.com/sampan-io/sampan/internal/leaktest"
	"github.com/sampan-io/sampan/internal/run"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func tasks(c client.Interface, caches *cache.Shared) []run.Task {
	return endpoints.Tasks(controllertest.Config(c, caches))
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name + "-uid")}
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

// TestEndpointsHaveTimeOfTheirCause has a service that is made long after its pod: proxies
// measure from there on how long it took until connections go there.
func TestEndpointsHaveTimeOfTheirCause(t *testing.T) {
	svc := service()
	svc.CreationTimestamp = metav1.NewTime(time.Unix(2000, 0))
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
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

func TestServiceHasEndpointsAndSlices(t *testing.T) {
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
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
		if e := clienttest.Find(s, client.Endpoints, "default", "web"); e != nil {
			t.Errorf("the Endpoints of the deleted Service are left: %v", e)
		}
	}, service(), pod("a", "10.1.0.1"))
}

// Proxies read slices alone, so Endpoints that people write are mirrored into slices, and
// are themselves left alone.
func TestUserEndpointsAreMirrored(t *testing.T) {
	manual := service()
	manual.Spec.Selector = nil
	written := &corev1.Endpoints{ObjectMeta: meta("web"), Subsets: []corev1.EndpointSubset{{
		Addresses:         []corev1.EndpointAddress{{IP: "1.2.3.4"}, {IP: "fd00::1"}},
		NotReadyAddresses: []corev1.EndpointAddress{{IP: "1.2.3.5", Hostname: "b"}},
		Ports:             []corev1.EndpointPort{{Name: "z", Port: 443, Protocol: corev1.ProtocolTCP}, {Name: "a", Port: 80, Protocol: corev1.ProtocolTCP}},
	}}}
	written.Labels = map[string]string{"app": "old"}
	rendered := func(s *clienttest.Server) (lines []string) {
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
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		want := []string{
			"IPv4 of Endpoints web-uid for web old: a=80 z=443 1.2.3.4(true) 1.2.3.5(false)",
			"IPv6 of Endpoints web-uid for web old: a=80 z=443 fd00::1(true)",
		}
		if got := rendered(s); !slices.Equal(got, want) {
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
		if got := rendered(s); !slices.Equal(got, []string{"IPv4 of Endpoints web-uid for web old: a=80 z=443 1.2.3.4(true)"}) {
			t.Errorf("slices after a change:\n%s", strings.Join(got, "\n"))
		}
		if w := s.Writes(); len(w) != 2 {
			t.Errorf("%d writes for one change, want 2: %v", len(w), w)
		}

		e = clienttest.Find(s, client.Endpoints, "default", "web").DeepCopy()
		e.Labels[discoveryv1.LabelSkipMirror] = "true"
		s.Set(t, e)
		synctest.Wait()
		if got := rendered(s); len(got) != 0 {
			t.Errorf("slices of what shall not be mirrored:\n%s", strings.Join(got, "\n"))
		}

		delete(e.Labels, discoveryv1.LabelSkipMirror)
		s.Set(t, e)
		synctest.Wait()
		selecting := service()
		selecting.UID = clienttest.Find(s, client.Services, "default", "web").UID
		s.Set(t, selecting)
		synctest.Wait()
		if got := rendered(s); len(got) != 1 || !strings.Contains(got[0], "of Service web-uid") {
			t.Errorf("slices of a service that has a selector now:\n%s", strings.Join(got, "\n"))
		}
	}, manual, written)
}
