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
	f.StringVarP(&s.url, "server", "s", "", "address and port of the API server, instead of the kubeconfig's")
	f.StringVar(&s.cluster, "cluster", "", "kubeconfig cluster to use, instead of the context's")
	f.StringVar(&s.authority, "certificate-authority", "", "file with the certificate of the server's certificate authority")
	f.StringVar(&s.name, "tls-server-name", "", "server name to check the server's certificate against (default: the host of the server's address)")
	f.BoolVar(&s.insecure, "insecure-skip-tls-verify", false, "do not check the server's certificate; this makes the connection insecure")
}

func (s *server) check() error {
	if s.insecure && s.authority != "" {
		return errors.New("--insecure-skip-tls-verify and --certificate-authority are mutually exclusive")
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
		return fmt.Errorf("--server: must be a URL such as https://192.0.2.1:6443, got %q", s.url)
	case u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("--server: the scheme of %q must be https or http, got %q", s.url, u.Scheme)
	}
	return nil
}

func (s *server) override(o *clientcmd.ConfigOverrides) {
	o.ClusterInfo.Server, o.Context.Cluster = s.url, s.cluster
	o.ClusterInfo.CertificateAuthority, o.ClusterInfo.TLSServerName = s.authority, s.name
	o.ClusterInfo.InsecureSkipTLSVerify = s.insecure
}

// A credential is the user and the impersonation of the flags, which override the kubeconfig's.
type credential struct {
	user             string // of the kubeconfig
	token            string
	certificate, key string // paths of files

	as, asUID string
	asGroups  []string
}

func (c *credential) addFlags(f *pflag.FlagSet) {
	f.StringVar(&c.user, "user", "", "kubeconfig user to use, instead of the context's")
	f.StringVar(&c.token, "token", "", "bearer token for authentication to the API server")
	f.StringVar(&c.certificate, "client-certificate", "", "file with a client certificate for TLS")
	f.StringVar(&c.key, "client-key", "", "file with the key of --client-certificate")
	f.StringVar(&c.as, "as", "", "user to impersonate, such as system:serviceaccount:NAMESPACE:NAME")
	f.StringArrayVar(&c.asGroups, "as-group", nil, "group to impersonate, together with --as; may be repeated")
	f.StringVar(&c.asUID, "as-uid", "", "UID to impersonate, together with --as")
}

func (c *credential) check() error {
	switch {
	case c.as == "" && (c.asUID != "" || len(c.asGroups) > 0):
		return errors.New("--as-group and --as-uid require --as")
	case (c.certificate == "") != (c.key == ""):
		return errors.New("--client-certificate and --client-key must be specified together")
	}
	return nil
}

func (c *credential) override(o *clientcmd.ConfigOverrides) {
	o.Context.AuthInfo = c.user
	o.AuthInfo.Token = c.token
	o.AuthInfo.ClientCertificate, o.AuthInfo.ClientKey = c.certificate, c.key
	o.AuthInfo.Impersonate, o.AuthInfo.ImpersonateUID, o.AuthInfo.ImpersonateGroups = c.as, c.asUID, c.asGroups
}
