package local

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Credentials are what a client needs to be somebody in the cluster.
type Credentials struct {
	Server string // URL
	CA     []byte // PEM
	Cert   []byte // PEM
	Key    []byte // PEM
}

// KubeconfigOf returns a kubeconfig with one context.
func (p Profile) KubeconfigOf(c Credentials) *clientcmdapi.Config {
	name := p.Context()
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters[name] = &clientcmdapi.Cluster{Server: c.Server, CertificateAuthorityData: c.CA}
	cfg.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: c.Cert, ClientKeyData: c.Key}
	cfg.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	cfg.CurrentContext = name
	return cfg
}

// Merge writes the context of the profile into the user's kubeconfig (file, or
// if that is empty $KUBECONFIG or ~/.kube/config) and makes it the current one.
// Other contexts stay as they are. It returns the file it wrote.
func (p Profile) Merge(file string) (string, error) {
	own, err := clientcmd.LoadFromFile(p.Kubeconfig())
	if err == nil && (own.Clusters[p.Context()] == nil || own.AuthInfos[p.Context()] == nil || own.Contexts[p.Context()] == nil) {
		err = fmt.Errorf("%s has no context %q", p.Kubeconfig(), p.Context())
	}
	if err != nil {
		return "", fmt.Errorf("reading the cluster's credentials: %w", err)
	}
	return modify(file, func(cfg *clientcmdapi.Config) {
		name := p.Context()
		cfg.Clusters[name] = own.Clusters[name]
		cfg.AuthInfos[name] = own.AuthInfos[name]
		cfg.Contexts[name] = own.Contexts[name]
		// clientcmd writes each of these back to where it came from.
		for _, origin := range []*string{&cfg.Clusters[name].LocationOfOrigin, &cfg.AuthInfos[name].LocationOfOrigin, &cfg.Contexts[name].LocationOfOrigin} {
			*origin = ""
		}
		cfg.CurrentContext = name
	})
}

// Forget takes the context of the profile out of the user's kubeconfig.
func (p Profile) Forget(file string) error {
	_, err := modify(file, func(cfg *clientcmdapi.Config) {
		name := p.Context()
		delete(cfg.Clusters, name)
		delete(cfg.AuthInfos, name)
		delete(cfg.Contexts, name)
		if cfg.CurrentContext == name {
			cfg.CurrentContext = ""
		}
	})
	return err
}

// Mergeable reports what is wrong with the user's kubeconfig (see [Profile.Merge])
// so that nothing can be written to it. One that is not there yet is fine.
func Mergeable(file string) error {
	paths := clientcmd.NewDefaultPathOptions()
	paths.LoadingRules.ExplicitPath = file
	if _, err := paths.GetStartingConfig(); err != nil {
		return fmt.Errorf("reading the kubeconfig, where the cluster's context shall be written: %w; mend it, or name another file with --kubeconfig", err)
	}
	return nil
}

func modify(file string, change func(*clientcmdapi.Config)) (string, error) {
	paths := clientcmd.NewDefaultPathOptions()
	paths.LoadingRules.ExplicitPath = file
	cfg, err := paths.GetStartingConfig()
	if err != nil {
		return "", fmt.Errorf("reading the kubeconfig: %w", err)
	}
	change(cfg)
	if err := clientcmd.ModifyConfig(paths, *cfg, false); err != nil {
		return "", fmt.Errorf("writing the kubeconfig: %w", err)
	}
	if file == "" {
		file = paths.GetDefaultFilename()
	}
	return file, nil
}
