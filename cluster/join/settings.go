package join

import (
	"fmt"

	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/dns"
)

// Names of ConfigMaps and of a key in the first one.
const (
	ClusterInfo   = "cluster-info"   // in kube-public, as kubeadm has it
	KubeconfigKey = "kubeconfig"     // in ClusterInfo
	SettingsName  = "sampan-cluster" // in kube-system
)

// Settings are the settings of a cluster that its nodes need.
type Settings struct {
	Pods     local.Pair // of all nodes
	Services local.Pair
	Domain   string // of cluster DNS
	DNS      string // where the name server of the first node listens, see [local.Settings]
	CA       []byte // certificates of the authority, in PEM
}

// Keys of the ConfigMap.
const (
	podsKey     = "podNetwork"
	servicesKey = "serviceNetwork"
	domainKey   = "clusterDomain"
	dnsKey      = "clusterDNSListen"
	caKey       = "ca.crt"
)

// Data returns the contents of the ConfigMap.
func (s Settings) Data() map[string]string {
	return map[string]string{podsKey: s.Pods.String(), servicesKey: s.Services.String(), domainKey: s.Domain, dnsKey: s.DNS, caKey: string(s.CA)}
}

// ParseSettings reads the contents of the ConfigMap.
func ParseSettings(data map[string]string) (s Settings, err error) {
	s.Domain, s.DNS, s.CA = data[domainKey], data[dnsKey], []byte(data[caKey])
	for key, to := range map[string]*local.Pair{podsKey: &s.Pods, servicesKey: &s.Services} {
		if *to, err = local.ParsePair(data[key]); err != nil {
			return Settings{}, fmt.Errorf("the ConfigMap kube-system/%s: %s: %w", SettingsName, key, err)
		}
	}
	if _, err := pool(s.CA); err != nil {
		return Settings{}, fmt.Errorf("the ConfigMap kube-system/%s: %s: %w", SettingsName, caKey, err)
	}
	return s, nil
}

// Join returns the settings of a node: the ones that it was asked to join with, and the ones of the cluster.
func (s Settings) Join(asked local.Settings) local.Settings {
	asked.Pods, asked.Services, asked.ClusterDomain = s.Pods, s.Services, s.Domain
	if s.DNS == dns.None {
		asked.DNSListen = dns.None
	}
	return asked
}
