package endpoints

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/controller/podstate"
)

func service(set func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "svc", Labels: map[string]string{"team": "a"}},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "web"}, ClusterIP: "10.0.0.9",
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("web"), Protocol: corev1.ProtocolTCP}},
		},
	}
	if set != nil {
		set(s)
	}
	return s
}

func servingPod(name, ip string, set func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{
			{Name: "c", Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}}},
		}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	if set != nil {
		set(p)
	}
	return p
}

// nowhere is a topology in which nothing is known.
var nowhere = topology{zone: func(string) string { return "" }, shares: func() (map[string]int64, string) { return nil, "" }}

func unready(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }

func deleted(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

// tell writes slices and subsets as lines.
func tell(svc *corev1.Service, pods ...*corev1.Pod) (lines []string) {
	backends := backendsOf(svc, pods)
	plan := planSlices(svc, backends, nil, nowhere)
	for _, s := range plan.create {
		line := fmt.Sprintf("slice %s [%s]", s.AddressType, portKey(s.Ports))
		for _, e := range s.Endpoints {
			line += fmt.Sprintf(" %s(ready=%v serving=%v terminating=%v)", e.Addresses[0], *e.Conditions.Ready, *e.Conditions.Serving, *e.Conditions.Terminating)
			if e.Hostname != nil {
				line += " host " + *e.Hostname
			}
		}
		lines = append(lines, line)
	}
	subsets, _ := planEndpoints(svc, backends)
	for _, s := range subsets {
		line := "subset"
		for _, p := range s.Ports {
			line += fmt.Sprintf(" %s:%d/%s", p.Name, p.Port, p.Protocol)
		}
		for _, a := range s.Addresses {
			line += " +" + a.IP
		}
		for _, a := range s.NotReadyAddresses {
			line += " -" + a.IP
		}
		lines = append(lines, line)
	}
	return lines
}

func TestWhereAServiceLeads(t *testing.T) {
	tests := []struct {
		name string
		svc  *corev1.Service
		pods []*corev1.Pod
		want []string
	}{
		{"to nobody", service(nil), nil, []string{"slice IPv4 []"}},
		{"to ready pods", service(nil), []*corev1.Pod{servingPod("a", "10.1.0.1", nil), servingPod("b", "10.1.0.2", nil)}, []string{
			"slice IPv4 [http/8080/TCP/] 10.1.0.1(ready=true serving=true terminating=false) 10.1.0.2(ready=true serving=true terminating=false)",
			"subset http:8080/TCP +10.1.0.1 +10.1.0.2",
		}},
		{"not to those that are not ready", service(nil), []*corev1.Pod{servingPod("a", "10.1.0.1", unready)}, []string{
			"slice IPv4 [http/8080/TCP/] 10.1.0.1(ready=false serving=false terminating=false)",
			"subset http:8080/TCP -10.1.0.1",
		}},
		{"not to those that are being deleted, from that moment on", service(nil), []*corev1.Pod{servingPod("a", "10.1.0.1", deleted)}, []string{
			"slice IPv4 [http/8080/TCP/] 10.1.0.1(ready=false serving=true terminating=true)",
		}},
		{
			"to all of them if it wants to see them", service(func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true }),
			[]*corev1.Pod{servingPod("a", "10.1.0.1", unready), servingPod("b", "10.1.0.2", deleted)},
			[]string{
				"slice IPv4 [http/8080/TCP/] 10.1.0.1(ready=true serving=false terminating=false) 10.1.0.2(ready=true serving=true terminating=true)",
				"subset http:8080/TCP +10.1.0.1 +10.1.0.2",
			},
		},
		{"not to pods that ended, have no address or other labels", service(nil), []*corev1.Pod{
			servingPod("a", "10.1.0.1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
			servingPod("b", "", nil),
			servingPod("c", "10.1.0.3", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "db"} }),
		}, []string{"slice IPv4 []"}},
		{"to the port that each pod calls by the name", service(nil), []*corev1.Pod{
			servingPod("a", "10.1.0.1", nil),
			servingPod("b", "10.1.0.2", func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].ContainerPort = 9090 }),
			servingPod("c", "10.1.0.3", func(p *corev1.Pod) { p.Spec.Containers[0].Ports = nil }),
		}, []string{
			"slice IPv4 [] 10.1.0.3(ready=true serving=true terminating=false)", // it has no such port
			"slice IPv4 [http/8080/TCP/] 10.1.0.1(ready=true serving=true terminating=false)",
			"slice IPv4 [http/9090/TCP/] 10.1.0.2(ready=true serving=true terminating=false)",
			"subset http:8080/TCP +10.1.0.1",
			"subset http:9090/TCP +10.1.0.2",
		}},
		{"by number, and by its own without a target", service(func(s *corev1.Service) {
			s.Spec.Ports = []corev1.ServicePort{{Name: "a", Port: 1, TargetPort: intstr.FromInt32(7)}, {Name: "b", Port: 2}}
		}), []*corev1.Pod{servingPod("a", "10.1.0.1", nil)}, []string{
			"slice IPv4 [a/7/TCP/,b/2/TCP/] 10.1.0.1(ready=true serving=true terminating=false)",
			"subset a:7/TCP b:2/TCP +10.1.0.1",
		}},
		{"by name to the pods of a headless service without ports", service(func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.Ports = corev1.ClusterIPNone, nil
		}), []*corev1.Pod{servingPod("a", "10.1.0.1", func(p *corev1.Pod) { p.Spec.Hostname, p.Spec.Subdomain = "first", "web" })}, []string{
			"slice IPv4 [] 10.1.0.1(ready=true serving=true terminating=false) host first",
			"subset +10.1.0.1",
		}},
		{"in both families", service(func(s *corev1.Service) {
			s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
		}), []*corev1.Pod{servingPod("a", "10.1.0.1", func(p *corev1.Pod) {
			p.Status.PodIPs = []corev1.PodIP{{IP: "10.1.0.1"}, {IP: "fd00::1"}}
		})}, []string{
			"slice IPv4 [http/8080/TCP/] 10.1.0.1(ready=true serving=true terminating=false)",
			"slice IPv6 [http/8080/TCP/] fd00::1(ready=true serving=true terminating=false)",
			"subset http:8080/TCP +10.1.0.1",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tell(tt.svc, tt.pods...)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestSlicesHoldWhatTheyShould changes the pods of a service at random, carries the plan
// out, and looks at the result: every pod is in exactly one slice, no slice is too
// big, none is empty without need, and the next plan has nothing to do.
func TestSlicesHoldWhatTheyShould(t *testing.T) {
	svc := service(nil)
	rapid.Check(t, func(t *rapid.T) {
		pods := map[string]*corev1.Pod{}
		var have []*discoveryv1.EndpointSlice
		names := 0
		for range rapid.IntRange(1, 5).Draw(t, "rounds") {
			for range rapid.IntRange(0, 150).Draw(t, "changes") {
				i := rapid.IntRange(0, 250).Draw(t, "pod")
				name := fmt.Sprint("p", i)
				if rapid.IntRange(0, 2).Draw(t, "what") == 0 {
					delete(pods, name)
					continue
				}
				pods[name] = servingPod(name, fmt.Sprintf("10.1.0.%d", i), func(p *corev1.Pod) {
					if rapid.Bool().Draw(t, "ready") {
						unready(p)
					}
				})
			}
			backends := backendsOf(svc, slices.Collect(maps.Values(pods)))
			plan := planSlices(svc, backends, have, nowhere)
			for _, s := range plan.update {
				i := slices.IndexFunc(have, func(h *discoveryv1.EndpointSlice) bool { return h.Name == s.Name })
				have[i] = s
			}
			have = slices.DeleteFunc(have, func(s *discoveryv1.EndpointSlice) bool { return slices.Contains(plan.remove, s) })
			for _, s := range plan.create {
				s.Name = fmt.Sprint("s", names)
				names++
				have = append(have, s)
			}
			seen := map[string]discoveryv1.Endpoint{}
			for _, s := range have {
				if n := len(s.Endpoints); n > maxPerSlice || n == 0 && len(have) > 1 {
					t.Fatalf("%s of %d slices has %d endpoints", s.Name, len(have), n)
				}
				for _, e := range s.Endpoints {
					if _, twice := seen[e.TargetRef.Name]; twice {
						t.Fatalf("%s is there twice", e.TargetRef.Name)
					}
					seen[e.TargetRef.Name] = e
				}
			}
			if len(seen) != len(pods) || len(have) == 0 {
				t.Fatalf("%d endpoints in %d slices, want %d", len(seen), len(have), len(pods))
			}
			for name, p := range pods {
				if *seen[name].Conditions.Ready != podstate.Ready(p) {
					t.Fatalf("%s is ready=%v", name, !podstate.Ready(p))
				}
			}
			if again := planSlices(svc, backends, have, nowhere); len(again.create)+len(again.update)+len(again.remove) > 0 {
				t.Fatalf("the next plan is %+v, want nothing", again)
			}
		}
	})
}

func TestAChangeTouchesOneSlice(t *testing.T) {
	svc := service(nil)
	var pods []*corev1.Pod
	for i := range 250 {
		pods = append(pods, servingPod(fmt.Sprintf("p%03d", i), fmt.Sprintf("10.1.0.%d", i), nil))
	}
	have := planSlices(svc, backendsOf(svc, pods), nil, nowhere).create
	for i, s := range have {
		s.Name = fmt.Sprint("s", i)
	}
	pods[120] = servingPod("p120", "10.1.0.120", unready)
	plan := planSlices(svc, backendsOf(svc, pods), have, nowhere)
	if len(have) != 3 || len(plan.update) != 1 || len(plan.create)+len(plan.remove) != 0 {
		t.Errorf("of %d slices %d are updated, %d created, %d removed", len(have), len(plan.update), len(plan.create), len(plan.remove))
	}
}

func TestAnEndpointsObjectIsCutAtAThousand(t *testing.T) {
	svc := service(nil)
	var pods []*corev1.Pod
	for i := range 1200 {
		set := unready
		if i%2 == 0 {
			set = nil
		}
		pods = append(pods, servingPod(fmt.Sprint("p", i), fmt.Sprintf("10.1.%d.%d", i/250, i%250), set))
	}
	subsets, truncated := planEndpoints(svc, backendsOf(svc, pods))
	if !truncated || len(subsets) != 1 || len(subsets[0].Addresses) != 600 || len(subsets[0].NotReadyAddresses) != 400 {
		t.Errorf("truncated %v, %d subsets", truncated, len(subsets))
	}
}
