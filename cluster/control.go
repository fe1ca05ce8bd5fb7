package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/bootstrap"
	"github.com/sampan-io/sampan/apiserver/discovery"
	"github.com/sampan-io/sampan/apiserver/kubelet"
	"github.com/sampan-io/sampan/apiserver/openapi"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/kinds"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/cluster/pki"
	"github.com/sampan-io/sampan/store"
)

// KubernetesVersion is the version of the Kubernetes API that is served.
const KubernetesVersion = "v1.37.0"

// An in-process client is the same to a worker as one over HTTPS.
var _ client.Interface = (*apiserver.Local)(nil)

// A controlPlane is the store and the API server on it.
type controlPlane struct {
	catalog   *catalog.Catalog
	store     *store.Store
	server    *apiserver.Server
	bootstrap *bootstrap.Reconciler
	port      int
}

func (p *controlPlane) url() string { return "https://127.0.0.1:" + strconv.Itoa(p.port) }

// as returns a client that acts as a user in the given groups.
func (p *controlPlane) as(name string, groups ...string) client.Interface {
	return p.server.As(auth.User{Name: name, Groups: append(groups, "system:authenticated")})
}

func (c *cluster) newControlPlane(ctx context.Context, backend store.Backend) (_ *controlPlane, err error) {
	p := &controlPlane{}
	if p.catalog, err = catalog.New(kinds.All()); err != nil {
		return nil, err
	}
	listeners, port, err := c.listen(ctx)
	if err != nil {
		return nil, err
	}
	p.port = port
	defer func() {
		if err != nil {
			for _, l := range listeners {
				_ = l.Close()
			}
		}
	}()
	loader := apiserver.NewLoader(p.catalog)
	p.store, err = store.Open(ctx, backend, store.Options{
		Decode: loader.Decode, Terms: apiserver.Terms(p.catalog),
		TTL:     apiserver.TTL(p.catalog, time.Duration(cmp.Or(c.Settings.EventTTL, local.DefaultEventTTL))),
		Restate: apiserver.Restate,
		Notify:  c.notices.add, Log: c.Log,
	})
	if err != nil {
		return nil, err
	}
	loader.Report(ctx, c.Log)
	if p.server, err = c.newServer(p, listeners); err != nil {
		return nil, err
	}
	if c.names, err = c.listenDNS(ctx); err != nil {
		return nil, err
	}
	keep := bootstrap.Options{API: p.server.As(auth.User{Name: "system:apiserver", Groups: []string{"system:masters"}}), ServiceNetworks: c.Settings.Services.All(), Port: int32(port), Log: c.Log}
	if len(c.bridge) > 0 {
		keep.Endpoints = c.bridge[:1]
	}
	keep.DNS = c.names.endpoints(c.Settings.Services)
	p.bootstrap, err = bootstrap.New(keep)
	return p, err
}

// newServer wires the API server: who asks, what they may do, what is changed or
// refused on the way in, and the streams behind nodes and pods.
func (c *cluster) newServer(p *controlPlane, listeners []net.Listener) (*apiserver.Server, error) {
	objects := apiserver.NewReader(p.catalog, p.store)
	tokens, err := auth.NewTokens(auth.TokensOptions{Key: c.authority.TokenKey(), Objects: objects, Issuer: "https://kubernetes.default.svc." + c.domain()})
	if err != nil {
		return nil, err
	}
	addresses, err := admission.NewServiceAddresses(admission.AddressesOptions{Reader: objects, Networks: c.Settings.Services.All()})
	if err != nil {
		return nil, err
	}
	podSecurity, err := admission.NewPodSecurity(objects)
	if err != nil {
		return nil, err
	}
	toNodes := c.authority.Renewed(pki.Subject{CommonName: "kube-apiserver-kubelet-client", Organizations: []string{"system:masters"}})
	nodes, err := kubelet.New(kubelet.Options{
		TLS:     &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: c.authority.Pool(), GetClientCertificate: toNodes.Client},
		Objects: objects,
		Foreign: foreignKubelet,
		Log:     c.Log,
	})
	if err != nil {
		return nil, err
	}
	serving := c.authority.Renewed(c.servingSubject())
	authorizer := rbac.New(rbac.Options{Objects: objects})
	return apiserver.New(apiserver.Options{
		Store:     p.store,
		Catalog:   p.catalog,
		Listeners: listeners,
		TLS: &tls.Config{
			MinVersion:     tls.VersionTLS13,
			GetCertificate: serving.Server,
			ClientAuth:     tls.RequestClientCert,
			ClientCAs:      c.authority.Pool(),
		},
		Auth:       auth.New(auth.Options{ClientCAs: c.authority.Pool, Tokens: tokens}),
		Authorizer: authorizer,
		Admission: []admission.Plugin{
			admission.NewNamespaceLifecycle(objects),
			admission.NewServiceAccount(objects),
			admission.NewPriority(objects),
			admission.DefaultTolerationSeconds{},
			admission.NewStorage(objects),
			admission.RuntimeClass{},
			admission.NewNodeRestriction(objects),
			addresses,
			podSecurity,
		},
		Discovery: discovery.New(p.catalog, versionInfo()),
		OpenAPI:   openapi.New(p.catalog, versionInfo().GitVersion),
		Connect: map[catalog.Handler]apiserver.ConnectHandler{
			catalog.PodLog: func(w http.ResponseWriter, r *http.Request, q apiserver.ConnectRequest) {
				nodes.ServeLogs(w, r, q.Object.(*corev1.Pod))
			},
			catalog.NodeProxy: func(w http.ResponseWriter, r *http.Request, q apiserver.ConnectRequest) {
				nodes.ServeProxy(w, r, q.Object.(*corev1.Node), q.Path)
			},
		},
		Issue: map[catalog.Handler]apiserver.IssueHandler{
			catalog.ServiceAccountToken: func(ctx context.Context, parent catalog.Object, body kruntime.Object) (kruntime.Object, error) {
				return tokens.Request(ctx, parent.GetNamespace(), parent.GetName(), body.(*authenticationv1.TokenRequest))
			},
			catalog.OwnAccess:   apiserver.Answer(authorizer.MayI),
			catalog.OwnRules:    apiserver.Answer(authorizer.MyRules),
			catalog.OwnIdentity: apiserver.Answer(auth.WhoAmI),
		},
		Log: c.Log,
	})
}

