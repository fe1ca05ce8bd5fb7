package node

import (
	"bufio"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/node/credentials"
	"github.com/sampan-io/sampan/node/criclient"
	"github.com/sampan-io/sampan/node/csi"
	"github.com/sampan-io/sampan/node/dra"
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
	m := newMetrics()
	plugins, err := credentials.Load("testdata/credentials.yaml", "/bin", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	rt, err := criclient.Dial("unix:///run/cri.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	all := slices.Concat(m.all, rt.Collectors(), plugins.Metrics(), []prometheus.Collector{
		nodeState{},
		m.probed, m.probing, m.checks.is, m.checks.total,
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

// valueOf returns the sum of the samples of a metric with the given labels: of its values, or of the counts of a
// histogram.
func valueOf(t *testing.T, m *metrics, name string, labels map[string]string) (sum float64) {
	t.Helper()
	families, err := m.registry.Gather()
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

func TestStartWithoutPullsAndInitContainers(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(1000+s), 0) }
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}, InitContainers: []corev1.Container{{Name: "i"}}}}
	pod.CreationTimestamp = metav1.NewTime(at(0))
	running := &corev1.PodStatus{
		ContainerStatuses: []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
		InitContainerStatuses: []corev1.ContainerStatus{{Name: "i", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{StartedAt: metav1.NewTime(at(11)), FinishedAt: metav1.NewTime(at(14))},
		}}},
	}
	m := newMetrics()
	s := newStarting(pod)
	s.pulls = []span{{at(4), at(8)}, {at(2), at(6)}, {at(9), at(10)}} // 7 s in all
	m.pods.reported(&s, pod, &corev1.PodStatus{}, at(1))
	m.pods.reported(&s, pod, running, at(20))
	m.pods.reported(&s, pod, running, at(30))
	if n := valueOf(t, m, "kubelet_pod_start_total_duration_seconds", nil); n != 1 {
		t.Errorf("%v starts, want 1", n)
	}
	if got := valueOf(t, m, "kubelet_first_network_pod_start_sli_duration_seconds", nil); got != 10 {
		t.Errorf("the start took %v s without pulls and init containers, want 20 - 7 - 3", got)
	}
	pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}}}
	s = newStarting(pod)
	m.pods.reported(&s, pod, running, at(20))
	if all, n := valueOf(t, m, "kubelet_pod_start_total_duration_seconds", nil), valueOf(t, m, "kubelet_pod_start_sli_duration_seconds", nil); all != 2 || n != 1 {
		t.Errorf("%v starts, %v of them of pods without other volumes, want 2 and 1", all, n)
	}
	pod.Status.StartTime = &pod.CreationTimestamp
	if newStarting(pod).counts {
		t.Error("the start of a pod counts that another agent has begun")
	}
}

func TestSizeBucket(t *testing.T) {
	for size, want := range map[uint64]string{0: "N/A", 1: "0-10MB", 10 << 20: "0-10MB", 10<<20 + 1: "10MB-100MB", 1<<30 + 1: "1GB-5GB", 200 << 30: "GT100GB"} {
		if got := sizeBucket(size); got != want {
			t.Errorf("bucket of %d bytes is %s, want %s", size, got, want)
		}
	}
}

func TestRejectionsByReason(t *testing.T) {
	m := newMetrics()
	for _, reason := range []string{"OutOfcpu", "OutOfexample.com/gpu", "NodePorts", "Evicted"} {
		m.pods.rejected(reason)
	}
	for _, reason := range []string{"OutOfcpu", "OutOfExtendedResources", "Other", "Evicted"} {
		if n := valueOf(t, m, "kubelet_admission_rejections_total", map[string]string{"reason": reason}); n != 1 {
			t.Errorf("%v rejections for %s, want 1", n, reason)
		}
	}
}
