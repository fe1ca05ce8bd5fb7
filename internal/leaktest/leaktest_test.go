package leaktest_test

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sampan-io/sampan/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// recorder notes the failures of a test.
type recorder struct {
	testing.TB
	failures []string
}

func (*recorder) Helper()             {}
func (r *recorder) Error(args ...any) { r.failures = append(r.failures, args[0].(error).Error()) }

func TestGoroutinesThatEndAreNoLeak(t *testing.T) {
	r := &recorder{TB: t}
	before := goleak.IgnoreCurrent()
	started := make(chan struct{})
	time.AfterFunc(0, func() { close(started); <-time.After(time.Second) }) // longer than one look of goleak
	<-started
	if leaktest.None(r, before); len(r.failures) > 0 {
		t.Errorf("failures %q", r.failures)
	}
}

func TestGoroutinesThatStayAreALeak(t *testing.T) {
	r := &recorder{TB: t}
	before := goleak.IgnoreCurrent()
	end, started := make(chan struct{}), make(chan struct{})
	time.AfterFunc(0, func() { close(started); <-end })
	<-started
	leaktest.None(r, before)
	if close(end); len(r.failures) != 1 || !strings.Contains(r.failures[0], "TestGoroutinesThatStayAreALeak") {
		t.Errorf("failures %q, want one about the goroutine", r.failures)
	}
}
