package endpoints

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/internal/storytest"
)

// TestSliceStories plays the stories in testdata/slices. A story has one service, nodes and
// pods. Commands are
//
//	service WORD …      changes the service: families=IPv4,IPv6 headless ports=80:web,443:8443
//	                    mode=Auto distribution=PreferSameNode publish label=a=b anew
//	node NAME WORD …    makes or changes a node: zone=a cpu=4 unready plane gone
//	pods FIRST-LAST WORD …  so with pods: node=n ready unready terminating gone finished v6 host=db
//	                    port=web:8080 ip=ADDRESS. Without port=… it calls 8080 web
//	plan                says what is written, and carries it out
//	show                lists all slices with their endpoints
func TestSliceStories(t *testing.T) {
	storytest.Play(t, "testdata/slices", func(t *testing.T) func(string) []string {
		s := &sliceStory{t: t, svc: service(func(s *corev1.Service) { s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol} }), nodes: map[string]*corev1.Node{}, pods: map[int]*corev1.Pod{}}
		return func(line string) []string { return s.do(strings.Fields(line)) }
	})
}

type sliceStory struct {
	t     *testing.T
	svc   *corev1.Service
	nodes map[string]*corev1.Node
	pods  map[int]*corev1.Pod
	have  []*discoveryv1.EndpointSlice
	made  int
}

func (s *sliceStory) do(words []string) []string {
	switch {
	case len(words) == 0:
	case words[0] == "service":
		for _, w := range words[1:] {
			s.setService(w)
		}
	case words[0] == "node":
		s.setNode(words[1], words[2:])
	case words[0] == "pods":
		first, last, _ := strings.Cut(words[1], "-")
		from, to := s.number(first), s.number(first)
		if last != "" {
			to = s.number(last)
		}
		for i := from; i <= to; i++ {
			s.setPod(i, words[2:])
		}
	case words[0] == "plan":
		return s.plan()
	case words[0] == "show":
		return s.show()
	default:
		s.t.Fatalf("unknown command %q", words[0])
	}
	return nil
}

func (s *sliceStory) number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *sliceStory) setService(word string) {
	svc := s.svc.DeepCopy()
	s.svc = svc
	name, value, _ := strings.Cut(word, "=")
	switch name {
	case "families":
		svc.Spec.IPFamilies = nil
		for f := range strings.SplitSeq(value, ",") {
			svc.Spec.IPFamilies = append(svc.Spec.IPFamilies, corev1.IPFamily(f))
		}
	case "headless":
		svc.Spec.ClusterIP = corev1.ClusterIPNone
	case "publish":
		svc.Spec.PublishNotReadyAddresses = true
	case "ports":
		svc.Spec.Ports = nil
		for p := range strings.SplitSeq(value, ",") {
			if p == "" {
				continue
			}
			port, target, _ := strings.Cut(p, ":")
			svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "p" + port, Port: int32(s.number(port)), Protocol: corev1.ProtocolTCP, TargetPort: intstr.Parse(target)})
		}
	case "mode":
		svc.Annotations = map[string]string{corev1.AnnotationTopologyMode: value}
	case "distribution":
		svc.Spec.TrafficDistribution = &value
	case "label":
		key, v, _ := strings.Cut(value, "=")
		svc.Labels = map[string]string{key: v}
	case "anew":
		svc.UID += "-again"
	default:
		s.t.Fatalf("unknown word %q", word)
	}
}

func (s *sliceStory) setNode(name string, words []string) {
	n := s.nodes[name]
	if n == nil {
		n = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
		s.nodes[name] = n
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "zone":
			n.Labels[corev1.LabelTopologyZone] = value
		case "cpu":
			n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(value)}
		case "unready":
			n.Status.Conditions[0].Status = corev1.ConditionFalse
		case "plane":
			n.Labels["node-role.kubernetes.io/control-plane"] = ""
		case "gone":
			delete(s.nodes, name)
		default:
			s.t.Fatalf("unknown word %q", w)
		}
	}
}

