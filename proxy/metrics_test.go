package proxy_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/proxy"
)

// A sample is one value of a metric: of a histogram how much was observed.
type sample struct {
	metric string
	labels map[string]string
	value  float64
}

// samples returns the samples of collectors, in the order in which they are collected.
func samples(t *testing.T, c []prometheus.Collector) (all []sample) {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c...)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			s := sample{metric: f.GetName(), labels: map[string]string{}, value: m.GetCounter().GetValue()}
			switch {
			case m.GetHistogram() != nil:
				s.value = float64(m.GetHistogram().GetSampleCount())
			case m.GetGauge() != nil:
				s.value = m.GetGauge().GetValue()
			}
			for _, l := range m.GetLabel() {
				s.labels[l.GetName()] = l.GetValue()
			}
			all = append(all, s)
		}
	}
	return all
}

// measured returns the values of metrics without labels.
func measured(t *testing.T, c []prometheus.Collector) map[string]float64 {
	t.Helper()
	values := map[string]float64{}
	for _, s := range samples(t, c) {
		if len(s.labels) == 0 {
			values[s.metric] = s.value
		}
	}
	return values
}

func TestMetricsCountWork(t *testing.T) { synctest.Test(t, testMetrics) }

func testMetrics(t *testing.T) {
	api := clienttest.New(t)
	k := newKernel(t)
	caused := func(at time.Time) *discoveryv1.EndpointSlice {
		s := slice("http", 8080, endpoint("10.1.0.2", "rs"))
		s.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: at.Format(time.RFC3339Nano)}
		return s
	}
	(&cluster{t, nil, api, nil}).create(service(nil), caused(time.Now().Add(-time.Hour)))
	h := start(t, api, k, proxy.Options{})
	synctest.Wait()
	got := measured(t, h.proxy.Metrics())
	for name, want := range map[string]float64{
		"kubeproxy_sync_proxy_rules_duration_seconds":             1,
		"kubeproxy_sync_full_proxy_rules_duration_seconds":        1,
		"kubeproxy_sync_partial_proxy_rules_duration_seconds":     0,
		"kubeproxy_network_programming_duration_seconds":          0, // what was there before says nothing of us
		"kubeproxy_sync_proxy_rules_service_changes_total":        1,
		"kubeproxy_sync_proxy_rules_endpoint_changes_total":       1,
		"kubeproxy_sync_proxy_rules_nftables_sync_failures_total": 0,
		"sampan_proxy_rules":    1,
		"sampan_proxy_services": 1,
	} {
		if got[name] != want {
			t.Errorf("at the start %s is %v, want %v", name, got[name], want)
		}
	}
	for _, name := range []string{"kubeproxy_sync_proxy_rules_last_timestamp_seconds", "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds"} {
		if since := time.Since(time.Unix(int64(got[name]), 0)); since < 0 || since > time.Hour {
			t.Errorf("%s is %v, %v ago", name, got[name], since)
		}
	}

	time.Sleep(time.Second)
	h.updateSlice("web-1", func(s *discoveryv1.EndpointSlice) {
		s.Annotations = caused(time.Now()).Annotations
		s.Endpoints = append(s.Endpoints, endpoint("10.1.0.3", "rs"))
	})
	h.await("10.0.0.1:80/TCP → 10.1.0.2:8080 10.1.0.3:8080, masquerade foreign")
	h.create(service(func(s *corev1.Service) { s.Name, s.Spec.ClusterIP = "api", "10.0.0.2" }))
	h.await("10.0.0.1:80/TCP → 10.1.0.2:8080 10.1.0.3:8080, masquerade foreign", "10.0.0.2:80/TCP → nobody, masquerade foreign")
	synctest.Wait()
	k.mu.Lock()
	k.refuse = 1
	k.mu.Unlock()
	h.delete("api")
	h.await("10.0.0.1:80/TCP → 10.1.0.2:8080 10.1.0.3:8080, masquerade foreign")
	synctest.Wait()
	got = measured(t, h.proxy.Metrics())
	for name, want := range map[string]float64{
		"kubeproxy_network_programming_duration_seconds":          1,
		"sampan_proxy_sync_failures_total":                        1,
		"kubeproxy_sync_proxy_rules_nftables_sync_failures_total": 1,
	} {
		if got[name] != want {
			t.Errorf("then %s is %v, want %v", name, got[name], want)
		}
	}
}
