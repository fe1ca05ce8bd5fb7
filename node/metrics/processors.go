package metrics

import "github.com/prometheus/client_golang/prometheus"

// Processors count the processors of containers.
type Processors struct {
	requests, errors  prometheus.Counter
	shared, exclusive prometheus.Gauge
}

func newProcessorMetrics(m *Metrics) Processors {
	return Processors{
		requests:  add(m, counter("cpu_manager_pinning_requests_total", "Pods with containers that ask for processors for themselves.")),
		errors:    add(m, counter("cpu_manager_pinning_errors_total", "Pods whose containers did not get processors for themselves.")),
		shared:    add(m, gauge("cpu_manager_shared_pool_size_millicores", "Shared CPU that containers can have for themselves, in millicores.")),
		exclusive: add(m, gauge("cpu_manager_exclusive_cpu_allocation_count", "Processors that containers have for themselves.")),
	}
}

// Asked counts a pod that needs processors, and whether it got them.
func (m *Processors) Asked(err error) {
	m.requests.Inc()
	if err != nil {
		m.errors.Inc()
	}
}

// Sized records how many processors containers can have for themselves, and how many of them none has.
func (m *Processors) Sized(free, all int) {
	m.shared.Set(float64(free * 1000))
	m.exclusive.Set(float64(all - free))
}
