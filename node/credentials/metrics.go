package credentials

import "github.com/prometheus/client_golang/prometheus"

// metrics are those of upstream's kubelet about plug-ins.
type metrics struct {
	duration *prometheus.HistogramVec
	errors   *prometheus.CounterVec
	config   *prometheus.GaugeVec // the hash of the configuration
}

func newMetrics() metrics {
	plugin := []string{"plugin_name"}
	return metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: "kubelet", Name: "credential_provider_plugin_duration", Help: "How long credential provider plug-ins ran, in seconds.",
		}, plugin),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Subsystem: "kubelet", Name: "credential_provider_plugin_errors_total", Help: "Runs of credential provider plug-ins that failed.",
		}, plugin),
		config: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Subsystem: "kubelet", Name: "credential_provider_config_info", Help: "The hash of the configuration of credential provider plug-ins; the value is 1.",
		}, []string{"hash"}),
	}
}

// Metrics returns the metrics of the plug-ins.
func (p *Plugins) Metrics() []prometheus.Collector {
	return []prometheus.Collector{p.metrics.duration, p.metrics.errors, p.metrics.config}
}
