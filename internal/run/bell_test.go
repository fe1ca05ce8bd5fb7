package run_test

import (
	"testing"

	"github.com/sampan-io/sampan/internal/run"
)

func TestRingsAreOneUntilTheBellIsHeard(t *testing.T) {
	b := run.NewBell()
	b.Ring()
	b.Ring()
	<-b
	select {
	case <-b:
		t.Error("a ring was heard twice")
	default:
	}
	b.Ring()
	<-b
}
