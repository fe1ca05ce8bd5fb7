package usage

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// A point is the use of a node or a container up to one time.
type point struct {
	at      time.Time
	cpu     float64 // seconds of one core since its start
	memory  float64 // bytes
	started time.Time
}

// A podKey is the name of a pod.
type podKey struct{ namespace, name string }

// A sample is the use of a node and its containers up to one time.
type sample struct {
	at   time.Time // when it was taken
	node *point    // nil if the node does not say
	pods map[podKey]map[string]point
}

// has reports whether the sample has all these pods.
func (s *sample) has(pods []podKey) bool {
	return !slices.ContainsFunc(pods, func(k podKey) bool { return s.pods[k] == nil })
}

// parse reads the metrics of a node, in the text format of Prometheus. A metric without a time was measured at the time now.
func parse(metrics []byte, now time.Time) (*sample, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(metrics))
	if err != nil {
		return nil, fmt.Errorf("metrics of the node: %w", err)
	}
	for _, m := range families["scrape_error"].GetMetric() {
		if value(m) != 0 {
			return nil, errors.New("the node could not measure its usage")
		}
	}
	s := &sample{at: now, pods: map[podKey]map[string]point{}}
	node := point{}
	known := 0
	for name, set := range map[string]func(*point, float64){
		"node_cpu_usage_seconds_total":  func(p *point, v float64) { p.cpu = v },
		"node_memory_working_set_bytes": func(p *point, v float64) { p.memory = v },
	} {
		for _, m := range families[name].GetMetric() {
			if v := value(m); usable(v) {
				set(&node, v)
				node.at = timeOf(m, now)
				known++
			}
		}
	}
	if known == 2 {
		s.node = &node
	}
	s.containers(families, now)
	return s, nil
}

// containers adds the containers of which both CPU and memory are known.
func (s *sample) containers(families map[string]*dto.MetricFamily, now time.Time) {
	type key struct {
		podKey
		container string
	}
	found := map[key]*point{}
	known := map[key]int{}
	each := func(name string, f func(k key, m *dto.Metric, v float64)) {
		for _, m := range families[name].GetMetric() {
			var k key
			for _, l := range m.GetLabel() {
				switch l.GetName() {
				case "namespace":
					k.namespace = l.GetValue()
				case "pod":
					k.name = l.GetValue()
				case "container":
					k.container = l.GetValue()
				}
			}
			if v := value(m); usable(v) {
				if found[k] == nil {
					found[k] = &point{}
				}
				f(k, m, v)
			}
		}
	}
	each("container_cpu_usage_seconds_total", func(k key, m *dto.Metric, v float64) {
		found[k].cpu, found[k].at = v, timeOf(m, now)
		known[k] |= 1
	})
	each("container_memory_working_set_bytes", func(k key, _ *dto.Metric, v float64) {
		found[k].memory = v
		known[k] |= 2
	})
	each("container_start_time_seconds", func(k key, _ *dto.Metric, v float64) {
		if v < math.MaxInt64/1e9 {
			found[k].started = time.Unix(0, int64(v*1e9))
		}
	})
	for k, p := range found {
		if s.pods[k.podKey] == nil {
			s.pods[k.podKey] = map[string]point{}
		}
		if known[k] != 1|2 {
			p.at = time.Time{} // which makes the pod one without metrics
		}
		s.pods[k.podKey][k.container] = *p
	}
}

// value returns the value of a metric, whatever its type.
func value(m *dto.Metric) float64 {
	switch {
	case m.GetCounter() != nil:
		return m.GetCounter().GetValue()
	case m.GetGauge() != nil:
		return m.GetGauge().GetValue()
	}
	return m.GetUntyped().GetValue()
}

// usable reports whether a value is one of CPU time or memory, and not nonsense of a broken node.
func usable(v float64) bool { return v >= 0 && v < maxBytes }

// timeOf returns when a metric was measured.
func timeOf(m *dto.Metric, now time.Time) time.Time {
	if ms := m.GetTimestampMs(); ms > 0 && ms < math.MaxInt64/1_000_000 {
		return time.UnixMilli(ms)
	}
	return now
}
