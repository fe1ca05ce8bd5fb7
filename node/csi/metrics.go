package csi

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sampan-io/sampan/node/pluginregistry"
)

// newCalls returns the metric of upstream's kubelet about calls of drivers. No volume is migrated: no in-tree plug-ins
// exist here that drivers could replace.
func newCalls(registered func(driver string) bool) *pluginregistry.Calls {
	return pluginregistry.NewCalls(prometheus.HistogramOpts{
		Subsystem: "csi", Name: "operations_seconds", Help: "How long calls of CSI drivers took.",
		ConstLabels: prometheus.Labels{"migrated": "false"},
		Buckets:     []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
	}, registered)
}

// IsRegistered reports whether a driver is registered or is being registered.
func (m *Manager) IsRegistered(driver string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.drivers[driver] != nil || m.coming[driver] != nil
}

// Metrics returns the metrics of the manager.
func (m *Manager) Metrics() prometheus.Collector { return m.calls }
