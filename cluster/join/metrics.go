package join

import (
	"crypto/tls"
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// renewals measures the renewals of a certificate.
type renewals struct {
	errors prometheus.Counter
	lived  prometheus.Histogram // of former certificates, in seconds; nil: it is not measured
}

// renewed records that a certificate was replaced; old is nil if it is the first one.
func (r *renewals) renewed(old *tls.Certificate, now time.Time) {
	if r.lived != nil && old != nil {
		r.lived.Observe(now.Sub(old.Leaf.NotBefore).Seconds())
	}
}

func newRenewals() (client, serving renewals) {
	counter := func(name string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Subsystem: "kubelet", Name: name, Help: "Renewals of the certificate of the node that failed."})
	}
	const hour, day = 3600, 86400
	client = renewals{errors: counter("certificate_manager_client_expiration_renew_errors")}
	return client, renewals{errors: counter("server_expiration_renew_errors"), lived: prometheus.NewHistogram(prometheus.HistogramOpts{
		Subsystem: "kubelet", Name: "certificate_manager_server_rotation_seconds", Help: "How long serving certificates of the node were used.",
		Buckets: []float64{60, hour, 4 * hour, day, 7 * day, 30 * day, 90 * day, 180 * day, 360 * day, 1440 * day},
	})}
}

// Metrics returns the metrics of the certificates, and of the requests of clients with them, under the names of upstream's kubelet.
func (c *Certificates) Metrics() []prometheus.Collector {
	left := func(name, help string, of *atomic.Pointer[tls.Certificate]) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Subsystem: "kubelet", Name: name, Help: help}, func() float64 {
			if cert := of.Load(); cert != nil {
				return math.Trunc(time.Until(cert.Leaf.NotAfter).Seconds())
			}
			return math.Inf(1)
		})
	}
	return []prometheus.Collector{
		left("certificate_manager_client_ttl_seconds", "How long the client certificate of the node is still valid, in seconds.", &c.client),
		left("certificate_manager_server_ttl_seconds", "How long the serving certificate of the node is still valid, in seconds.", &c.serving),
		c.clientRenewals.errors, c.servingRenewals.errors, c.servingRenewals.lived, c.requests.total, c.requests.took,
	}
}
