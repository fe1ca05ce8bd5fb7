package simulation_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/simulation"
)

const head = "apiVersion: simulation.sampan.dev/v1alpha1\nkind: SimulatedNodes\n"

const full = head + `seed: 7
nodes:
- name: small-{}
  count: 3
  capacity: {cpu: 8, memory: 32Gi, pods: 50, example.com/gpu: "2"}
  allocatable: {cpu: 7500m}
  labels: {disk: ssd}
  annotations: {note: Hello}
  taints: [{key: dedicated, value: batch, effect: NoSchedule}]
  region: here
  zones: [a, b]
  images: [{names: ["demo:v1"], sizeBytes: 20000000}]
- name: big-{}
  unschedulable: true
pods:
- selector: {matchLabels: {app: batch}}
  namespaces: [jobs]
  probability: 0.5
  startDelay: 1s..3s
  readyDelay: 500ms
  runDuration: 20s
  exitCode: 1
  stopDelay: 2s
- selector: {matchExpressions: [{key: app, operator: In, values: [batch]}]}
  neverReady: true
- selector: {matchLabels: {app: broken}}
  imagePullError: no such image
`

func parse(t *testing.T, text string, total int) *simulation.Plan {
	t.Helper()
	p, err := simulation.Parse("nodes.yaml", []byte(text), total, 5000)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestNodesAreAsTheFileSays(t *testing.T) {
	p := parse(t, full, 5)
	if p.Len() != 5 {
		t.Errorf("the plan has %d nodes, want 5: the group without a count has the rest", p.Len())
	}
	var names []string
	for i, name := range p.Names() {
		names = append(names, name)
		if n := p.Node(i); n.Name != name {
			t.Errorf("node %d is called %s and %s", i, name, n.Name)
		}
	}
	if got, want := strings.Join(names, " "), "small-0 small-1 small-2 big-0 big-1"; got != want {
		t.Errorf("names are %s, want %s", got, want)
	}
	n := p.Node(2)
	for key, want := range map[string]string{
		"kubernetes.io/hostname": "small-2", "kubernetes.io/os": "linux", "disk": "ssd",
		"topology.kubernetes.io/zone": "a", "topology.kubernetes.io/region": "here",
	} {
		if n.Labels[key] != want {
			t.Errorf("label %s is %q, want %q", key, n.Labels[key], want)
		}
	}
	if z := p.Node(1).Labels["topology.kubernetes.io/zone"]; z != "b" {
		t.Errorf("the second node is in zone %q, want b", z)
	}
	gpu := n.Status.Allocatable["example.com/gpu"]
	if n.Status.Capacity.Cpu().Value() != 8 || n.Status.Allocatable.Cpu().MilliValue() != 7500 || gpu.Value() != 2 || n.Status.Allocatable.Pods().Value() != 50 {
		t.Errorf("capacity is %v, allocatable %v", n.Status.Capacity, n.Status.Allocatable)
	}
	if len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Effect != corev1.TaintEffectNoSchedule || n.Annotations["note"] != "Hello" || len(n.Status.Images) != 1 {
		t.Errorf("node is %+v", n)
	}
	if b := p.Node(3); !b.Spec.Unschedulable || b.Status.Capacity.Pods().Value() != 110 || len(b.Spec.Taints) != 0 {
		t.Errorf("a node of which little is said is %+v", b)
	}
	if !simulation.Simulated(n) || simulation.Simulated(&corev1.Node{}) {
		t.Error("a simulated node can't be told by what it says")
	}
	if p.Node(5) != nil {
		t.Error("there is a node beyond the last")
	}
}

func pod(namespace, name string, labels map[string]string, annotations ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels, Annotations: map[string]string{}}}
	for i := 0; i+1 < len(annotations); i += 2 {
		p.Annotations[annotations[i]] = annotations[i+1]
	}
	return p
}

