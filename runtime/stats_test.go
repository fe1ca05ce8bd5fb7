package runtime

import (
	"testing"
	"time"

	"github.com/opencontainers/cgroups"

	"github.com/sampan-io/sampan/runtime/container"
)

// TestPressureIsReported has a kernel that measures for how long processes wait, and one that does not.
func TestPressureIsReported(t *testing.T) {
	u := container.Usage{At: time.Unix(1, 0), CPU: 1}
	if cpuUsage(u).GetPsi() != nil || memoryUsage(u).GetPsi() != nil || ioUsage(u) != nil {
		t.Error("a pressure is reported that was not measured")
	}
	measured := func(total uint64) *cgroups.PSIStats {
		return &cgroups.PSIStats{Some: cgroups.PSIData{Avg10: 1, Avg60: 2, Avg300: 3, Total: total}, Full: cgroups.PSIData{Total: total + 1}}
	}
	u.CPUPressure, u.MemoryPressure, u.IOPressure = measured(10), measured(20), measured(30)
	for want, got := range map[uint64]uint64{
		10: cpuUsage(u).GetPsi().GetSome().GetTotal(), 11: cpuUsage(u).GetPsi().GetFull().GetTotal(),
		20: memoryUsage(u).GetPsi().GetSome().GetTotal(), 30: ioUsage(u).GetPsi().GetSome().GetTotal(),
	} {
		if got != want {
			t.Errorf("a total is %d, want %d", got, want)
		}
	}
	if d := cpuUsage(u).GetPsi().GetSome(); d.GetAvg10() != 1 || d.GetAvg60() != 2 || d.GetAvg300() != 3 {
		t.Errorf("averages %v, want 1, 2 and 3", d)
	}
}
