package join

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestMetricsAreUpstreams compares the metrics with those of upstream's kubelet, in the list that package node compares its metrics
// with.
func TestMetricsAreUpstreams(t *testing.T) {
	list, err := os.ReadFile("../../node/testdata/kubelet-metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for line := range strings.Lines(string(list)) {
		f := strings.Fields(line)
		if strings.HasPrefix(line, "kubelet_certificate_manager_") || strings.HasPrefix(line, "kubelet_server_expiration_") || strings.HasPrefix(line, "rest_client_") {
			want = append(want, f[0]+" "+f[2])
		}
	}
	var got []string
	for _, c := range newCertificates(t.TempDir(), "n").Metrics() {
		descs := make(chan *prometheus.Desc, 1)
		c.Describe(descs)
		text := (<-descs).String()
		_, name, _ := strings.Cut(text, `fqName: "`)
		name, _, _ = strings.Cut(name, `"`)
		_, labels, _ := strings.Cut(text, "variableLabels: {")
		labels = strings.TrimSuffix(labels, "}}")
		all := strings.Split(labels, ",")
		slices.Sort(all)
		if labels = strings.Join(all, ","); labels == "" {
			labels = "-"
		}
		got = append(got, name+" "+labels)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("metrics\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
