package proxy

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// PortLabels are the labels of all metrics about one port of a Service.
var PortLabels = []string{"namespace", "service", "port", "protocol"}

// RefusedDesc describes the counter of connections that were refused for one reason.
func RefusedDesc(reason string) *prometheus.Desc {
	return prometheus.NewDesc("sampan_proxy_connections_refused_total", "Connections (and flows of UDP) to a Service that were refused or dropped.",
		PortLabels, prometheus.Labels{"reason": reason})
}

var (
	connectionsDesc = prometheus.NewDesc("sampan_proxy_connections_total", "Connections (and flows of UDP) that clients made to a Service by this node.", PortLabels, nil)
	bytesDesc       = prometheus.NewDesc("sampan_proxy_bytes_total", "Bytes of the packets of connections to a Service that carry data, headers included, from clients (in) and to them (out).",
		append(PortLabels[:4:4], "direction"), nil)
	refusedDesc = RefusedDesc("no-endpoints")
	deniedDesc  = RefusedDesc("source")
)

// counts is the metrics of the traffic of Services, in kernel and userspace mode: of their
// frontends. The kernel counts by frontend, and the ruleTable has the owner of each. If a frontend
// is removed while its Service stays, or gets another owner, its count stays with the Service until
// that is deleted.
//
// The kernel's counters are read when metrics are collected and when frontends are removed.
type counts struct {
	kernel Kernel
	lives  func(service types.NamespacedName, created time.Time) bool
	log    *slog.Logger

	// mu is held while the kernel reads its counters, which takes no I/O: so each frontend is
	// either in the ruleTable or in gone, never in both.
	mu    sync.Mutex
	table *ruleTable                                 // done is called with mu held
	gone  map[types.NamespacedName]map[portKey]Tally // guarded by mu; counts of removed frontends
	born  map[types.NamespacedName]time.Time         // guarded by mu; creation times of the Services in gone
}

// A portKey names a port of a Service to users, who see one port for both families.
type portKey struct{ name, protocol string }

func (c *claim) key(d Frontend) portKey { return portKey{c.port, string(d.Protocol)} }

func newCounts(k Kernel, b *ruleTable, lives func(types.NamespacedName, time.Time) bool, log *slog.Logger) *counts {
	return &counts{kernel: k, lives: lives, log: log, table: b, gone: map[types.NamespacedName]map[portKey]Tally{}, born: map[types.NamespacedName]time.Time{}}
}

// commit records that the kernel now has the wanted rules, and keeps the counts of removed
// frontends.
func (c *counts) commit(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := c.table.done()
	if len(left) == 0 {
		return
	}
	frontends := make([]Frontend, 0, len(left))
	for d := range left {
		frontends = append(frontends, d)
	}
	last, err := c.kernel.Forget(ctx, frontends)
	if err != nil && ctx.Err() == nil {
		c.log.WarnContext(ctx, "reading the counters of removed addresses of services", "err", err)
	}
	for d, t := range last {
		was := left[d]
		if !c.lives(was.service, was.created) {
			continue
		}
		if !c.born[was.service].Equal(was.created) {
			c.drop(was.service)
		}
		ports := c.gone[was.service]
		if ports == nil {
			ports = map[portKey]Tally{}
			c.gone[was.service], c.born[was.service] = ports, was.created
		}
		sum := ports[was.key(d)]
		sum.Add(t)
		ports[was.key(d)] = sum
	}
}

// end forgets a deleted Service.
func (c *counts) end(service types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(service)
}

func (c *counts) drop(service types.NamespacedName) {
	delete(c.gone, service)
	delete(c.born, service)
}

// sums returns the traffic of each port of all Services that have received any.
func (c *counts) sums(ctx context.Context) (map[types.NamespacedName]map[portKey]Tally, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	standing, err := c.kernel.Tallies(ctx)
	if err != nil {
		return nil, err
	}
	all := map[types.NamespacedName]map[portKey]Tally{}
	add := func(service types.NamespacedName, k portKey, t Tally) {
		if all[service] == nil {
			all[service] = map[portKey]Tally{}
		}
		sum := all[service][k]
		sum.Add(t)
		all[service][k] = sum
	}
	for d, t := range standing {
		if is := c.table.owner(d); is != nil {
			add(is.service, is.key(d), t)
		}
	}
	for service, ports := range c.gone {
		if !c.lives(service, c.born[service]) {
			continue // the watch event of its deletion comes soon
		}
		for k, t := range ports {
			add(service, k, t)
		}
	}
	return all, nil
}

// Describe implements prometheus.Collector.
func (c *counts) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{connectionsDesc, bytesDesc, refusedDesc, deniedDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *counts) Collect(ch chan<- prometheus.Metric) {
	all, err := c.sums(context.Background()) //nolint:forbidigo // prometheus hands none on; the kernel answers at once
	if err != nil {
		c.log.Warn("reading the counters of addresses of services", "err", err)
		return
	}
	for service, ports := range all {
		for k, t := range ports {
			emit := func(d *prometheus.Desc, n uint64, more ...string) {
				ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), append([]string{service.Namespace, service.Name, k.name, k.protocol}, more...)...)
			}
			emit(connectionsDesc, t.Connections)
			emit(bytesDesc, t.In, "in")
			emit(bytesDesc, t.Out, "out")
			emit(refusedDesc, t.Refused)
			emit(deniedDesc, t.Denied)
		}
	}
}
