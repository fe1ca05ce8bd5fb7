package simulation_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/simulation"
)

func TestUsageOfPods(t *testing.T) {
	plan, err := simulation.Parse("nodes.yaml", []byte(head+`nodes: [{name: "n-{}", count: 1}]
pods:
- selector: {matchLabels: {app: web}}
  usage: {cpu: 250m, memory: 64Mi}
`), 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		app         string
		annotations map[string]string
		want        simulation.Usage
	}{
		{"web", nil, simulation.Usage{CPU: 250, Memory: 64 << 20}},
		{"db", nil, simulation.Usage{}},
		{"web", map[string]string{simulation.CPUAnnotation: "2"}, simulation.Usage{CPU: 2000, Memory: 64 << 20}},
		{"db", map[string]string{simulation.MemoryAnnotation: "1Ki"}, simulation.Usage{Memory: 1024}},
		{"web", map[string]string{simulation.CPUAnnotation: "much"}, simulation.Usage{CPU: 250, Memory: 64 << 20}},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", Labels: map[string]string{"app": tt.app}, Annotations: tt.annotations}}
		if got := plan.Life(p).Usage; got != tt.want {
			t.Errorf("%s with %v: %+v, want %+v", tt.app, tt.annotations, got, tt.want)
		}
	}
	if got := (simulation.Usage{CPU: 500}).Nanoseconds(3 * time.Second); got != 1_500_000_000 {
		t.Errorf("half a core for 3 s is %d ns", got)
	}
	for text, want := range map[string]string{
		"{cpu: much}": "pods[0].usage[cpu]", "{cpu: -1}": "not negative", "{disk: 1}": "want cpu or memory", "{memory: 1e30}": "pods[0].usage[memory]",
	} {
		_, err := simulation.Parse("nodes.yaml", []byte(head+"nodes: [{name: \"n-{}\", count: 1}]\npods:\n- usage: "+text+"\n"), 0, 100)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", text, err, want)
		}
	}
	if _, err := simulation.UsageOf(map[string]string{simulation.CPUAnnotation: "-3"}); err == nil || !strings.Contains(err.Error(), simulation.CPUAnnotation) {
		t.Errorf("a negative annotation: %v", err)
	}
}
