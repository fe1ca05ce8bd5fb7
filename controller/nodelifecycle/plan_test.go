package nodelifecycle

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTaintsFollowConditions(t *testing.T) {
	now := time.Unix(1000, 0)
	before := metav1.NewTime(time.Unix(500, 0))
	ready := func(s corev1.ConditionStatus) corev1.NodeCondition {
		return corev1.NodeCondition{Type: corev1.NodeReady, Status: s}
	}
	tests := []struct {
		name       string
		conditions []corev1.NodeCondition
		cordoned   bool
		have       []corev1.Taint
		want       []string
	}{
		{"ready", []corev1.NodeCondition{ready("True")}, false, nil, nil},
		{
			"not ready",
			[]corev1.NodeCondition{ready("False")},
			false, nil,
			[]string{"node.kubernetes.io/not-ready:NoSchedule@1000", "node.kubernetes.io/not-ready:NoExecute@1000"},
		},
		{
			"lost, after it was not ready",
			[]corev1.NodeCondition{ready("Unknown")},
			false,
			[]corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}, {Key: "mine", Effect: corev1.TaintEffectNoSchedule}},
			[]string{"mine:NoSchedule@0", "node.kubernetes.io/unreachable:NoSchedule@1000", "node.kubernetes.io/unreachable:NoExecute@1000"},
		},
		{
			"lost for a while",
			[]corev1.NodeCondition{ready("Unknown")},
			false,
			[]corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute, TimeAdded: &before}},
			[]string{"node.kubernetes.io/unreachable:NoExecute@500", "node.kubernetes.io/unreachable:NoSchedule@1000"},
		},
		{
			"cordoned and short of memory",
			[]corev1.NodeCondition{ready("True"), {Type: corev1.NodeMemoryPressure, Status: "True"}},
			true, nil,
			[]string{"node.kubernetes.io/unschedulable:NoSchedule@1000", "node.kubernetes.io/memory-pressure:NoSchedule@1000"},
		},
		{
			"well again",
			[]corev1.NodeCondition{ready("True")},
			false,
			[]corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}},
			nil,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			node := &corev1.Node{Spec: corev1.NodeSpec{Taints: tt.have, Unschedulable: tt.cordoned}, Status: corev1.NodeStatus{Conditions: tt.conditions}}
			var got []string
			for _, taint := range taintsFor(node, now) {
				at := int64(0)
				if taint.TimeAdded != nil {
					at = taint.TimeAdded.Unix()
				}
				got = append(got, fmt.Sprintf("%s:%s@%d", taint.Key, taint.Effect, at))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhenAPodIsEvicted(t *testing.T) {
	added := metav1.NewTime(time.Unix(1000, 0))
	lost := corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute, TimeAdded: &added}
	other := corev1.Taint{Key: "gpu", Value: "broken", Effect: corev1.TaintEffectNoExecute, TimeAdded: &added}
	soft := corev1.Taint{Key: "x", Effect: corev1.TaintEffectNoSchedule}
	seconds := func(n int64) *int64 { return &n }
	tests := []struct {
		name        string
		taints      []corev1.Taint
		tolerations []corev1.Toleration
		want        int64 // -1: never
	}{
		{"never without a taint", []corev1.Taint{soft}, nil, -1},
		{"after five minutes if it says nothing", []corev1.Taint{lost}, nil, 1300},
		{"at once for a taint of others", []corev1.Taint{other}, nil, 1000},
		{"when it says", []corev1.Taint{lost}, []corev1.Toleration{{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, TolerationSeconds: seconds(7)}}, 1007},
		{"at the shortest that it says", []corev1.Taint{lost}, []corev1.Toleration{
			{Operator: corev1.TolerationOpExists}, {Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, TolerationSeconds: seconds(7)},
		}, 1007},
		{"never if it tolerates everything", []corev1.Taint{lost, other}, []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, -1},
		{"never if it tolerates the value", []corev1.Taint{other}, []corev1.Toleration{{Key: "gpu", Value: "broken"}}, -1},
		{"at once if it tolerates another value", []corev1.Taint{other}, []corev1.Toleration{{Key: "gpu", Value: "odd"}}, 1000},
		{"at the earliest of two", []corev1.Taint{lost, other}, nil, 1000},
		{"at once if the seconds are negative", []corev1.Taint{other}, []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists, TolerationSeconds: seconds(-1)}}, 1000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: tt.tolerations}}
			at, ever := evictAt(pod, tt.taints, time.Unix(2000, 0))
			got := int64(-1)
			if ever {
				got = at.Unix()
			}
			if got != tt.want {
				t.Errorf("evicted at %d, want %d", got, tt.want)
			}
		})
	}
}
