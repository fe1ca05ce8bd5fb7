package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sampan-io/sampan/client"
)

// An access is what the parts of a node have of the API server and of its certificate authority, whether they are in this
// process or on another machine.
type access struct {
	node    func(name string) client.Interface // as a node
	proxy   client.Interface                   // as its service proxy
	serving func(name string, addresses []netip.Addr) func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	pool    func() *x509.CertPool            // of clients
	measure func(prometheus.Collector) error // has metrics served
	ports   []int32                          // of the API server, if it is on this host
}

// local is the access to the API server of this process.
func (c *cluster) local(p *controlPlane) access {
	return access{
		node:    func(name string) client.Interface { return p.as("system:node:"+name, "system:nodes") },
		proxy:   p.as("system:kube-proxy"),
		serving: c.servingCertificate,
		pool:    c.pool,
		measure: func(m prometheus.Collector) error { return p.server.Measure(m) },
		ports:   []int32{int32(p.port)},
	}
}