func TestLives(t *testing.T) {
	p := parse(t, full, 5)
	batch := map[string]string{"app": "batch"}
	first, starts := 0, map[time.Duration]bool{}
	const pods = 1000
	for i := range pods {
		l := p.Life(pod("jobs", fmt.Sprint("p", i), batch))
		if again := p.Life(pod("jobs", fmt.Sprint("p", i), batch)); l != again {
			t.Fatalf("the same pod lives as %+v and as %+v", l, again)
		}
		if l.NeverReady {
			if l != (simulation.Life{NeverReady: true}) {
				t.Errorf("a life of the second rule is %+v", l)
			}
			continue
		}
		first++
		starts[l.StartDelay] = true
		if l.StartDelay < time.Second || l.StartDelay > 3*time.Second {
			t.Errorf("start delay is %v, want 1s to 3s", l.StartDelay)
		}
		l.StartDelay = 0
		want := simulation.Life{ReadyDelay: 500 * time.Millisecond, Ends: true, Run: 20 * time.Second, ExitCode: 1, StopDelay: 2 * time.Second}
		if l != want {
			t.Errorf("a life of the first rule is %+v, want %+v", l, want)
		}
	}
	// Half of 1000, give or take four standard deviations.
	if first < 436 || first > 564 || len(starts) < first*9/10 {
		t.Errorf("%d of %d pods live by the rule that half of them shall, with %d delays", first, pods, len(starts))
	}
	for _, tt := range []struct {
		name string
		pod  *corev1.Pod
		want simulation.Life
	}{
		{"of no rule", pod("default", "a", nil), simulation.Life{}},
		{"of another namespace", pod("default", "a", batch), simulation.Life{NeverReady: true}},
		{"broken", pod("default", "a", map[string]string{"app": "broken"}), simulation.Life{PullError: "no such image"}},
		{
			"annotated", pod("default", "a", batch, simulation.RunSecondsAnnotation, "1.5", simulation.ExitCodeAnnotation, "3"),
			simulation.Life{NeverReady: true, Ends: true, Run: 1500 * time.Millisecond, ExitCode: 3},
		},
		{
			"annotated, failing", pod("default", "a", nil, simulation.PullErrorAnnotation, "why", simulation.UnreadyAnnotation, "so"),
			simulation.Life{NeverReady: true, PullError: "why"},
		},
		{"annotated with nonsense", pod("default", "a", nil, simulation.RunSecondsAnnotation, "soon"), simulation.Life{}},
	} {
		if got := p.Life(tt.pod); got != tt.want {
			t.Errorf("%s: life is %+v, want %+v", tt.name, got, tt.want)
		}
	}
	other := parse(t, strings.Replace(full, "seed: 7", "seed: 8", 1), 5)
	same := 0
	for i := range pods {
		q := pod("jobs", fmt.Sprint("p", i), batch)
		if p.Life(q).NeverReady == other.Life(q).NeverReady {
			same++
		}
	}
	if same > 600 {
		t.Errorf("with another seed %d of %d pods live the same way", same, pods)
	}
}

func TestUniform(t *testing.T) {
	p := simulation.Uniform("sim", 2)
	if p.Len() != 2 || p.Node(1).Name != "sim-1" || p.Node(1).Status.Allocatable.Cpu().IsZero() {
		t.Errorf("plan is %+v", p)
	}
}

