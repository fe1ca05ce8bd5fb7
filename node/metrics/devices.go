package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Devices count what device plug-ins do, and the calls of monitors of devices.
type Devices struct {
	registered *prometheus.CounterVec
	allocated  *prometheus.HistogramVec

	requests               prometheus.Counter
	List, Get, Allocatable endpointMetrics
}

// endpointMetrics count the calls of one method of the API about the devices of pods.
type endpointMetrics struct{ requests, errors prometheus.Counter }

func newDeviceMetrics(m *Metrics) *Devices {
	// v1 is the only version that is served.
	count := func(name, help string) prometheus.Counter {
		return add(m, counterVec("pod_resources_endpoint_"+name, help, "server_api_version")).WithLabelValues("v1")
	}
	method := func(name, call string) endpointMetrics {
		return endpointMetrics{
			count("requests_"+name, "Calls of "+call+" of the API about the devices of pods."),
			count("errors_"+name, "Calls of "+call+" of the API about the devices of pods that failed."),
		}
	}
	return &Devices{
		registered:  add(m, counterVec("device_plugin_registration_total", "Registrations of device plug-ins.", "resource_name")),
		allocated:   add(m, histogramVec("device_plugin_alloc_duration_seconds", "How long device plug-ins took to give devices to a container.", prometheus.DefBuckets, "resource_name")),
		requests:    count("requests_total", "Calls of the API about the devices of pods."),
		List:        method("list", "List"),
		Get:         method("get", "Get"),
		Allocatable: method("get_allocatable", "GetAllocatableResources"),
	}
}

// Registers counts a registration of a device plug-in.
func (m *Devices) Registers(resource string) { m.registered.WithLabelValues(resource).Inc() }

// Gave records that a device plug-in answered a request for devices.
func (m *Devices) Gave(resource string, took time.Duration) {
	m.allocated.WithLabelValues(resource).Observe(took.Seconds())
}

// Called counts a call of a method.
func (m *Devices) Called(e endpointMetrics, err error) {
	m.requests.Inc()
	e.requests.Inc()
	if err != nil {
		e.errors.Inc()
	}
}
