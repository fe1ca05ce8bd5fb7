package rollouts

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/await"
)

// TestADeadlineLimitsWaitsOneAfterTheOther has waits begin at several times before and after
// the deadline of all of them.
func TestADeadlineLimitsWaitsOneAfterTheOther(t *testing.T) {
	began := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name    string
		timeout time.Duration
		after   time.Duration
		req     await.Request
		want    await.Request
	}{
		{"without a timeout", 0, time.Hour, await.Request{}, await.Request{}},
		{"without a timeout, one that has its own", 0, time.Hour, await.Request{Timeout: time.Second}, await.Request{Timeout: time.Second}},
		{"the first", time.Minute, 0, await.Request{}, await.Request{Timeout: time.Minute}},
		{"the second", time.Minute, 45 * time.Second, await.Request{}, await.Request{Timeout: 15 * time.Second}},
		{"one that is shorter", time.Minute, 45 * time.Second, await.Request{Timeout: time.Second}, await.Request{Timeout: time.Second}},
		{"one that is longer", time.Minute, 45 * time.Second, await.Request{Timeout: time.Hour}, await.Request{Timeout: 15 * time.Second}},
		{"at the deadline", time.Minute, time.Minute, await.Request{}, await.Request{Once: true}},
		{"after it", time.Minute, time.Hour, await.Request{Timeout: time.Second}, await.Request{Once: true}},
		{"a look", time.Minute, time.Second, await.Request{Once: true}, await.Request{Once: true, Timeout: 59 * time.Second}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := deadlineIn(tt.timeout, began).limit(tt.req, began.Add(tt.after))
			if got.Timeout != tt.want.Timeout || got.Once != tt.want.Once {
				t.Errorf("limit = %v once %v, want %v once %v", got.Timeout, got.Once, tt.want.Timeout, tt.want.Once)
			}
		})
	}
}

func TestRolledBackIgnoresOutdatedStatus(t *testing.T) {
	for _, tt := range []struct {
		name       string
		generation int64
		status     corev1.ConditionStatus
		want       bool
	}{
		{"the present template", 3, corev1.ConditionTrue, true},
		{"a template that the controller has not seen", 4, corev1.ConditionTrue, false},
		{"a condition that has ended", 3, corev1.ConditionFalse, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := &appsv1.Deployment{}
			d.Generation, d.Status.ObservedGeneration = tt.generation, 3
			d.Status.Conditions = []appsv1.DeploymentCondition{{Type: "RolledBack", Status: tt.status}}
			if got := rolledBack(d) != nil; got != tt.want {
				t.Errorf("rolledBack = %t, want %t", got, tt.want)
			}
		})
	}
}
