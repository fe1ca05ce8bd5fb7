package node

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestUnregisteredDriversShareSeries has pods that name drivers.
func TestUnregisteredDriversShareSeries(t *testing.T) {
	m := newVolumeMetrics(&metrics{registry: prometheus.NewRegistry()})
	failed := errors.New("no such driver")
	for _, name := range []string{"a", "b", "c"} {
		m.mounted(csiPlugin(name), time.Time{}, time.Now(), failed)
	}
	if n := testutil.CollectAndCount(m.operations); n != 1 {
		t.Errorf("%d series of three drivers that are not registered, want 1", n)
	}
	m.registered = func(driver string) bool { return driver == "disks" }
	m.mounted(csiPlugin("disks"), time.Now(), time.Now(), nil)
	if n := testutil.CollectAndCount(m.operations); n != 2 {
		t.Errorf("%d series with a driver that is registered, want 2", n)
	}
}
