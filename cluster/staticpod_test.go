package cluster

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestManifestsAreCheckedAsPods(t *testing.T) {
	const head = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, labels: {app: web}}\nspec:\n  containers: [{name: web, image: demo}]\n"
	for _, tt := range []struct{ name, manifest, want string }{
		{"valid", head, ""},
		{"empty", "", `must be a Pod of v1, got "" of ""`},
		{"no YAML", "{", "yaml"},
		{"another kind", strings.Replace(head, "kind: Pod", "kind: Deployment", 1), `got "Deployment" of "v1"`},
		{"misspelled field", head + "  restartPolcy: Never\n", `unknown field "restartPolcy"`},
		{"name", strings.Replace(head, "name: web", "name: Web_1", 1), "invalid pod: metadata.name: Invalid value: \"Web_1\": a lowercase RFC 1123 subdomain"},
		{"label", strings.Replace(head, "app: web", "app: -", 1), "invalid pod: metadata.labels: Invalid value: \"-\""},
		{"no containers", strings.Replace(head, "[{name: web, image: demo}]", "[]", 1), "invalid pod: spec.containers: Required value"},
		{"huge quantity", head + "  overhead: {memory: \"1e-10000000\"}\n", `spec.overhead[memory]: the exponent of a quantity must be between -999 and 999, got "1e-10000000"`},
		{"gates", head + "  schedulingGates: [{name: wait}]\n", "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"},
	} {
		pod, err := readPod([]byte(tt.manifest), func(p *corev1.Pod) error {
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
