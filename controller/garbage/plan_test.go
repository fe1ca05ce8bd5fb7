package garbage

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestJudge(t *testing.T) {
	obj := &corev1.Pod{}
	owners := func(n int) *corev1.Pod {
		o := obj.DeepCopy()
		for i := range n {
			o.OwnerReferences = append(o.OwnerReferences, metav1.OwnerReference{UID: types.UID(fmt.Sprint(i))})
		}
		return o
	}
	tests := []struct {
		name       string
		states     []ownerState
		dependents bool
		keep       int
		delete     bool
		foreground bool
	}{
		{"without owners it stays", nil, false, 0, false, false},
		{"its owner exists", []ownerState{solid}, false, 1, false, false},
		{"its owner is gone", []ownerState{absent}, false, 0, true, false},
		{"one of two is gone", []ownerState{absent, solid}, false, 1, false, false},
		{"its owner waits for it", []ownerState{waiting}, false, 0, true, false},
		{"its owner waits for it, and others depend on it", []ownerState{waiting}, true, 0, true, true},
		{"one waits and one exists", []ownerState{waiting, solid}, true, 1, false, false},
		{"one is gone and one unknown", []ownerState{absent, unknown}, false, 2, false, false},
		{"one waits and one is unknown", []ownerState{waiting, unknown}, true, 2, false, false},
		{"all are gone, and others depend on it", []ownerState{absent, absent}, true, 0, true, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := judge(owners(len(tt.states)), tt.states, tt.dependents)
			if len(v.keep) != tt.keep || v.delete != tt.delete || v.foreground != tt.foreground {
				t.Errorf("judge = %+v", v)
			}
		})
	}
}
