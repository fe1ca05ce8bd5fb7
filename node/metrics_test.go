package node

import (
	"bufio"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sampan-io/sampan/node/credentials"
	"github.com/sampan-io/sampan/node/criclient"
	"github.com/sampan-io/sampan/node/csi"
	"github.com/sampan-io/sampan/node/dra"
	"github.com/sampan-io/sampan/node/metrics"
	"github.com/sampan-io/sampan/node/pluginregistry"
)

// lines returns the lines of a file in testdata without comments.
func lines(t *testing.T, file string) []string {
	t.Helper()
	f, err := os.Open("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []string
	for s := bufio.NewScanner(f); s.Scan(); {
		if text := s.Text(); !strings.HasPrefix(text, "#") {
			all = append(all, text)
		}
	}
	return all
}

// described returns the name, the type and the labels of each metric of a collector. The type of those whose collector
// does not show it is that of want.
func described(c prometheus.Collector, want map[string]string) []string {
	kind := ""
	switch c.(type) {
	case *prometheus.CounterVec:
		kind = "counter"
	case *prometheus.GaugeVec, prometheus.Gauge, nodeState:
		kind = "gauge"
	case *prometheus.HistogramVec, prometheus.Histogram:
		kind = "histogram"
	case prometheus.Counter:
		kind = "counter"
	}
	descs := make(chan *prometheus.Desc, 100)
	c.Describe(descs)
	close(descs)
	form := regexp.MustCompile(`fqName: "([^"]*)".*constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}`)
	fixed := regexp.MustCompile(`(\w+)="`)
	var all []string
	for d := range descs {
		m := form.FindStringSubmatch(d.String())
		labels := strings.Split(m[3], ",")
		for _, label := range fixed.FindAllStringSubmatch(m[2], -1) {
			labels = append(labels, label[1])
		}
		slices.Sort(labels)
		name, of := m[1], kind
		if of == "" {
			of = want[name]
		}
		text := strings.Join(labels, ",")
		if text == "" {
			text = "-"
		}
		all = append(all, name+" "+of+" "+text)
	}
	return all
}

// TestMetricsAreUpstreams compares the metrics of a node with those of upstream's kubelet. Those of a node that has
// joined a cluster of another machine are in package cluster/join.
func TestMetricsAreUpstreams(t *testing.T) {
	want, kinds := map[string]string{}, map[string]string{}
	for _, line := range lines(t, "kubelet-metrics.txt") {
		f := strings.Fields(line)
		want[f[0]], kinds[f[0]] = strings.Join(f[:3], " "), f[1]
	}
	m := metrics.New()
	plugins, err := credentials.Load("testdata/credentials.yaml", "/bin", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	rt, err := criclient.Dial("unix:///run/cri.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	all := slices.Concat(m.Collectors(), rt.Collectors(), plugins.Metrics(), []prometheus.Collector{
		nodeState{},
		csi.New(csi.Options{}).Metrics(), dra.New(dra.Options{}).Metrics(), pluginregistry.New(pluginregistry.Options{}).Metrics(),
	})
	served := map[string]bool{}
	for _, c := range all {
		for _, got := range described(c, kinds) {
			name, _, _ := strings.Cut(got, " ")
			served[name] = true
			if got != want[name] {
				t.Errorf("the node has %q, upstream %q", got, want[name])
			}
		}
	}
	absent := map[string]string{"rest_client_": "", "kubelet_certificate_manager_": "", "kubelet_server_expiration_": ""} // of cluster/join
	for _, line := range lines(t, "absent-metrics.txt") {
		name, why, _ := strings.Cut(line, ": ")
		if prefix, is := strings.CutSuffix(name, "*"); is {
			name = prefix
		}
		absent[name] = why
	}
	for name := range want {
		missing := ""
		for prefix := range absent {
			if strings.HasPrefix(name, prefix) {
				missing = prefix
			}
		}
		if served[name] == (missing != "") {
			t.Errorf("%s is served: %v, and absent by the list: %v", name, served[name], missing != "")
		}
	}
}
