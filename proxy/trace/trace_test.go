package trace_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/internal/storytest"
	"github.com/sampan-io/sampan/proxy"
	"github.com/sampan-io/sampan/proxy/trace"
)

// TestTrace runs the stories in testdata: objects, a node's report, and the resulting trace.
// Everything but the targets is YAML.
//
//	service|slice|pod|event|node OBJECT   (a name and spec are enough: the namespace is default)
//	here HERE          the node whose rules apply
//	client CLIENT
//	unseen REASON      the node did not report, because
//	seen REPORT
//	trace TARGET
//	find TARGET
//	forget             start over
func TestTrace(t *testing.T) {
	storytest.PlayCommands(t, "testdata", func(s *storytest.Story) storytest.Commands {
		st := &story{Story: s}
		st.forget()
		return storytest.Commands{
			"service": func(words []string) { st.services = append(st.services, object(st, words, &corev1.Service{})) },
			"slice":   func(words []string) { st.Slices = append(st.Slices, object(st, words, &discoveryv1.EndpointSlice{})) },
			"pod":     func(words []string) { st.Pods = append(st.Pods, object(st, words, &corev1.Pod{})) },
			"event":   func(words []string) { st.Warnings = append(st.Warnings, object(st, words, &corev1.Event{})) },
			"node":    func(words []string) { st.nodes = append(st.nodes, object(st, words, &corev1.Node{})) },
			"here":    func(words []string) { object(st, words, &st.Here) },
			"client":  func(words []string) { st.Client = trace.Client{}; object(st, words, &st.Client) },
			"unseen":  func(words []string) { st.Unseen, st.Report = strings.Join(words, " "), nil },
			"seen": func(words []string) {
				st.Report, st.Unseen = object(st, words, &trace.NodeReport{Node: "n1", Known: true}), ""
			},
			"trace":  st.trace,
			"find":   st.find,
			"forget": func([]string) { st.forget() },
		}
	})
}

type story struct {
	*storytest.Story
	trace.World
	services []*corev1.Service
	nodes    []*corev1.Node
}

func (s *story) forget() {
	s.World = trace.World{
		Here:   proxy.Here{Node: "n1", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
		Client: trace.Client{Node: "n1"},
	}
	s.services, s.nodes = nil, nil
}

func object[T any](s *story, words []string, into T) T {
	text := strings.Join(words, " ")
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		s.T.Fatalf("%s: %v", text, err)
	}
	if o, ok := any(into).(interface{ SetNamespace(string) }); ok {
		o.SetNamespace("default")
	}
	return into
}

func (s *story) trace(words []string) {
	target, err := trace.Parse(words[0])
	if err != nil {
		s.Say("wrong: %v", err)
		return
	}
	s.Target, s.Service, s.Others = target, nil, nil
	if target.Name == "" {
		if s.Service, s.Others, err = trace.Find(target, s.services, s.nodes, s.Pods); err != nil {
			s.Say("nobody: %v", err)
			return
		}
	} else {
		i := slices.IndexFunc(s.services, func(svc *corev1.Service) bool { return svc.Name == target.Name })
		s.Service = s.services[i]
	}
	t, err := trace.Explain(s.World)
	if err != nil {
		s.Say("nobody: %v", err)
		return
	}
	var b strings.Builder
	if err := t.Print(&b, len(words) > 1); err != nil {
		s.T.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if line = strings.TrimSuffix(line, "\n"); line != "" {
			s.Say("%s", line)
		}
	}
	answers := "not known"
	if t.Answers != nil {
		answers = fmt.Sprint(*t.Answers)
	}
	s.Say("(answers: %s)", answers)
}

func (s *story) find(words []string) {
	target, err := trace.Parse(words[0])
	if err != nil {
		s.Say("wrong: %v", err)
		return
	}
	svc, others, err := trace.Find(target, s.services, s.nodes, s.Pods)
	if none := (*trace.NotFoundError)(nil); errors.As(err, &none) {
		s.Say("nobody: %v", err)
		return
	}
	s.Say("%s", svc.Name)
	for _, o := range others {
		s.Say("not %s", o.Name)
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"web": "web", "svc/web": "web", "service/web:http": "web:http", "web:80/udp": "web:80/UDP", "web.shop": "web.shop",
		"web.shop.svc.cluster.local:80": "web.shop:80", "10.0.0.1": "10.0.0.1", "10.0.0.1:80": "10.0.0.1:80",
		"[fd00::1]:80/SCTP": "[fd00::1]:80/SCTP", "fd00::1": "fd00::1", "[fd00::1]": "fd00::1", "web:1": "web:1", "web:65535": "web:65535",
	} {
		got, err := trace.Parse(text)
		if err != nil || got.String() != want {
			t.Errorf("Parse(%q) = %v, %v, want %s", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "no name", "web:0": "port 0, want 1 to 65535", "web:65536": "port 65536", "web:99999999999999999999999": "port", "web:-1": "neither the number nor the name of a port",
		"10.0.0.256:80": `"10.0.0.256" is not a valid address`, "10.0.0.1:0": "the port is 0", "Web_1": "neither an address nor the name", "web/ICMP": "want SERVICE/PROTOCOL",
		"web:80:81": "neither the number", "web.shop.pod": "NAME.NAMESPACE.svc", "pod/web": "want SERVICE/PROTOCOL", "10.0.0.1:http": "is not a valid address", "../etc": "want SERVICE/PROTOCOL",
	} {
		if got, err := trace.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %v, %v, want an error with %q", text, got, err, want)
		}
	}
}

// FuzzParse checks that what is printed can be read, and means the same: an agent is asked so.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"web", "svc/web:http/UDP", "10.0.0.1:80", "[fd00::1%eth0]:80", "::ffff:1.2.3.4", "a.b.svc:1", "service/svc/x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		target, err := trace.Parse(text)
		if err != nil {
			return
		}
		q := trace.Question{Service: types.NamespacedName{Namespace: "default", Name: "web"}, Target: target}
		again, err := trace.ParseQuestion(q.Query())
		if err != nil || again != q {
			t.Errorf("%q → %q → %+v, %v", text, target, again, err)
		}
	})
}
