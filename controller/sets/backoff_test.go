package sets

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/storytest"
)

func TestBackoffDoublesAndForgets(t *testing.T) {
	b, key, now := newBackoff(), placeKey{"set", "db-0"}, time.Unix(0, 0)
	if left := b.left(key, now); left > 0 {
		t.Errorf("before the first failure %v are left, want none", left)
	}
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		b.add(key, now)
		if left := b.left(key, now); left != want {
			t.Errorf("after a failure %v are left, want %v", left, want)
		}
		now = now.Add(want)
	}
	for range 20 {
		b.add(key, now)
	}
	if left := b.left(key, now); left != longestPause {
		t.Errorf("after many failures %v are left, want %v", left, longestPause)
	}
	if left := b.left(placeKey{"set", "db-1"}, now); left > 0 {
		t.Errorf("at another place %v are left, want none", left)
	}
	now = now.Add(2*longestPause + time.Second)
	b.add(key, now)
	if left := b.left(key, now); left != firstPause {
		t.Errorf("after a long time without failures %v are left, want %v", left, firstPause)
	}
}

func TestStatefulSetPausesBeforeItRecreatesPod(t *testing.T) {
	s := newStatefulStory(storytest.NewStory(t))
	s.setSet([]string{"replicas=2"})
	s.Quietly(func() { s.planSet() })
	s.become("fail", "db-0")
	v := s.view()
	v.pause = func(pod string) time.Duration { return map[string]time.Duration{"db-0": 3 * time.Second}[pod] }
	if plan := v.plan(); len(plan.restart)+len(plan.create) != 0 || plan.after != 3*time.Second {
		t.Errorf("plan is %+v, want to look again after 3s", plan)
	}
	v.pause = func(string) time.Duration { return -time.Second }
	if plan := v.plan(); len(plan.restart) != 1 || plan.restart[0].Status.Phase != corev1.PodFailed {
		t.Errorf("plan is %+v, want to restart db-0", plan)
	}
}
