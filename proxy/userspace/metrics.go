package userspace

import (
	"cmp"
	"maps"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sampan-io/sampan/proxy"
)

// counters are those of one pool. Counting needs no lookup. They end with the pool, so a deleted
// Service has no series.
type counters struct {
	connections, refused, failures, retries, dropped atomic.Uint64
	open                                             atomic.Int64
	bytes                                            [2]atomic.Uint64 // by the side that they come from
	dials                                            histogram
}

// dialBounds are the upper bounds of the buckets, in seconds: from the time of a connection on the
// node to that of all rounds.
var dialBounds = [...]float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}

type histogram struct {
	buckets [len(dialBounds) + 1]atomic.Uint64
	nanos   atomic.Int64
}

func (h *histogram) observe(d time.Duration) {
	i := 0
	for i < len(dialBounds) && d.Seconds() > dialBounds[i] {
		i++
	}
	h.buckets[i].Add(1)
	h.nanos.Add(int64(d))
}

// A serviceKey identifies the series of a port: users see pools of both families as one port.
type serviceKey struct{ namespace, name, port, protocol string }

// sums are those of the pools of one port.
type sums struct {
	connections, refused, failures, retries, dropped uint64
	open                                             int64
	bytes                                            [2]uint64
	buckets                                          [len(dialBounds) + 1]uint64
	nanos                                            int64
}

func (s *sums) add(c *counters) {
	s.connections += c.connections.Load()
	s.refused += c.refused.Load()
	s.failures += c.failures.Load()
	s.retries += c.retries.Load()
	s.dropped += c.dropped.Load()
	s.open += c.open.Load()
	s.nanos += c.dials.nanos.Load()
	for i := range s.bytes {
		s.bytes[i] += c.bytes[i].Load()
	}
	for i := range s.buckets {
		s.buckets[i] += c.dials.buckets[i].Load()
	}
}

// A collector collects the counters of all pools.
type collector struct {
	f                                                             *Forwarder
	connections, open, refused, bytes, failures, retries, dropped *prometheus.Desc
	dials                                                         *prometheus.Desc
	limit, limited                                                *prometheus.Desc // of Services
}

// Collectors returns the forwarder's metrics.
func (f *Forwarder) Collectors() []prometheus.Collector {
	desc := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc("sampan_proxy_"+name, help, append(proxy.PortLabels[:4:4], more...), nil)
	}
	ofService := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("sampan_proxy_"+name, help, []string{"namespace", "service"}, nil)
	}
	return []prometheus.Collector{&collector{
		f:           f,
		connections: desc("relayed_connections_total", "Connections (and flows of UDP) that were relayed in userspace mode."),
		open:        desc("connections_open", "Connections (and flows of UDP) to a Service that are open now."),
		refused:     proxy.RefusedDesc("relay"), // there were too many connections, or no backend answered
		bytes:       desc("relayed_bytes_total", "Bytes that were relayed in userspace mode, to backends (in) and from them (out), without headers.", "direction"),
		failures:    desc("dial_failures_total", "Tries to reach a backend that failed."),
		retries:     desc("dial_retries_total", "Tries to reach a backend that were not the first of their connection."),
		dropped:     desc("packets_dropped_total", "Packets of UDP that were not carried."),
		dials:       desc("dial_duration_seconds", "Time from a client's connection until a backend answered."),
		limit:       ofService("connections_limit", "Connections of TCP that a Service may have at a time in userspace mode, all its ports together."),
		limited:     ofService("connections_limited_total", "Connections of TCP that were refused because the Service had as many as it may have."),
	}}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.connections, c.open, c.refused, c.bytes, c.failures, c.retries, c.dropped, c.dials, c.limit, c.limited} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	all := map[serviceKey]*sums{}
	c.f.mu.Lock()
	for _, p := range c.f.pools {
		k := serviceKey{p.id.Service.Namespace, p.id.Service.Name, p.id.Port, string(p.id.Protocol)}
		all[k] = cmp.Or(all[k], &sums{})
		all[k].add(&p.count)
	}
	budgets := maps.Clone(c.f.budgets)
	c.f.mu.Unlock()
	for service, b := range budgets {
		if most := b.most.Load(); most > 0 { // 0 if it has no TCP port
			to <- prometheus.MustNewConstMetric(c.limit, prometheus.GaugeValue, float64(most), service.Namespace, service.Name)
			to <- prometheus.MustNewConstMetric(c.limited, prometheus.CounterValue, float64(b.limited.Load()), service.Namespace, service.Name)
		}
	}
	for k, s := range all {
		labels := []string{k.namespace, k.name, k.port, k.protocol}
		counter := func(d *prometheus.Desc, n uint64, more ...string) {
			to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), append(labels[:4:4], more...)...)
		}
		counter(c.connections, s.connections)
		counter(c.refused, s.refused)
		counter(c.bytes, s.bytes[clientSide], "in")
		counter(c.bytes, s.bytes[serverSide], "out")
		counter(c.failures, s.failures)
		counter(c.retries, s.retries)
		to <- prometheus.MustNewConstMetric(c.open, prometheus.GaugeValue, float64(s.open), labels...)
		if k.protocol == "UDP" {
			counter(c.dropped, s.dropped)
			continue
		}
		total, buckets := uint64(0), make(map[float64]uint64, len(dialBounds))
		for i, bound := range dialBounds {
			total += s.buckets[i]
			buckets[bound] = total
		}
		total += s.buckets[len(dialBounds)]
		to <- prometheus.MustNewConstHistogram(c.dials, total, time.Duration(s.nanos).Seconds(), buckets, labels...)
	}
}
