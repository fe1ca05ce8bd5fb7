package cache

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

// TestAnIndexFindsWhatIsInIt adds and removes objects at random, to buckets small and
// large, and compares them with a map.
func TestAnIndexFindsWhatIsInIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		i := &index[*corev1.Pod]{
			values:  func(p *corev1.Pod) []string { return []string{p.Spec.NodeName, "all", "all"} },
			buckets: map[string]*bucket[*corev1.Pod]{},
		}
		model := map[string]*corev1.Pod{}
		for range rapid.IntRange(0, 300).Draw(t, "steps") {
			name := fmt.Sprint("p", rapid.IntRange(0, 60).Draw(t, "name"))
			if old := model[name]; old != nil {
				i.remove(old)
				delete(model, name)
			}
			if rapid.IntRange(0, 2).Draw(t, "what") > 0 {
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
				p.Spec.NodeName = rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "node")
				i.add(p)
				model[name] = p
			}
		}
		total := 0
		for _, node := range []string{"a", "b", "c"} {
			for _, p := range i.find(node) {
				if total++; model[p.Name] != p || p.Spec.NodeName != node {
					t.Fatalf("%s is under %s", p.Name, node)
				}
			}
		}
		if total != len(model) || len(i.find("all")) != len(model) {
			t.Fatalf("%d under nodes, %d under all, want %d", total, len(i.find("all")), len(model))
		}
		if len(model) == 0 && len(i.buckets) != 0 {
			t.Fatalf("%d empty buckets are kept", len(i.buckets))
		}
	})
}
