package plugin

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestTrimForgetsTopologies counts what is left of pods that brought many topologies when they are gone.
func TestTrimForgetsTopologies(t *testing.T) {
	var c Cluster
	c.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}})
	for i := range 10 {
		obj := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: types.UID(fmt.Sprint(i))}, Spec: corev1.PodSpec{Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}}}}
		terms := &obj.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		for j := range 1000 {
			*terms = append(*terms, corev1.PodAffinityTerm{TopologyKey: fmt.Sprintf("key-%d-%d", i, j), LabelSelector: &metav1.LabelSelector{}})
		}
		pod := NewPod(obj)
		for _, term := range pod.Affinity[RequiredAntiAffinity] {
			c.Snapshot.Count(term.Pods, term.Key, NodeQuery{})
		}
		c.Place(pod, "node")
		c.Unplace(pod.UID)
		c.Trim()
	}
	s := &c.Snapshot
	if len(s.tallies) > keptTallies || len(s.topologies) > keptTallies+fewTopologies || len(s.questions) > 1 || len(s.terms[RequiredAntiAffinity]) > 0 {
		t.Errorf("left are %d tallies, %d topologies, %d questions, %d terms", len(s.tallies), len(s.topologies), len(s.questions), len(s.terms[RequiredAntiAffinity]))
	}
	s.recount()
	c.DropNode("node")
	for range 3 {
		for id, tally := range s.tallies {
			s.forget(id, tally)
		}
	}
	if len(s.tallies)+len(s.questions)+len(s.filed.at)+len(s.filed.loose)+len(s.filed.byPair) > 0 {
		t.Errorf("not everything is forgotten: %+v", s.filed)
	}
}
