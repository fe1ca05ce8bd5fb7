package dra

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// gathered returns the values of metrics by name and labels: those of gauges, and the numbers of observations.
func gathered(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := f.GetName()
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			all[key] = m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}

func TestMetricsCountClaimsAndCalls(t *testing.T) {
	r := newRig(t, t.TempDir())
	d := r.driver()
	r.claim("x", "p1")
	d.set("it is warm", false)
	r.expect(r.manager.Prepare(t.Context(), podWith("p1", "x")), "it is warm")
	if got := gathered(t, r.manager.Metrics())["dra_resource_claims_in_use <any>"]; got != 0 {
		t.Errorf("%v claims are in use after a failure", got)
	}
	d.set("", false)
	r.expect(r.manager.Prepare(t.Context(), podWith("p1", "x")), "")
	got := gathered(t, r.manager.Metrics())
	for key, want := range map[string]float64{
		"dra_resource_claims_in_use <any>":                       1,
		"dra_resource_claims_in_use " + driverName:               1,
		"dra_operations_duration_seconds true PrepareResources":  1,
		"dra_operations_duration_seconds false PrepareResources": 1,
		"dra_grpc_operations_duration_seconds " + driverName + " OK /k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources": 2,
	} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v; there are %v", key, got[key], want, got)
		}
	}
	r.expect(r.manager.Unprepare(t.Context(), "p1"), "")
	got = gathered(t, r.manager.Metrics())
	if n, there := got["dra_resource_claims_in_use "+driverName]; there || got["dra_resource_claims_in_use <any>"] != 0 || got["dra_operations_duration_seconds false UnprepareResources"] != 1 {
		t.Errorf("after the end: %v (%v)", got, n)
	}
	r.manager.Remove(t.Context(), r.plugin())
	for key := range gathered(t, r.manager.Metrics()) {
		if strings.Contains(key, driverName) {
			t.Errorf("%s is left of a driver that was removed", key)
		}
	}
}
