package capacity

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func memory(amount string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(amount)}}
}

// TestDeferredResizesHaveAnOrder sorts resizes that wait, the first one of which the node is to grant first.
func TestDeferredResizesHaveAnOrder(t *testing.T) {
	pod := func(request string, priority int32, class corev1.PodQOSClass) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{Priority: &priority}, Status: corev1.PodStatus{QOSClass: class}}
		p.Spec.Containers = []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{Requests: memory(request).Limits}}}
		return p
	}
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	small, burstable, guaranteed := pod("1Gi", 0, corev1.PodQOSBurstable), corev1.PodQOSBurstable, corev1.PodQOSGuaranteed
	want := []*deferral{
		{pod("1Gi", 0, burstable), small, at(9)}, // other limits only
		{pod("2Gi", 5, burstable), small, at(8)},
		{pod("2Gi", 0, guaranteed), small, at(7)},
		{pod("2Gi", 0, burstable), small, at(1)},
		{pod("2Gi", 0, burstable), small, at(2)},
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, (*deferral).before)
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("place %d has the resize since %d to %v", i, got[i].since.Unix(), got[i].wanted.Spec)
		}
	}
}

// TestWaitOfResizeOutlivesTheAgent reads since when a resize waits from the status that an earlier agent has written.
func TestWaitOfResizeOutlivesTheAgent(t *testing.T) {
	now := time.Unix(500, 0)
	condition := corev1.PodCondition{
		Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred, LastTransitionTime: metav1.Unix(100, 0),
	}
	if got := deferredSince(&corev1.PodStatus{Conditions: []corev1.PodCondition{condition}}, now); !got.Equal(time.Unix(100, 0)) {
		t.Errorf("since %s, want the time of the condition", got)
	}
	condition.Reason = corev1.PodReasonInfeasible
	if got := deferredSince(&corev1.PodStatus{Conditions: []corev1.PodCondition{condition}}, now); !got.Equal(now) {
		t.Errorf("since %s for a resize that was infeasible, want now", got)
	}
	if got := deferredSince(&corev1.PodStatus{}, now); !got.Equal(now) {
		t.Errorf("since %s without a condition, want now", got)
	}
}
