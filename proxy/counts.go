package proxy

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// PortLabels are those of what is told of each port of a Service, whoever tells it.
var PortLabels = []string{"namespace", "service", "port", "protocol"}

// RefusedDesc describes connections that were refused, for one reason.
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

// counts tells what has come to Services, in either mode: to their frontends. The kernel counts at
// frontends; whose they are the book says. A frontend may go while its Service stays, or change hands:
// what was counted there stays with the Service for as long as that lives.
//
// The kernel is asked when somebody wants to know, and about frontends that go.
type counts struct {
	kernel Kernel
	lives  func(service types.NamespacedName, created time.Time) bool
	log    *slog.Logger

	// mu is held while the kernel answers, which it does from memory: so a frontend is seen either as
	// standing or as gone.
	mu    sync.Mutex
	table *ruleTable                                 // what stands does not change but under mu
	gone  map[types.NamespacedName]map[portKey]Tally // guarded by mu
	born  map[types.NamespacedName]time.Time         // guarded by mu; which Service it is that gone is about
}

// A portKey names a port of a Service to users: that of both families.
type portKey struct{ name, protocol string }

func (c *claim) key(d Frontend) portKey { return portKey{c.port, string(d.Protocol)} }

func newCounts(k Kernel, b *ruleTable, lives func(types.NamespacedName, time.Time) bool, log *slog.Logger) *counts {
	return &counts{kernel: k, lives: lives, log: log, table: b, gone: map[types.NamespacedName]map[portKey]Tally{}, born: map[types.NamespacedName]time.Time{}}
}

// stand notes that what is to stand stands.
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
		c.log.WarnContext(ctx, "reading what was counted at addresses of services that are gone", "err", err)
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

// end forgets a Service that is no more.
func (c *counts) end(service types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(service)
}

func (c *counts) drop(service types.NamespacedName) {
	delete(c.gone, service)
	delete(c.born, service)
}

// sums returns what has come to each port of each Service to which something has.
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
			continue // its end is about to be heard of
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
		c.log.Warn("reading what was counted at addresses of services", "err", err)
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
