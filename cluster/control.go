package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/admission/policies"
	"github.com/sampan-io/sampan/apiserver/aggregation"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/bootstrap"
	"github.com/sampan-io/sampan/apiserver/definitions"
	"github.com/sampan-io/sampan/apiserver/discovery"
	"github.com/sampan-io/sampan/apiserver/follow"
	"github.com/sampan-io/sampan/apiserver/forward"
	"github.com/sampan-io/sampan/apiserver/httpserver"
	"github.com/sampan-io/sampan/apiserver/kubelet"
	"github.com/sampan-io/sampan/apiserver/openapi"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/apiserver/past"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/apiserver/rbac/bootstrappolicy"
	"github.com/sampan-io/sampan/apiserver/usage"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/kinds"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/cluster/pki"
	"github.com/sampan-io/sampan/controller/manager"
	"github.com/sampan-io/sampan/internal/memory"
	"github.com/sampan-io/sampan/simulation"
	"github.com/sampan-io/sampan/store"
)

// KubernetesVersion is the version of the Kubernetes API that is served.
const KubernetesVersion = "v1.37.0"

// ServerVersion is the version of the API server, as its path /version has it.
const ServerVersion = KubernetesVersion + ownVersion

// An in-process client is the same to a worker as one over HTTPS.
var _ client.Interface = (*apiserver.Local)(nil)

// A controlPlane is the store and the API server on it.
type controlPlane struct {
	catalog     *catalog.Catalog
	builtIn     *catalog.Snapshot // the kinds that every cluster has
	aggregator  *aggregation.Aggregator
	store       *store.Store
	server      *apiserver.Server
	bootstrap   *bootstrap.Reconciler
	policy      *rbac.Policy             // follows the stored roles and bindings
	roles       []bootstrappolicy.Change // to the stored roles, so that they are those of every cluster
	credentials *credentials
	webhooks    *admissionWebhooks
	definitions *definitions.Follower // of custom resources
	port        int

	admissionPolicies *policies.Set // follows the stored admission policies
}

func (p *controlPlane) url() string { return "https://127.0.0.1:" + strconv.Itoa(p.port) }

// as returns a client that acts as a user in the given groups.
func (p *controlPlane) as(name string, groups ...string) client.Interface {
	return p.server.As(auth.User{Name: name, Groups: append(groups, "system:authenticated")})
}

// asAccount returns a client that acts as a service account of kube-system, as which upstream's controllers
// have their roles.
func (p *controlPlane) asAccount(name string) client.Interface {
	return p.server.As(accountUser(name))
}

// aggregate follows the servers of other groups until ctx is over.
func (p *controlPlane) aggregate(ctx context.Context) error {
	return p.aggregator.Run(ctx, p.as("system:apiserver", auth.GroupMasters))
}

// accountUser is the user that such a service account is.
func accountUser(name string) auth.User {
	return auth.User{
		Name:   auth.ServiceAccountUser("kube-system", name),
		Groups: []string{auth.GroupServiceAccounts, auth.GroupServiceAccounts + ":kube-system", "system:authenticated"},
	}
}

// newControlPlane makes the store and the API server on it, which serves at the listeners; if it fails it closes
// them. The first one has the port of the API server.
func (c *cluster) newControlPlane(ctx context.Context, backend store.Backend, listeners []net.Listener) (_ *controlPlane, err error) {
	defer func() {
		if err != nil {
			for _, l := range listeners {
				_ = l.Close()
			}
		}
	}()
	port := listeners[0].Addr().(*net.TCPAddr).Port
	p := &controlPlane{port: port}
	if p.catalog, err = catalog.New(kinds.All()); err != nil {
		return nil, err
	}
	p.builtIn = p.catalog.Snapshot()
	loader := apiserver.NewLoader(p.catalog)
	bounds := c.storeMemory()
	if m, ok := backend.(store.Measurer); ok {
		if size, err := m.Measure(math.MaxInt64); err == nil { // an error comes from Open again
			memory.Load(uint64(size), headroom)
		}
	}
	p.store, err = store.Open(ctx, backend, store.Options{
		Quota: bounds.quota, LoadLimit: bounds.load,
		Decode: c.decrypting(loader), Recall: c.recalling(apiserver.NewLoader(p.catalog)), Seal: c.encryption.Seal, Terms: apiserver.Terms(p.catalog), Claims: apiserver.Claims(p.catalog),
		TTL:     apiserver.TTL(p.catalog, time.Duration(cmp.Or(c.Settings.EventTTL, local.DefaultEventTTL))),
		Restate: apiserver.Restate,
		Notify:  c.notices.add, Written: c.Process.activity.Note, Log: c.Log,
	})
	if err != nil {
		return nil, bounds.explain(err, c.Profile.DataDir)
	}
	if err := c.loadDefinitions(p); err != nil {
		return nil, err
	}
	loader.Report(ctx, p.catalog, c.Log)
	c.startEncryption(ctx, p.store)
	if err := p.loadPolicy(ctx); err != nil {
		return nil, err
	}
	if p.server, err = c.newServer(ctx, p, listeners); err != nil {
		return nil, err
	}
	p.definitions.Use(p.server.As(auth.User{Name: "system:apiserver", Groups: []string{auth.GroupMasters}}), p.server.Instances())
	if c.names, err = c.listenDNS(ctx); err != nil {
		return nil, err
	}
	keep := bootstrap.Options{API: p.server.As(auth.User{Name: "system:apiserver", Groups: []string{"system:masters"}}).Unseen(), ServiceNetworks: c.Settings.Services.All(), Port: int32(port), Roles: p.roles, Log: c.Log}
	if at := c.hostAddresses(); len(at) > 0 {
		keep.Endpoints = at[:1]
	}
	keep.Published = c.forMembers(p)
	keep.Authentication = func() map[string]string { return c.published(p.credentials) }
	keep.DNS = c.names.endpoints(c.Settings.Services)
	p.roles = nil // they are needed once
	p.bootstrap, err = bootstrap.New(keep)
	return p, err
}

