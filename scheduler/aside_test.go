package scheduler_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/internal/quarantine"
	"github.com/sampan-io/sampan/scheduler"
)

// TestPodSetAsideIsNotScheduled leaves a mark as a process that ends does, and checks that the next scheduler schedules the
// other pods, and that one when it has been changed.
func TestPodSetAsideIsNotScheduled(t *testing.T) {
	dir := t.TempDir()
	open := func() *quarantine.Quarantine {
		q, err := quarantine.Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	large := pod("large", "priority=1000")
	large.Spec.Containers[0].Args = []string{strings.Repeat("x", quarantine.LeastSize)}
	large.Generation = 1
	if _, ok := open().Begin("scheduler", large); !ok {
		t.Fatal("a new object is set aside")
	}
	schedulingWith(t, scheduler.Options{Plugins: with(&probe{}), Quarantine: open()}, func(t *testing.T, s *clienttest.Server) {
		s.Set(t, large, pod("other"))
		expect(t, s, "large: other:a")
		time.Sleep(time.Hour)
		expect(t, s, "large: other:a")
		changed := large.DeepCopy()
		changed.Annotations = map[string]string{"a": "b"}
		s.Set(t, changed)
		expect(t, s, "large:a other:a")
	}, node("a"))
}
