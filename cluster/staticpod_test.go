package cluster

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestManifestsAreCheckedAsPods(t *testing.T) {
	const head = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, labels: {app: web}}\nspec:\n  containers: [{name: web, image: demo}]\n"
	for _, tt := range []struct{ name, manifest, want string }{
		{"valid", head, ""},
		{"empty", "", "web.yaml: is empty"},
		{"no YAML", "{", "web.yaml: line 1: "},
		{"a list", "[]", "web.yaml: line 1: want an object with apiVersion and kind"},
		{"no kind", "metadata: {name: web}\n", "web.yaml: line 1 column 1: apiVersion: Required value: must be v1\nweb.yaml: line 1 column 1: kind: Required value: must be Pod"},
		{"another kind", strings.Replace(head, "kind: Pod", "kind: Deployment", 1), `web.yaml: line 2 column 1: kind: Unsupported value: "Deployment": supported values: "Pod"`},
		{"misspelled field", head + "  restartPolcy: Never\n", "web.yaml: line 6 column 3: spec.restartPolcy: unknown field"},
		{"duplicate field", head + "spec: {}\n", `web.yaml: line 6: key "spec" already set in map`},
		{"type", head + "  priority: high\n", "web.yaml: line 6 column 3: spec.priority: is a string, want a number"},
		{"no name", strings.Replace(head, "name: web, labels", "labels", 1), "web.yaml: line 3 column 1: metadata.name: Required value: name is needed for the pod"},
		{"name", strings.Replace(head, "name: web", "name: Web_1", 1), "web.yaml: line 3 column 12: metadata.name: \"Web_1\": a lowercase RFC 1123 subdomain"},
		{"label", strings.Replace(head, "app: web", "app: -", 1), "web.yaml: line 3 column 23: metadata.labels: \"-\""},
		{"no containers", strings.Replace(head, "[{name: web, image: demo}]", "[]", 1), "web.yaml: line 5 column 3: spec.containers: Required value"},
		{"two faults", head + "  restartPolicy: Sometimes\n  hostname: A_B\n", "web.yaml: line 6 column 3: spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"\nweb.yaml: line 7 column 3: spec.hostname: "},
		{"second document", head + "---\n# none\n---\n" + head, ""},
		{"huge quantity", head + "  overhead: {memory: \"1e-10000000\"}\n", `web.yaml: spec.overhead[memory]: the exponent of a quantity must be between -999 and 999, got "1e-10000000"`},
		{"no quantity", head + "  overhead: {memory: 1GiB}\n", "web.yaml: line 6 column 14: spec.overhead.memory: quantities must match the regular expression"},
		{"merge", "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - &c {name: web, image: demo}\n  - {<<: *c, name: other}\n", ""},
		{"gates", head + "  schedulingGates: [{name: wait}]\n", "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"},
	} {
		pod, _, err := readPod("web.yaml", []byte(tt.manifest), func(p *corev1.Pod) error {
			if p.Name == "" {
				return field.Required(field.NewPath("metadata", "name"), "name is needed for the pod")
			}
			p.Spec.NodeName, p.Namespace = "n1", "default"
			return nil
		})
		switch {
		case tt.want == "" && (err != nil || pod.Spec.RestartPolicy != corev1.RestartPolicyAlways || pod.Status.QOSClass != corev1.PodQOSBestEffort):
			t.Errorf("%s: %v, %+v", tt.name, err, pod)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
	}
}

// TestManifestsHaveOnePod reads files with more than one document: like upstream, the first one counts.
func TestManifestsHaveOnePod(t *testing.T) {
	const head = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: web, image: demo}]}\n"
	for text, want := range map[string]string{
		head: "", "---\n" + head + "---\n": "", head + "---\n# nothing\n": "",
		head + "---\n\nkind: Pod\n":                        "web.yaml: line 5: a second document, which is ignored",
		strings.ReplaceAll(head+"---\na: b\n", "\n", "\r"): "web.yaml: line 5: a second document, which is ignored",
		head + "---\n- {":                                  "web.yaml: what follows the first document is ignored: yaml: line 6: did not find expected node content",
	} {
		pod, ignored, err := readPod("web.yaml", []byte(text), func(p *corev1.Pod) error {
			p.Namespace = "default"
			return nil
		})
		if err != nil || pod.Name != "web" || ignored != want {
			t.Errorf("%q: %q, %v, want %q", text, ignored, err, want)
		}
	}
}