// loadPolicy makes the policy of the stored roles and bindings. The roles of every cluster count from
// the beginning, so that no component is refused while they are being written.
func (p *controlPlane) loadPolicy(ctx context.Context) error {
	stored, err := follow.StoredPolicy(ctx, operation.NewReader(p.catalog, p.store))
	if err != nil {
		return err
	}
	p.roles, p.policy = bootstrappolicy.Reconcile(stored, bootstrappolicy.All()), rbac.NewPolicy(stored)
	for _, change := range p.roles {
		p.policy.Set(change.Object)
	}
	return nil
}

// newServer wires the API server: who asks, what they may do, what is changed or
// refused on the way in, and the streams behind nodes and pods.
func (c *cluster) newServer(ctx context.Context, p *controlPlane, listeners []net.Listener) (*apiserver.Server, error) {
	objects := operation.NewReader(p.catalog, p.store)
	credentials, err := c.newCredentials(objects)
	if err != nil {
		return nil, err
	}
	p.credentials = credentials
	tokens := credentials.tokens
	addresses, err := admission.NewServiceAddresses(admission.AddressesOptions{Reader: objects, Networks: c.Settings.Services.All(), Own: c.ownPorts(int32(p.port))})
	if err != nil {
		return nil, err
	}
	podSecurity, err := admission.NewPodSecurity(objects)
	if err != nil {
		return nil, err
	}
	// It is no administrator: a node says itself where its kubelet listens, and could name this server.
	toNodes := c.authority.Renewed(pki.Subject{CommonName: "kube-apiserver-kubelet-client"})
	nodes, err := kubelet.New(kubelet.Options{
		TLS:     &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: c.authority.Pool(), GetClientCertificate: toNodes.Client},
		RootCAs: c.authority.Pool,
		// A node writes its address itself, and gets a certificate for its name only.
		ServerName: func(n *corev1.Node) string { return n.Name },
		Objects:    objects,
		Local:      c.agents.dial,
		Foreign:    unverified,
		Absent:     func(n *corev1.Node) bool { return c.hasFleet() && simulation.Simulated(n) },
		Log:        c.Log,
	})
	if err != nil {
		return nil, err
	}
	forwarder, err := forward.New(forward.Options{
		Objects: objects,
		Kubelet: func(node *corev1.Node) (k forward.Kubelet, err error) {
			k.Host, k.Port, k.Transport, k.Verified, err = nodes.Reach(node)
			return k, err
		},
		Fail:   httpserver.WriteError,
		Refuse: c.inventedAddresses(objects),
		Log:    c.Log,
	})
	if err != nil {
		return nil, err
	}
	meter, err := usage.New(usage.Options{Objects: objects, Fetch: c.nodeMetrics(nodes, objects), Log: c.Log})
	if err != nil {
		return nil, err
	}
	authenticator := auth.New(auth.Options{
		ClientCAs: c.pool, Tokens: tokens, Bootstrap: auth.NewBootstrapTokens(objects), Issuers: credentials.issuers,
		FrontProxy: credentials.proxy, Anonymous: credentials.anonymous(c.Settings.Authentication),
	})
	// Clients choose their certificate by the names of these authorities, which stay when their keys are replaced.
	accepted := c.pool().Clone()
	accepted.AppendCertsFromPEM(credentials.proxies.CertificatePEM())
	authorizer := rbac.New(rbac.Options{Policy: p.policy, Objects: objects})
	if p.webhooks, err = c.newWebhooks(objects, authorizer); err != nil {
		return nil, err
	}
	rules := policies.Options{
		Set: policies.NewSet(objects, c.Log), Catalog: p.catalog, Objects: objects, Authorizer: authorizer,
		Types: openapi.NewTypes(p.catalog), Metrics: policies.NewMetrics(), Conditions: p.webhooks.conditions,
	}
	if err := rules.Set.Load(ctx); err != nil { // before the first request
		return nil, err
	}
	p.admissionPolicies = rules.Set
	plugins := admitters{
		objects: objects, catalog: p.catalog, authorizer: authorizer, roles: p.policy, policies: rules, webhooks: p.webhooks,
		podSecurity: podSecurity, addresses: addresses, definitions: p.definitions.Await(),
	}.inOrder()
	if !c.Settings.Controllers.Selection().Selects(manager.NodeLifecycle) {
		// Nothing would remove the taint from nodes that are ready.
		plugins = slices.DeleteFunc(plugins, func(p admission.Plugin) bool { return p == admission.Plugin(admission.TaintNodesByCondition{}) })
	}
	if plugins, err = c.alone.enabled(plugins); err != nil {
		return nil, err
	}
	toServers := c.frontProxy.Renewed(pki.Subject{CommonName: frontProxyClient})
	p.aggregator, err = aggregation.New(ctx, aggregation.Options{
		Catalog: p.catalog, BuiltIn: p.builtIn, Objects: objects, Certificate: toServers.Client,
		Refuse: c.inventedAddresses(objects), Log: c.Log,
	})
	if err != nil {
		return nil, err
	}
	history := past.New(past.Options{
		Store:  p.store,
		Decode: func() func(string, []byte) (store.Value, error) { return c.recalling(apiserver.NewLoader(p.catalog)) },
	})
	server, err := apiserver.New(apiserver.Options{
		Options: httpserver.Options{
			Store:     p.store,
			Catalog:   p.catalog,
			Listeners: listeners,
			TLS: &tls.Config{
				MinVersion:     tls.VersionTLS13,
				GetCertificate: c.serving(),
				ClientAuth:     tls.RequestClientCert,
				ClientCAs:      accepted,
			},
			Auth:       authenticator,
			Authorizer: authorizer,
			Aggregator: p.aggregator,
			Discovery:  discovery.NewAggregated(p.catalog, c.versionInfo(), p.aggregator),
			OpenAPI:    openapi.NewAggregated(p.catalog, ServerVersion, p.aggregator),
			Issuer:     auth.NewMetadata(tokens, c.urlForPods(p)),
			Connect: map[catalog.Handler]httpserver.ConnectHandler{
				catalog.PodLog: func(w http.ResponseWriter, r *http.Request, q httpserver.ConnectRequest) {
					nodes.ServeLogs(w, r, q.Object.(*corev1.Pod))
				},
				catalog.PodExec: func(w http.ResponseWriter, r *http.Request, q httpserver.ConnectRequest) {
					nodes.ServeExec(w, r, q.Object.(*corev1.Pod))
				},
				catalog.PodAttach: func(w http.ResponseWriter, r *http.Request, q httpserver.ConnectRequest) {
					nodes.ServeAttach(w, r, q.Object.(*corev1.Pod))
				},
				catalog.PodPortForward: func(w http.ResponseWriter, r *http.Request, q httpserver.ConnectRequest) {
					nodes.ServePortForward(w, r, q.Object.(*corev1.Pod))
				},
				catalog.NodeProxy: func(w http.ResponseWriter, r *http.Request, q httpserver.ConnectRequest) {
					forwarder.Node(w, r, q.Object.(*corev1.Node), forward.Target{Scheme: q.Scheme, Port: q.Port, Path: q.Path})
				},
				catalog.PodProxy: func(w http.ResponseWriter, r *http.Request, q httpserver.ConnectRequest) {
					forwarder.Pod(w, r, q.Object.(*corev1.Pod), forward.Target{Scheme: q.Scheme, Port: q.Port, Path: q.Path})
				},
				catalog.ServiceProxy: func(w http.ResponseWriter, r *http.Request, q httpserver.ConnectRequest) {
					forwarder.Service(w, r, q.Object.(*corev1.Service), forward.Target{Scheme: q.Scheme, Port: q.Port, Path: q.Path})
				},
			},
			Paths:      c.ownPaths(p),
			Reviewed:   map[string]http.Handler{past.Path: &past.Handler{History: history, Catalog: p.catalog, Authorizer: authorizer, Fail: httpserver.WriteError}},
			Audit:      c.audit,
			Checks:     c.healthChecks(p),
			Version:    KubernetesVersion,
			Flags:      c.Flags,
			Profiling:  c.Settings.Profiling != local.Off,
			RequestLog: httpserver.RequestLog(c.Settings.RequestLog.Effective()),
			Log:        c.Log,
		},
		Admission: plugins,
		Past:      history,
		Issue: map[catalog.Handler]operation.IssueHandler{
			catalog.ServiceAccountToken: func(ctx context.Context, parent catalog.Object, body kruntime.Object) (kruntime.Object, error) {
				return tokens.Request(ctx, parent.GetNamespace(), parent.GetName(), body.(*authenticationv1.TokenRequest))
			},
			catalog.OwnAccess:     operation.Answer(authorizer.MayI),
			catalog.OwnRules:      operation.Answer(authorizer.MyRules),
			catalog.OwnIdentity:   operation.Answer(auth.WhoAmI),
			catalog.Access:        operation.Answer(authorizer.May),
			catalog.LocalAccess:   operation.Answer(authorizer.MayLocally),
			catalog.TokenIdentity: operation.Answer(authenticator.ReviewToken),
		},
		Compute: map[catalog.Handler]operation.ComputeHandler{
			catalog.PodUsage: meter.Pods, catalog.NodeUsage: meter.Nodes, catalog.ComponentHealth: c.components(p.store),
		},
	})
	if err != nil {
		return nil, err
	}
	if err := server.Measure(rules.Metrics); err != nil {
		return nil, err
	}
	addresses.WriteWith(server.As(auth.User{Name: "system:apiserver", Groups: []string{auth.GroupMasters}}))
	return server, nil
}

