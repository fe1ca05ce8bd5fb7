// Package metricstest reads samples of metrics, for tests.
package metricstest

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Sum returns the sum of the samples of a metric with the given labels: of its values, or of the counts of a
// histogram.
func Sum(t *testing.T, from prometheus.Gatherer, name string, labels map[string]string) (sum float64) {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, one := range f.GetMetric() {
			matches := 0
			for _, l := range one.GetLabel() {
				if want, is := labels[l.GetName()]; is && want == l.GetValue() {
					matches++
				}
			}
			if matches == len(labels) {
				sum += one.GetCounter().GetValue() + one.GetGauge().GetValue() + float64(one.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}
