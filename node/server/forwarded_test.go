package server

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/node/lifecycle"
)

func TestForwardedSandbox(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u"}}
	running := []lifecycle.Container{{Name: "web", State: lifecycle.Running, Sandbox: "old"}}
	exited := []lifecycle.Container{{Name: "web", State: lifecycle.Exited, Sandbox: "old"}}
	for _, tt := range []struct {
		name       string
		sandboxes  []lifecycle.Sandbox
		containers []lifecycle.Container
		want, err  string
	}{
		{name: "nothing", err: `pod not found ("web_default")`},
		{name: "empty", sandboxes: []lifecycle.Sandbox{{ID: "a", Ready: true}}, want: "a"},
		{name: "crashed", sandboxes: []lifecycle.Sandbox{{ID: "a", Ready: true}}, containers: exited, want: "a"},
		{name: "stopped", sandboxes: []lifecycle.Sandbox{{ID: "a"}}, containers: exited, err: `pod not found ("web_default")`},
		{name: "replaced", sandboxes: []lifecycle.Sandbox{{ID: "new", Attempt: 1, Ready: true}, {ID: "old"}}, want: "new"},
		{name: "replaced, and running", sandboxes: []lifecycle.Sandbox{{ID: "old"}, {ID: "new", Attempt: 1, Ready: true}}, containers: running, want: "new"},
		{name: "stopping", sandboxes: []lifecycle.Sandbox{{ID: "old"}}, containers: running, want: "old"},
		{name: "without its sandbox", containers: running, err: "failed to find sandboxID for pod web_default(u)"},
	} {
		state := lifecycle.Observed{Pod: pod, Sandboxes: tt.sandboxes, Containers: tt.containers}
		got, err := forwarded(&state)
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
			t.Errorf("%s: %q, %v, want %q, %q", tt.name, got, err, tt.want, tt.err)
		}
	}
}