// urlForPods returns the URL of the API server at an address that pods reach as well, if there is a real node.
func (c *cluster) urlForPods(p *controlPlane) string {
	at := c.hostAddresses()
	if len(at) == 0 {
		return p.url()
	}
	return "https://" + netip.AddrPortFrom(at[0], uint16(p.port)).String()
}

// servingSubject is by what names and addresses clients reach the API server.
func (c *cluster) servingSubject() pki.Subject {
	ips := []net.IP{net.IPv4(127, 0, 0, 1)}
	for _, n := range c.Settings.Services.All() {
		ips = append(ips, n.Addr().Next().AsSlice())
	}
	for _, a := range slices.Concat(c.bridge, c.Settings.Advertised()) {
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

// listen opens the sockets of the API server: on loopback for this host, on
// the bridge for pods, and at the advertised addresses for other machines.
func (c *cluster) listen(ctx context.Context) ([]net.Listener, error) {
	first, err := c.listenLoopback(ctx)
	if err != nil {
		return nil, err
	}
	port := first.Addr().(*net.TCPAddr).Port
	listeners := []net.Listener{first}
	forPods, err := listenOn(ctx, c.bridge, port)
	if err != nil {
		_ = first.Close()
		return nil, fmt.Errorf("listening for pods: %w", err)
	}
	listeners = append(listeners, forPods...)
	for _, a := range c.Settings.Advertised() {
		var lc net.ListenConfig // not freebind: this host must have the address
		l, err := lc.Listen(ctx, "tcp", netip.AddrPortFrom(a, uint16(port)).String())
		if err != nil {
			for _, l := range listeners {
				_ = l.Close()
			}
			return nil, fmt.Errorf("listening for other machines: %w; --advertise-address must be an address of this host", err)
		}
		listeners = append(listeners, l)
	}
	for _, l := range listeners {
		c.Log.Info("API server listening", "address", l.Addr(), "for", "clients with a certificate or token of this cluster")
	}
	return listeners, nil
}

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

// listenLoopback opens the port that was asked for, or else the one that clients know from earlier runs, or else the usual
// one, or else any.
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
	switch last := c.Settings.LastPort; {
	case last == 0 || c.Settings.APIPort != 0:
		c.Settings.LastPort = port
	case last != port:
		c.Log.WarnContext(ctx, "the API server has another port, because another program uses its own one", "port", port, "own", last)
		c.warnings.add(fmt.Sprintf("Port %d of 127.0.0.1, which this cluster had before, is in use by another program. The API server "+
			"has port %d until a start finds that one free: kubeconfigs made earlier do not reach it.", last, port))
	}
	return l, nil
}

// versionInfo returns what /version has. The commit is the version of this program.
func (c *cluster) versionInfo() version.Info {
	return version.Info{
		Major:      "1",
		Minor:      "37",
		GitVersion: ServerVersion,
		GitCommit:  c.Version,
		GoVersion:  runtime.Version(),
		Compiler:   runtime.Compiler,
		Platform:   runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// pool returns the authorities that client certificates are checked against. It is the same until they change.
func (c *cluster) pool() *x509.CertPool {
	if c.alone != nil {
		return c.alone.clients
	}
	return c.authority.Pool()
}

// serving returns the certificate of the API server for HTTPS.
func (c *cluster) serving() func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c.alone != nil {
		return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &c.alone.Certificate, nil }
	}
	return c.authority.Renewed(c.servingSubject()).Server
}
