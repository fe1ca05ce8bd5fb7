package cluster

import (
	"net"
	"net/netip"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sampan-io/sampan/apiserver/bootstrap"
	"github.com/sampan-io/sampan/cluster/join"
	"github.com/sampan-io/sampan/controller/certificates"
	"github.com/sampan-io/sampan/controller/nodeipam"
	"github.com/sampan-io/sampan/simulation"
)

// advertisedURL returns the URL of the API server for other machines.
func (c *cluster) advertisedURL(p *controlPlane) string {
	return "https://" + net.JoinHostPort(c.Settings.Advertised()[0].String(), strconv.Itoa(p.port))
}

// forMembers returns the data for machines that join, if any can: where the cluster is, in the ConfigMap of kubeadm, which
// bootstrap tokens sign, and how it is made.
func (c *cluster) forMembers(p *controlPlane) []bootstrap.Published {
	if len(c.Settings.Advertised()) == 0 {
		return nil
	}
	return []bootstrap.Published{
		{Namespace: metav1.NamespacePublic, Name: join.ClusterInfo, Data: func() map[string]string {
			info := clientcmdapi.NewConfig()
			info.Clusters[""] = &clientcmdapi.Cluster{Server: c.advertisedURL(p), CertificateAuthorityData: c.authority.CertificatePEM()}
			data, err := clientcmd.Write(*info)
			if err != nil {
				panic(err) // strings always have a form in YAML
			}
			return map[string]string{join.KubeconfigKey: string(data)}
		}},
		{Namespace: metav1.NamespaceSystem, Name: join.SettingsName, Data: func() map[string]string {
			return join.Settings{
				Pods: c.Settings.Pods, Services: c.Settings.Services, Domain: c.domain(), DNS: c.Settings.DNSListen,
				CA: c.authority.CertificatePEM(),
			}.Data()
		}},
	}
}

// podPool returns what nodes get the networks of their pods from. The first part is that of the node of this host.
func (c *cluster) podPool() *nodeipam.Pool {
	p := &nodeipam.Pool{}
	for _, n := range c.Settings.Pods.All() {
		bits := c.Settings.NodeBits(n)
		const most = 16 // bits; more nodes than a cluster has
		p.Networks = append(p.Networks, nodeipam.Network{
			Parts: 1 << min(most, max(0, bits-n.Bits())),
			Part:  func(i int) netip.Prefix { return simulation.NodeNetwork(n, bits, i) },
		})
	}
	if c.real() {
		p.Reserved = c.Settings.NodeNetworks(0)
	}
	return p
}

// servers returns the servers as which no node may answer: the API server, Services and pods.
func (c *cluster) servers() *certificates.Servers {
	subject := c.servingSubject()
	s := &certificates.Servers{Names: slices.Clone(subject.DNSNames), Networks: slices.Concat(c.Settings.Services.All(), c.Settings.Pods.All())}
	for _, ip := range subject.IPs {
		s.Names = append(s.Names, ip.String())
	}
	return s
}
