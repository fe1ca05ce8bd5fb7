package clusters

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestBadConditionsOfNodes(t *testing.T) {
	node := func(conditions ...corev1.NodeCondition) []*corev1.Node {
		return []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.NodeStatus{Conditions: conditions}}}
	}
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Message: "kubelet is posting ready status"}
	full := corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue, Message: "kubelet has disk pressure"}
	unknown := func(t corev1.NodeConditionType) corev1.NodeCondition {
		return corev1.NodeCondition{Type: t, Status: corev1.ConditionUnknown, Message: "Kubelet stopped posting node status."}
	}
	for name, tt := range map[string]struct {
		nodes []*corev1.Node
		want  []string
	}{
		"good":           {node(ready, corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse}), nil},
		"pressure":       {node(full, ready), []string{"node a gets no new pods: DiskPressure is True: kubelet has disk pressure"}},
		"lost":           {node(unknown(corev1.NodeMemoryPressure), unknown(corev1.NodeReady)), []string{"node a gets no new pods: Ready is Unknown: Kubelet stopped posting node status."}},
		"without status": {node(), []string{"node a gets no new pods: Ready is Unknown: the node has not reported its status yet"}},
		"of others":      {node(ready, corev1.NodeCondition{Type: "example.com/Fine", Status: corev1.ConditionTrue}), nil},
		"no message":     {node(ready, corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue}), []string{"node a gets no new pods: NetworkUnavailable is True"}},
	} {
		if got := conditionLines(badConditions(tt.nodes), nil); !slices.Equal(got, tt.want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
		}
	}
	var many []*corev1.Node
	for i := range 20 {
		many = append(many, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}})
	}
	if got := conditionLines(badConditions(many), nil); len(got) != 13 || got[12] != "8 more: see `kubectl get nodes`" {
		t.Errorf("of 20 nodes: %q", got)
	}
}