func TestBadFiles(t *testing.T) {
	node := head + "nodes:\n- name: a-{}\n  count: 2\n"
	for _, tt := range []struct {
		name, text string
		total      int
		want       string
	}{
		{"no file of ours", "apiVersion: v1\nkind: List\n", 0, "nodes.yaml: line 1 column 1: apiVersion: \"v1\": want simulation.sampan.dev/v1alpha1\nnodes.yaml: line 1 column 1: nodes: Required value: want at least one group of nodes\nnodes.yaml: line 2 column 1: kind: \"List\": want SimulatedNodes"},
		{"unknown field", node + "  capasity: {cpu: 1}\n", 0, "nodes.yaml: line 6 column 3: nodes[0].capasity: unknown field"},
		{"no number in the name", head + "nodes:\n- name: a\n  count: 2\n", 0, `nodes.yaml: line 4 column 3: nodes[0].name: "a": want one {} in it, for the number of the node`},
		{"a bad name", head + "nodes:\n- name: A-{}\n  count: 2\n", 0, `nodes.yaml: line 4 column 3: nodes[0].name: "A-{}": a lowercase RFC 1123 subdomain`},
		{"the same name twice", head + "nodes:\n- name: a-{}\n  count: 2\n- name: a-1{}\n  count: 1\n- name: a-{}0\n  count: 2\n", 0, `nodes.yaml: line 8 column 3: nodes[2].name: "a-{}0": node a-10 is in group 1, too`},
		{"count is no number", head + "nodes:\n- name: a-{}\n  count: many\n", 0, "nodes.yaml: line 5 column 3: nodes[0].count: is a string, want a number"},
		{"a negative count", head + "nodes:\n- name: a-{}\n  count: -1\n", 0, "nodes.yaml: line 5 column 3: nodes[0].count: -1: want 0 to 5000"},
		{"too many", head + "nodes:\n- name: a-{}\n  count: 3000\n- name: b-{}\n  count: 3000\n", 0, "nodes.yaml: line 3 column 1: nodes: 6000: want at most 5000 nodes"},
		{"none", head + "nodes:\n- name: a-{}\n  count: 0\n", 0, "nodes.yaml: line 3 column 1: nodes: 0: want at least one node"},
		{"no count", head + "nodes:\n- name: a-{}\n", 0, "nodes.yaml: line 4 column 3: nodes[0].count: Required value: want a number, or the number of all nodes from --simulated-nodes"},
		{"two without a count", head + "nodes:\n- name: a-{}\n- name: b-{}\n", 9, "nodes.yaml: line 5 column 3: nodes[1].count: Required value: group 0 has none either"},
		{"a total that the groups do not have", node, 9, "nodes.yaml: line 3 column 1: nodes: 9: the groups have 2 nodes and not the 9 of --simulated-nodes"},
		{"a quantity", node + "  capacity: {cpu: lots}\n", 0, `nodes.yaml: line 6 column 14: nodes[0].capacity[cpu]: "lots": want a quantity`},
		{"a negative quantity", node + "  capacity: {cpu: -1}\n", 0, `nodes.yaml: line 6 column 14: nodes[0].capacity[cpu]: "-1": want a quantity that is not negative`},
		{"half a pod", node + "  capacity: {pods: 500m}\n", 0, `nodes.yaml: line 6 column 14: nodes[0].capacity[pods]: "500m": want a whole number`},
		{"more than there is", node + "  capacity: {cpu: 1}\n  allocatable: {cpu: 2}\n", 0, `nodes.yaml: line 7 column 17: nodes[0].allocatable[cpu]: "2": more than the capacity, 1`},
		{"a label", node + "  labels: {a: 'b c'}\n", 0, "nodes.yaml: line 6 column 12: nodes[0].labels[a]: \"b c\": a valid label must be"},
		{"a zone", node + "  zones: [a, -]\n", 0, "nodes.yaml: line 6 column 14: nodes[0].zones[1]: \"-\": a valid label"},
		{"an effect", node + "  taints: [{key: a, effect: Never}]\n", 0, "nodes.yaml: line 6 column 21: nodes[0].taints[0].effect: Unsupported value: \"Never\": supported values: \"NoSchedule\""},
		{"an image without a name", node + "  images: [{sizeBytes: 3}]\n", 0, "nodes.yaml: line 6 column 12: nodes[0].images[0].names: Required value"},
		{"a duration", node + "pods:\n- startDelay: soon\n", 0, `nodes.yaml: line 7 column 3: pods[0].startDelay: "soon": want a duration`},
		{"a duration without a unit", node + "pods:\n- startDelay: 5\n", 0, `nodes.yaml: line 7 column 3: pods[0].startDelay: "5": want a duration`},
		{"a range upside down", node + "pods:\n- startDelay: 3s..1s\n", 0, `nodes.yaml: line 7 column 3: pods[0].startDelay: "3s..1s": the range ends before it begins`},
		{"a probability", node + "pods:\n- probability: 2\n", 0, "nodes.yaml: line 7 column 3: pods[0].probability: 2: want 0 to 1"},
		{"a code without an end", node + "pods:\n- exitCode: 2\n", 0, "nodes.yaml: line 7 column 3: pods[0].runDuration: Required value: the exitCode is for containers that end"},
		{"a selector", node + "pods:\n- selector: {matchExpressions: [{key: a, operator: Like}]}\n", 0, "nodes.yaml: line 7 column 42: pods[0].selector.matchExpressions[0].operator: \"Like\": not a valid selector operator"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := simulation.Parse("nodes.yaml", []byte(tt.text), tt.total, 5000)
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant %s…", err, tt.want)
			}
		})
	}
}