func (s *sliceStory) setPod(i int, words []string) {
	name := fmt.Sprintf("p%03d", i)
	p := s.pods[i]
	if p == nil {
		p = servingPod(name, fmt.Sprintf("10.1.%d.%d", i/250, i%250), nil)
		s.pods[i] = p
	}
	p = p.DeepCopy()
	s.pods[i] = p
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "node":
			p.Spec.NodeName = value
		case "ready":
			p.Status.Conditions[0].Status = corev1.ConditionTrue
		case "unready":
			unready(p)
		case "terminating":
			deleted(p)
		case "finished":
			p.Status.Phase = corev1.PodSucceeded
		case "gone":
			delete(s.pods, i)
		case "v6":
			p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}, {IP: fmt.Sprintf("fd00::%x", i)}}
		case "ip":
			p.Status.PodIP = value
		case "host":
			p.Spec.Hostname, p.Spec.Subdomain = value, s.svc.Name
		case "port":
			called, number, _ := strings.Cut(value, ":")
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: called, ContainerPort: int32(s.number(number)), Protocol: corev1.ProtocolTCP}}
		default:
			s.t.Fatalf("unknown word %q", w)
		}
	}
}

func (s *sliceStory) where() topology {
	return topology{
		zone: func(name string) string { return zoneOf(s.nodes[name]) },
		shares: func() (map[string]int64, string) {
			return sharesOf(slices.SortedFunc(maps.Values(s.nodes), func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) }))
		},
	}
}

// plan carries a plan out as the API server would, and checks that nothing is left to do.
func (s *sliceStory) plan() (said []string) {
	pods := slices.Collect(maps.Values(s.pods))
	plan := planSlices(s.svc, backendsOf(s.svc, pods), s.have, s.where())
	for _, r := range plan.remove {
		s.have = slices.DeleteFunc(s.have, func(h *discoveryv1.EndpointSlice) bool { return h == r })
		said = append(said, "remove "+r.Name)
	}
	for _, u := range plan.update {
		i := slices.IndexFunc(s.have, func(h *discoveryv1.EndpointSlice) bool { return h.Name == u.Name })
		said = append(said, "update "+summary(u))
		s.have[i] = u
	}
	for _, c := range plan.create {
		s.made++
		c.Name, c.UID = fmt.Sprint("s", s.made), types.UID(fmt.Sprint("s", s.made))
		c.CreationTimestamp = metav1.NewTime(time.Unix(int64(s.made), 0))
		s.have = append(s.have, c)
		said = append(said, "create "+summary(c))
	}
	for _, family := range slices.Sorted(maps.Keys(plan.hints)) {
		said = append(said, fmt.Sprintf("no hints for %s: %s", family, plan.hints[family]))
	}
	if said == nil {
		said = append(said, "nothing")
	}
	again := planSlices(s.svc, backendsOf(s.svc, pods), s.have, s.where())
	if len(again.create)+len(again.update)+len(again.remove) > 0 {
		s.t.Errorf("after that there is more to do: %+v", again)
	}
	return said
}

func summary(s *discoveryv1.EndpointSlice) string {
	var ports []string
	for _, p := range s.Ports {
		ports = append(ports, fmt.Sprintf("%s=%d", *p.Name, *p.Port))
	}
	text := fmt.Sprintf("%s %s [%s] with %d", s.Name, s.AddressType, strings.Join(ports, " "), len(s.Endpoints))
	for _, key := range slices.Sorted(maps.Keys(s.Labels)) {
		switch key {
		case discoveryv1.LabelManagedBy, discoveryv1.LabelServiceName, "team":
		default:
			text += " " + key + "=" + s.Labels[key]
		}
	}
	return text
}

func (s *sliceStory) show() (said []string) {
	for _, slice := range s.have {
		said = append(said, summary(slice))
		for _, e := range slice.Endpoints {
			line := "  " + e.TargetRef.Name + " " + e.Addresses[0]
			if e.Hostname != nil {
				line += " host " + *e.Hostname
			}
			for _, w := range []struct {
				on   *bool
				word string
			}{{e.Conditions.Ready, "ready"}, {e.Conditions.Serving, "serving"}, {e.Conditions.Terminating, "terminating"}} {
				if *w.on {
					line += " " + w.word
				}
			}
			if e.NodeName != nil {
				line += " on " + *e.NodeName
			}
			if e.Zone != nil {
				line += " in " + *e.Zone
			}
			if e.Hints != nil {
				for _, z := range e.Hints.ForZones {
					line += " for-zone " + z.Name
				}
				for _, n := range e.Hints.ForNodes {
					line += " for-node " + n.Name
				}
			}
			said = append(said, line)
		}
	}
	return said
}
