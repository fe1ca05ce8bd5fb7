package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/cluster/pki"
	"github.com/sampan-io/sampan/node"
	"github.com/sampan-io/sampan/simulation/simulated"
)

// startNodes starts the node agents, each with the rights of its node alone, and
// blocks until all are Ready.
func (p *Plane) startNodes() {
	p.t.Helper()
	log, err := os.Create(p.file("nodes.log"))
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var crew sync.WaitGroup
	p.t.Cleanup(func() {
		cancel()
		crew.Wait()
		_ = log.Close()
		if p.t.Failed() {
			p.t.Logf("the end of the log of the nodes:\n%s", tail(log.Name()))
		}
	})
	var ready []<-chan struct{}
	for i := range p.opts.Nodes {
		n, err := p.newNode(fmt.Sprintf("node-%d", i), i, slog.New(slog.NewTextHandler(log, nil)))
		if err != nil {
			p.t.Fatal(err)
		}
		ready = append(ready, n.Ready())
		crew.Go(func() {
			if err := n.Run(ctx); err != nil {
				p.t.Errorf("node-%d: %v", i, err)
			}
		})
	}
	for _, r := range ready {
		<-r
	}
}

func (p *Plane) newNode(name string, i int, log *slog.Logger) (*node.Node, error) {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	subject := pki.Subject{CommonName: "system:node:" + name, Organizations: []string{"system:nodes"}, DNSNames: []string{name}, IPs: []net.IP{loopback.AsSlice()}}
	cfg, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig(name, subject))
	if err != nil {
		return nil, err
	}
	api, err := client.NewREST(cfg, client.RESTOptions{UserAgent: "sampan-node"})
	if err != nil {
		return nil, err
	}
	network := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(i), 0}), 24)
	rt, err := simulated.New(simulated.Options{PodCIDRs: []netip.Prefix{network}})
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp4", netip.AddrPortFrom(loopback, 0).String()) // it blocks for nothing
	if err != nil {
		return nil, err
	}
	serving := p.authority.Renewed(subject)
	return node.New(node.Options{
		Client: api, Name: name, Runtime: rt,
		Listeners: []net.Listener{l}, TLS: &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: serving.Server},
		ClientCAs: func() *x509.CertPool { return p.authority.Pool() },
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: loopback.String()}, {Type: corev1.NodeHostName, Address: name}},
		PodCIDRs:  []string{network.String()}, LogDir: p.file("logs-" + name), DrainPause: -1, Log: log,
	})
}
