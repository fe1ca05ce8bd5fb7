package node

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// deviceMetrics count what device plug-ins do, and the calls of monitors of devices.
type deviceMetrics struct {
	registered *prometheus.CounterVec
	allocated  *prometheus.HistogramVec

	requests               prometheus.Counter
	list, get, allocatable endpointMetrics
}

// endpointMetrics count the calls of one method of the API about the devices of pods.
type endpointMetrics struct{ requests, errors prometheus.Counter }

func newDeviceMetrics(m *metrics) *deviceMetrics {
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
	return &deviceMetrics{
		registered:  add(m, counterVec("device_plugin_registration_total", "Registrations of device plug-ins.", "resource_name")),
		allocated:   add(m, histogramVec("device_plugin_alloc_duration_seconds", "How long device plug-ins took to give devices to a container.", prometheus.DefBuckets, "resource_name")),
		requests:    count("requests_total", "Calls of the API about the devices of pods."),
		list:        method("list", "List"),
		get:         method("get", "Get"),
		allocatable: method("get_allocatable", "GetAllocatableResources"),
	}
}

// registers counts a registration of a device plug-in.
func (m *deviceMetrics) registers(resource string) { m.registered.WithLabelValues(resource).Inc() }

// gave records that a device plug-in answered a request for devices.
func (m *deviceMetrics) gave(resource string, took time.Duration) {
	m.allocated.WithLabelValues(resource).Observe(took.Seconds())
}

// called counts a call of a method.
func (m *deviceMetrics) called(e endpointMetrics, err error) {
	m.requests.Inc()
	e.requests.Inc()
	if err != nil {
		e.errors.Inc()
	}
}