// servingSubject is by what names and addresses clients reach the API server.
func (c *cluster) servingSubject() pki.Subject {
	ips := []net.IP{net.IPv4(127, 0, 0, 1)}
	for _, n := range c.Settings.Services.All() {
		ips = append(ips, n.Addr().Next().AsSlice())
	}
	for _, a := range c.bridge {
		ips = append(ips, a.AsSlice())
	}
	return pki.Subject{
		CommonName: "kube-apiserver",
		DNSNames:   []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + c.domain()},
		IPs:        ips,
	}
}

// defaultAPIPort is what clients of Kubernetes expect.
const defaultAPIPort = 6443

// listen opens the sockets of the API server: on loopback for this host, and on
// the bridge for pods.
func (c *cluster) listen(ctx context.Context) ([]net.Listener, int, error) {
	first, err := c.listenLoopback(ctx)
	if err != nil {
		return nil, 0, err
	}
	port := first.Addr().(*net.TCPAddr).Port
	listeners := []net.Listener{first}
	forPods, err := listenOn(ctx, c.bridge, port)
	if err != nil {
		_ = first.Close()
		return nil, 0, fmt.Errorf("listening for pods: %w", err)
	}
	listeners = append(listeners, forPods...)
	for _, l := range listeners {
		c.Log.Info("API server listening", "address", l.Addr(), "for", "clients with a certificate or token of this cluster")
	}
	return listeners, port, nil
}

// freebind opens sockets on an address that this host does not have yet: the
// bridge comes up at the same time.
var freebind = net.ListenConfig{Control: func(network, _ string, raw syscall.RawConn) error {
	level, option := unix.SOL_IP, unix.IP_FREEBIND
	if strings.HasSuffix(network, "6") {
		level, option = unix.SOL_IPV6, unix.IPV6_FREEBIND
	}
	var err error
	if ctl := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, 1) }); ctl != nil {
		return ctl
	}
	return err
}}

// listenOn opens a port of each of these addresses.
func listenOn(ctx context.Context, addresses []netip.Addr, port int) ([]net.Listener, error) {
	var all []net.Listener
	for _, a := range addresses {
		l, err := freebind.Listen(ctx, "tcp", netip.AddrPortFrom(a, uint16(port)).String())
		if err != nil {
			for _, l := range all {
				_ = l.Close()
			}
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}

// listenLoopback opens the port that was asked for, or else the one that the clients of
// the last run know, or else the usual one, or else any.
func (c *cluster) listenLoopback(ctx context.Context) (net.Listener, error) {
	ports := []int{c.Settings.APIPort}
	if c.Settings.APIPort == 0 {
		ports = []int{cmp.Or(c.Settings.LastPort, defaultAPIPort), defaultAPIPort, 0}
	}
	var (
		lc  net.ListenConfig
		l   net.Listener
		err error
	)
	for _, port := range ports {
		if l, err = lc.Listen(ctx, "tcp4", "127.0.0.1:"+strconv.Itoa(port)); !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("port %d of 127.0.0.1 is in use by another program; stop it or pass another port with --api-port", c.Settings.APIPort)
	case err != nil:
		return nil, fmt.Errorf("listening for the API: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if last := c.Settings.LastPort; last != 0 && last != port && c.Settings.APIPort == 0 {
		c.Log.WarnContext(ctx, "the API server has a new port, because another program uses the port of the last run", "port", port, "last", last)
	}
	c.Settings.LastPort = port
	return l, nil
}

func versionInfo() version.Info {
	return version.Info{
		Major:      "1",
		Minor:      "37",
		GitVersion: KubernetesVersion + ownVersion,
		GoVersion:  runtime.Version(),
		Compiler:   runtime.Compiler,
		Platform:   runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// pool returns the authority that client certificates are checked against.
func (c *cluster) pool() *x509.CertPool { return c.authority.Pool() }
