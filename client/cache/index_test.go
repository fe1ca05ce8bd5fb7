package cache

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/growthtest"
)

// TestManyValuesCostInProportion has two objects that share all of their values, with a duplicate of each.
func TestManyValuesCostInProportion(t *testing.T) {
	growthtest.Linear(t, 4000, func(n int) func() {
		values := make([]string, 0, 2*n)
		for i := range n {
			values = append(values, fmt.Sprint("secret-", i))
		}
		values = append(values, values...)
		indexes := []*index{{values: func(client.Object) []string { return values }, buckets: map[string]*bucket{}}}
		return func() {
			first, second := &entry{obj: &corev1.Pod{}}, &entry{obj: &corev1.Pod{}}
			first.put(indexes)
			second.put(indexes)
			first.replace(&corev1.Pod{}, indexes)
			first.leave()
			if second.leave(); len(indexes[0].buckets) > 0 || len(first.places) > 0 {
				t.Error("an object is in an index that it has left")
			}
		}
	})
}

// TestIndexFindsItsObjects adds, changes and removes objects at random, in buckets small
// and large, and compares them with a map.
func TestIndexFindsItsObjects(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := &index{
			values:  func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName, "all", "all"} },
			buckets: map[string]*bucket{},
		}
		hosts := &index{
			values: func(o client.Object) []string {
				if o.(*corev1.Pod).Spec.Hostname == "" {
					return nil
				}
				return []string{o.(*corev1.Pod).Spec.Hostname}
			},
			buckets: map[string]*bucket{},
		}
		indexes := []*index{nodes, hosts}
		entries := map[string]*entry{}
		for range rapid.IntRange(0, 300).Draw(t, "steps") {
			name := fmt.Sprint("p", rapid.IntRange(0, 60).Draw(t, "name"))
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
			p.Spec.NodeName = rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "node")
			p.Spec.Hostname = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "host")
			switch e := entries[name]; {
			case e == nil:
				e = &entry{obj: p}
				e.put(indexes)
				entries[name] = e
			case rapid.Bool().Draw(t, "goes"):
				e.leave()
				delete(entries, name)
			default:
				e.replace(p, indexes)
			}
		}
		total, named := 0, 0
		for _, value := range []string{"a", "b", "c"} {
			for _, e := range nodes.find(value) {
				p := e.obj.(*corev1.Pod)
				if total++; entries[p.Name].obj != p || p.Spec.NodeName != value {
					t.Fatalf("%s is under node %s", p.Name, value)
				}
			}
			for _, e := range hosts.find(value) {
				p := e.obj.(*corev1.Pod)
				if named++; entries[p.Name].obj != p || p.Spec.Hostname != value {
					t.Fatalf("%s is under host %s", p.Name, value)
				}
			}
		}
		for _, e := range entries {
			if e.obj.(*corev1.Pod).Spec.Hostname != "" {
				named--
			}
		}
		if total != len(entries) || named != 0 || len(nodes.find("all")) != len(entries) {
			t.Fatalf("%d under nodes, %d under all, want %d; %d too many under hosts", total, len(nodes.find("all")), len(entries), named)
		}
		if len(entries) == 0 && len(nodes.buckets)+len(hosts.buckets) != 0 {
			t.Fatalf("empty buckets are kept: %v, %v", nodes.buckets, hosts.buckets)
		}
	})
}
