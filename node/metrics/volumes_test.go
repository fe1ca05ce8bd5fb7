package metrics

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestUnregisteredDriversShareSeries has pods that name drivers.
func TestUnregisteredDriversShareSeries(t *testing.T) {
	m := newVolumeMetrics(&Metrics{Registry: prometheus.NewRegistry()})
	failed := errors.New("no such driver")
	for _, name := range []string{"a", "b", "c"} {
		m.Mounted(CSIPlugin(name), time.Time{}, time.Now(), failed)
	}
	if n := testutil.CollectAndCount(m.operations); n != 1 {
		t.Errorf("%d series of three drivers that are not registered, want 1", n)
	}
	m.Registered = func(driver string) bool { return driver == "disks" }
	m.Mounted(CSIPlugin("disks"), time.Now(), time.Now(), nil)
	if n := testutil.CollectAndCount(m.operations); n != 2 {
		t.Errorf("%d series with a driver that is registered, want 2", n)
	}
}
