package simulation_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/cli"
)

// run runs `sampan simulate` in a directory with the given files.
func run(t *testing.T, files map[string]string, args ...string) (code int, out, errs string) {
	t.Helper()
	t.Chdir(t.TempDir())
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none")) // there is no server
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var stdout, stderr bytes.Buffer
	code = cli.Main(t.Context(), append([]string{"simulate"}, args...), cli.Options{In: strings.NewReader(files["-"]), Out: &stdout, Err: &stderr})
	return code, stdout.String(), stderr.String()
}

const nodes = `apiVersion: simulation.sampan.dev/v1alpha1
kind: SimulatedNodes
nodes:
- name: small-{}
  count: 2
  capacity: {cpu: 4, memory: 8Gi, pods: 10, ephemeral-storage: 1Gi}
- name: gpu-{}
  count: 1
  capacity: {cpu: 8, memory: 16Gi, pods: 10, ephemeral-storage: 1Gi, example.com/gpu: 2}
  taints: [{key: gpu, effect: NoSchedule}]
`

const app = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: c, image: "demo:v1", resources: {requests: {cpu: 1500m, memory: 1Gi}}}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: system}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      containers: [{name: c, image: "demo:v1", resources: {requests: {cpu: 100m}}}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  parallelism: 3
  completions: 2
  template:
    spec:
      restartPolicy: Never
      tolerations: [{key: gpu, operator: Exists}]
      containers: [{name: c, image: "demo:v1", resources: {limits: {example.com/gpu: 1}}}]
`

func TestWhatFitsIsPlaced(t *testing.T) {
	code, out, errs := run(t, map[string]string{"nodes.yaml": nodes, "app.yaml": app}, "-f", "app.yaml", "--nodes=nodes.yaml")
	want := `NAMESPACE   POD             NODE      WHY NOT
default     web-0           small-0
default     web-1           small-1
default     web-2           small-0
system      agent-small-0   small-0
system      agent-small-1   small-1
default     train-0         gpu-0
default     train-1         gpu-0

NODE      PODS   PODS LEFT   CPU LEFT   MEMORY LEFT   STORAGE LEFT   example.com/gpu LEFT
small-0   3      7           900m/4     6Gi/8Gi       1Gi/1Gi        0/0
small-1   2      8           2400m/4    7Gi/8Gi       1Gi/1Gi        0/0
gpu-0     2      8           8/8        16Gi/16Gi     1Gi/1Gi        0/2
`
	if code != 0 || trimmed(out) != want || errs != "" {
		t.Errorf("exit code %d, errors %q, output\n%s\nwant\n%s", code, errs, out, want)
	}
}

// trimmed takes spaces from the ends of lines.
func trimmed(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}

func TestWhatDoesNotFitIsToldWhy(t *testing.T) {
	big := strings.Replace(app, "replicas: 3", "replicas: 5", 1)
	code, out, errs := run(t, map[string]string{"nodes.yaml": nodes, "app.yaml": big}, "-f", "app.yaml", "--nodes=nodes.yaml", "-o", "json")
	var r struct {
		Fits     bool
		Unplaced int `json:"unplacedPods"`
		Pods     []struct{ Name, NodeName, Reason, Owner string }
		Nodes    []struct {
			Name string
			Left map[string]string
		}
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if code != 2 || r.Fits || r.Unplaced != 1 || !strings.Contains(errs, "1 of 9 pods does not fit any node") {
		t.Errorf("exit code %d, %q, %+v", code, errs, r)
	}
	for _, p := range r.Pods {
		if p.NodeName != "" {
			continue
		}
		if p.Name != "web-4" || p.Owner != "deployment.apps/web" || !strings.HasPrefix(p.Reason, "0/3 nodes are available: ") || !strings.Contains(p.Reason, "2 Insufficient cpu") {
			t.Errorf("pod is %+v", p)
		}
	}
	if left := r.Nodes[0].Left["cpu"]; left != "900m" {
		t.Errorf("%s of the CPU of %s is left", left, r.Nodes[0].Name)
	}
}

func TestOtherInputs(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string
		args  []string
		code  int
		want  string // in the output or the errors
	}{
		{"a number of nodes", map[string]string{"app.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n"}, []string{"-f", "app.yaml", "--nodes=30"}, 0, "(and 29 nodes without pods)"},
		{"the standard input", map[string]string{"-": app, "nodes.yaml": nodes}, []string{"-f", "-", "--nodes=nodes.yaml"}, 0, "small-0"},
		{
			"nodes of a cluster",
			map[string]string{
				"app.yaml":   "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}\n",
				"nodes.yaml": "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Node\n  metadata: {name: real}\n  status: {allocatable: {cpu: 2, memory: 1Gi, pods: 10}, capacity: {cpu: 2, memory: 1Gi, pods: 10}}\n",
			},
			[]string{"-f", "app.yaml", "--nodes=nodes.yaml"},
			0, "real   1      9           1/2",
		},
		{
			"a pod that names its node",
			map[string]string{"app.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {nodeName: node-7, containers: [{name: c, image: i}]}\n"},
			[]string{"-f", "app.yaml", "--nodes=2"},
			2, "node node-7 not found",
		},
		{"an unknown kind", map[string]string{"app.yaml": app + "---\napiVersion: example.com/v1\nkind: Boat\nmetadata: {name: b}\n", "nodes.yaml": nodes}, []string{"-f", "app.yaml", "--nodes=nodes.yaml"}, 0, "nothing is known of Boat in example.com/v1"},
		{"nothing with pods", map[string]string{"app.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"}, []string{"-f", "app.yaml", "--nodes=1"}, 1, "the objects contain no pods"},
		{"no nodes", map[string]string{"app.yaml": app}, []string{"-f", "app.yaml"}, 1, "must specify --nodes"},
		{"no input", nil, []string{"--nodes=1"}, 1, "must specify one of -f and -k"},
		{"zero nodes", map[string]string{"app.yaml": app}, []string{"-f", "app.yaml", "--nodes=0"}, 1, "--nodes: must be 1 to"},
		{"a file that is not there", map[string]string{"app.yaml": app}, []string{"-f", "app.yaml", "--nodes=nodes.yaml"}, 1, `the path "nodes.yaml" does not exist`},
		{"an output that there is not", map[string]string{"app.yaml": app}, []string{"-f", "app.yaml", "--nodes=1", "-o", "name"}, 1, "must be json or yaml"},
		{"pods where nodes should be", map[string]string{"app.yaml": app}, []string{"-f", "app.yaml", "--nodes=app.yaml"}, 1, "kind: must be Node or SimulatedNodes, got Deployment"},
		{"a bad file of nodes", map[string]string{"app.yaml": app, "nodes.yaml": strings.Replace(nodes, "count: 2", "count: two", 1)}, []string{"-f", "app.yaml", "--nodes=nodes.yaml"}, 1, "nodes.yaml: line 5 column 3: nodes[0].count: is a string, want a number"},
		{"an unknown field", map[string]string{"app.yaml": strings.Replace(app, "replicas", "replicass", 1)}, []string{"-f", "app.yaml", "--nodes=1"}, 1, `line 5 column 3: strict decoding error: unknown field "spec.replicass"`},
		{"an invalid object", map[string]string{"app.yaml": strings.Replace(app, "Never", "Maybe", 1)}, []string{"-f", "app.yaml", "--nodes=1"}, 1, `line 30 column 7: job.batch/train is invalid: spec.template.spec.restartPolicy: Unsupported value: "Maybe"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, out, errs := run(t, tt.files, tt.args...)
			if code != tt.code || !strings.Contains(out+errs, tt.want) {
				t.Errorf("exit code %d, want %d; want %q in\n%s%s", code, tt.code, tt.want, out, errs)
			}
		})
	}
}

func TestTheSameQuestionHasTheSameAnswer(t *testing.T) {
	files := map[string]string{"nodes.yaml": nodes, "app.yaml": app}
	_, first, _ := run(t, files, "-f", "app.yaml", "--nodes=nodes.yaml", "-o", "yaml")
	_, second, _ := run(t, files, "-f", "app.yaml", "--nodes=nodes.yaml", "-o", "yaml")
	if first != second || !strings.Contains(first, "kind: SimulationResult") {
		t.Errorf("first\n%s\nthen\n%s", first, second)
	}
}
