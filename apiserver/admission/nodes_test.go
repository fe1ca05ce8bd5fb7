package admission_test

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/catalog"
)

func TestNewNodesAreTainted(t *testing.T) {
	notReady := corev1.Taint{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoSchedule}
	own := corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}
	for _, tt := range []struct {
		name   string
		taints []corev1.Taint
		want   int
	}{
		{"without taints", nil, 1},
		{"with another taint", []corev1.Taint{own}, 2},
		{"with the taint", []corev1.Taint{own, notReady}, 2},
		{"with another effect", []corev1.Taint{{Key: notReady.Key, Effect: corev1.TaintEffectNoExecute}}, 2},
	} {
		node := &corev1.Node{ObjectMeta: meta("", "n1"), Spec: corev1.NodeSpec{Taints: tt.taints}}
		if err := (admission.TaintNodesByCondition{}).Admit(t.Context(), creating(nodeKind(), node)); err != nil {
			t.Fatal(err)
		}
		if got := node.Spec.Taints; len(got) != tt.want || got[len(got)-1].Key != notReady.Key {
			t.Errorf("%s: the taints are %v", tt.name, got)
		}
	}
	node := &corev1.Node{ObjectMeta: meta("", "n1")}
	for status, want := range map[corev1.ConditionStatus]int{corev1.ConditionTrue: 0, corev1.ConditionFalse: 1, corev1.ConditionUnknown: 1} {
		made := node.DeepCopy()
		made.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue}, {Type: corev1.NodeReady, Status: status}}
		if err := (admission.TaintNodesByCondition{}).Admit(t.Context(), creating(nodeKind(), made)); err != nil || len(made.Spec.Taints) != want {
			t.Errorf("a node that is created with the condition Ready=%s has %v, %v", status, made.Spec.Taints, err)
		}
	}
	if err := (admission.TaintNodesByCondition{}).Admit(t.Context(), updating(nodeKind(), node, node)); err != nil || node.Spec.Taints != nil {
		t.Errorf("an update adds %v, %v", node.Spec.Taints, err)
	}
}

func TestPodsGetTheTopologyOfTheirNode(t *testing.T) {
	m := newMemory(nil)
	m.put("nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{
		"topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r1", "topology.kubernetes.io/rack": "k1",
	}}})
	m.put("nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bare"}})
	topology := map[string]string{"topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r1"}
	pod := func(node string, labels map[string]string) catalog.Object {
		p := &corev1.Pod{ObjectMeta: meta("ship", "p"), Spec: corev1.PodSpec{NodeName: node}}
		p.Labels = labels
		return p
	}
	binding := func(kind, node string) catalog.Object {
		return &corev1.Binding{ObjectMeta: meta("ship", "p"), Target: corev1.ObjectReference{Kind: kind, Name: node}}
	}
	for _, tt := range []struct {
		name string
		body catalog.Object
		sub  string
		want map[string]string
	}{
		{"a binding", binding("Node", "n1"), "binding", topology},
		{"a binding to something else", binding("", "n1"), "binding", nil},
		{"a binding to a node without labels", binding("Node", "bare"), "binding", nil},
		{"a binding to a node that does not exist", binding("Node", "n2"), "binding", nil},
		{"a pod that has its node", pod("n1", map[string]string{"topology.kubernetes.io/zone": "wrong"}), "", topology},
		{"a pod without a node", pod("", nil), "", nil},
		{"an eviction", pod("n1", nil), "eviction", nil},
	} {
		a := creating(podKind(), tt.body)
		a.Subresource = tt.sub
		if err := admission.NewPodTopologyLabels(m).Admit(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if got := tt.body.GetLabels(); !maps.Equal(got, tt.want) {
			t.Errorf("%s gets %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestTopologyThroughTheServer checks that labels that are added to a Binding are those of the pod.
func TestTopologyThroughTheServer(t *testing.T) {
	s := serve(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"topology.kubernetes.io/zone": "z1"}}}
	nodes := corev1.SchemeGroupVersion.WithResource("nodes")
	if _, err := s.admin.Create(t.Context(), nodes, "", "", node, metav1.CreateOptions{}, ""); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ship", Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	s.create(pod)
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: "ship", Name: "p"}, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}
	if _, err := s.admin.Create(t.Context(), resourceOf(pod), "ship", "p", binding, metav1.CreateOptions{}, "binding"); err != nil {
		t.Fatal(err)
	}
	bound, err := s.admin.Get(t.Context(), resourceOf(pod), "ship", "p", "")
	if err != nil {
		t.Fatal(err)
	}
	if p := bound.(*corev1.Pod); p.Spec.NodeName != "n1" || p.Labels["topology.kubernetes.io/zone"] != "z1" {
		t.Errorf("the pod is on %q and has the labels %v", p.Spec.NodeName, p.Labels)
	}
	if len(binding.Labels) > 0 {
		t.Errorf("the client's Binding has got the labels %v", binding.Labels)
	}
}
