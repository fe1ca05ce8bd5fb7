package session

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
)

// A server is what flags say of it, in place of the kubeconfig. The names are kubectl's.
type server struct {
	url       string
	cluster   string // of the kubeconfig
	authority string // path of a file
	name      string // in its certificate
	insecure  bool
}

func (s *server) addFlags(f *pflag.FlagSet) {
	f.StringVarP(&s.url, "server", "s", "", "address and port of the API server, in place of the kubeconfig's")
	f.StringVar(&s.cluster, "cluster", "", "cluster of the kubeconfig to use, in place of the context's")
	f.StringVar(&s.authority, "certificate-authority", "", "file with the certificate of the server's authority")
	f.StringVar(&s.name, "tls-server-name", "", "name that the server's certificate has, if it is not that of its address")
	f.BoolVar(&s.insecure, "insecure-skip-tls-verify", false, "do not ask whether the server is the one that is meant: whoever is in between can read everything")
}

func (s *server) check() error {
	if s.insecure && s.authority != "" {
		return errors.New("--insecure-skip-tls-verify and --certificate-authority contradict each other: leave out one")
	}
	if s.url == "" {
		return nil
	}
	u, err := url.Parse(s.url)
	switch {
	case err != nil:
		return fmt.Errorf("--server: %w", err)
	case u.Scheme == "" || u.Host == "":
		// kubectl takes a host alone for plain HTTP, and so does a typing error.
		return fmt.Errorf("--server: %q is no address of a server, want one such as https://192.0.2.1:6443", s.url)
	case u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("--server: %q has the scheme %q, want https or http", s.url, u.Scheme)
	}
	return nil
}

func (s *server) override(o *clientcmd.ConfigOverrides) {
	o.ClusterInfo.Server, o.Context.Cluster = s.url, s.cluster
	o.ClusterInfo.CertificateAuthority, o.ClusterInfo.TLSServerName = s.authority, s.name
	o.ClusterInfo.InsecureSkipTLSVerify = s.insecure
}

// A credential is what flags say of who asks, in place of the kubeconfig.
type credential struct {
	user             string // of the kubeconfig
	token            string
	certificate, key string // paths of files

	as, asUID string
	asGroups  []string
}

func (c *credential) addFlags(f *pflag.FlagSet) {
	f.StringVar(&c.user, "user", "", "user of the kubeconfig to be, in place of the context's")
	f.StringVar(&c.token, "token", "", "bearer token for the server")
	f.StringVar(&c.certificate, "client-certificate", "", "file with a certificate for the server")
	f.StringVar(&c.key, "client-key", "", "file with the key of --client-certificate")
	f.StringVar(&c.as, "as", "", "user to act as, such as system:serviceaccount:NAMESPACE:NAME")
	f.StringArrayVar(&c.asGroups, "as-group", nil, "group to act as, beside --as; may be repeated")
	f.StringVar(&c.asUID, "as-uid", "", "UID to act as, beside --as")
}

func (c *credential) check() error {
	switch {
	case c.as == "" && (c.asUID != "" || len(c.asGroups) > 0):
		return errors.New("--as-group and --as-uid go with --as: name the user, too")
	case (c.certificate == "") != (c.key == ""):
		return errors.New("--client-certificate and --client-key go together: name both files")
	}
	return nil
}

func (c *credential) override(o *clientcmd.ConfigOverrides) {
	o.Context.AuthInfo = c.user
	o.AuthInfo.Token = c.token
	o.AuthInfo.ClientCertificate, o.AuthInfo.ClientKey = c.certificate, c.key
	o.AuthInfo.Impersonate, o.AuthInfo.ImpersonateUID, o.AuthInfo.ImpersonateGroups = c.as, c.asUID, c.asGroups
}
