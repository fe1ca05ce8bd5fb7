package audit_test

import (
	"testing"

	"github.com/sampan-io/sampan/apiserver/audit"
)

// TestNewIDAllocatesOnce pins what each request pays.
func TestNewIDAllocatesOnce(t *testing.T) {
	if got := testing.AllocsPerRun(100, func() { audit.NewID() }); got > 1 {
		t.Errorf("an ID takes %v allocations, want 1", got)
	}
}

func BenchmarkNewID(b *testing.B) {
	for b.Loop() {
		audit.NewID()
	}
}
