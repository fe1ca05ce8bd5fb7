package aggregation

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/transport"
	registrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/catalog/apiregistration"
	"github.com/sampan-io/sampan/internal/h2"
)

const (
	dialTimeout = 10 * time.Second
	idleTimeout = 90 * time.Second
	idleConns   = 25      // to one address, kept
	mostHeaders = 1 << 20 // bytes of the header of an answer

	// mostRequests is how many requests one APIService may have in flight, watches and streams aside. A server that never answers then keeps so many places of its users, and not all that they have.
	mostRequests = 100

	askTimeout   = 5 * time.Second // for an answer to a question of the Aggregator's own, as upstream's
	largestReply = 8 << 20         // bytes of such an answer

	// largestDocument is the size up to which documents become part of those of this server, which every client reads.
	largestDocument = 1 << 20
)

// A Service is a version of a group that another server serves, as its APIService describes it. It is safe for concurrent use.
// A change of the specification makes another Service.
type Service struct {
	name      string
	gv        schema.GroupVersion
	spec      registrationv1.APIServiceSpec // shared, not changed
	objects   Objects
	via       string
	available atomic.Bool
	at        atomic.Pointer[located] // where the servers were found last; nil before
	requests  atomic.Int64            // in flight, bounded by mostRequests

	transport, upgrades *http.Transport // the second speaks HTTP/1.1 only
	fault               error           // of the specification; then there are no transports
}

// newService returns a Service that is not available yet.
func (a *Aggregator) newService(o *registrationv1.APIService) *Service {
	s := &Service{
		name: o.Name, gv: schema.GroupVersion{Group: o.Spec.Group, Version: o.Spec.Version}, spec: o.Spec, objects: a.opts.Objects, via: a.via,
	}
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: o.Spec.Service.Name + "." + o.Spec.Service.Namespace + ".svc",
		InsecureSkipVerify:   o.Spec.InsecureSkipTLSVerify, // the user asks for it
		GetClientCertificate: a.opts.Certificate,
	}
	if len(o.Spec.CABundle) > 0 {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(o.Spec.CABundle) {
			s.fault = errors.New("unable to load root certificates: unable to parse bytes as PEM block")
			return s
		}
	}
	s.transport = &http.Transport{
		DialContext: a.opts.Dial, TLSClientConfig: c, TLSHandshakeTimeout: dialTimeout,
		IdleConnTimeout: idleTimeout, MaxIdleConnsPerHost: idleConns,
		DisableCompression:     true, // bytes are passed on as they are
		MaxResponseHeaderBytes: mostHeaders,
	}
	s.upgrades = s.transport.Clone()
	s.upgrades.TLSClientConfig.NextProtos = []string{"http/1.1"}
	s.upgrades.DisableKeepAlives = true
	h2.Client(s.transport)
	return s
}

// close gives back the connections that are not in use.
func (s *Service) close() {
	if s.transport != nil {
		s.transport.CloseIdleConnections()
	}
}

// GroupVersion returns the version that the server serves.
func (s *Service) GroupVersion() schema.GroupVersion { return s.gv }

// locate finds the servers.
func (s *Service) locate(ctx context.Context) (located, error) {
	ref := s.spec.Service
	o, err := s.objects.Get(ctx, corev1.SchemeGroupVersion.WithResource("services"), ref.Namespace, ref.Name)
	if apierrors.IsNotFound(err) {
		return locate(ref, nil, nil), nil
	}
	if err != nil {
		return located{}, err
	}
	svc, ok := o.(*corev1.Service)
	if !ok {
		return located{}, fmt.Errorf("service %s/%s cannot be read", ref.Namespace, ref.Name)
	}
	objects, err := s.objects.List(ctx, discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), ref.Namespace, nil)
	if err != nil {
		return located{}, err
	}
	var slices []*discoveryv1.EndpointSlice
	for _, o := range objects {
		if slice, ok := o.(*discoveryv1.EndpointSlice); ok && slice.Labels[discoveryv1.LabelServiceName] == ref.Name {
			slices = append(slices, slice)
		}
	}
	return locate(ref, svc, slices), nil
}

// choose returns the address of a server, a random one of the last search.
func (s *Service) choose() (string, error) {
	at := s.at.Load()
	if at == nil || len(at.addresses) == 0 {
		return "", errNoServer
	}
	return at.addresses[rand.IntN(len(at.addresses))], nil
}

var errNoServer = errors.New("no endpoints available")

// errNotAllowed is the error for addresses that belong to one host and not to the network of the cluster: users can write
// slices and names with any address, and this host's own services trust its processes.
var errNotAllowed = errors.New("address not allowed")

// dial returns the default of Options.Dial.
func dial(refuse func(context.Context, netip.Addr) error) func(ctx context.Context, network, address string) (net.Conn, error) {
	d := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second, ControlContext: checkDialed(refuse)}
	return d.DialContext
}

// checkDialed returns the check of each connection, after names were resolved and before anything is sent.
func checkDialed(refuse func(context.Context, netip.Addr) error) func(context.Context, string, string, syscall.RawConn) error {
	return func(ctx context.Context, _, address string, _ syscall.RawConn) error {
		a, err := netip.ParseAddrPort(address)
		if err != nil || !a.Addr().Unmap().IsGlobalUnicast() {
			return errNotAllowed
		}
		if refuse == nil {
			return nil
		}
		return refuse(ctx, a.Addr().Unmap())
	}
}

// A reply is the answer to a question of the Aggregator's own.
type reply struct {
	code        int
	contentType string
	etag        string
	body        []byte
}

var errTooLarge = fmt.Errorf("the answer is larger than %d bytes", largestReply)

// kubeAggregator is as whom the Aggregator asks, as upstream's does.
var kubeAggregator = &auth.User{Name: "system:kube-aggregator", Groups: []string{auth.GroupMasters}}

// ask asks one server and reads the whole answer. Redirects are not followed.
func (s *Service) ask(ctx context.Context, user *auth.User, method, address, pathAndQuery string, header http.Header) (*reply, error) {
	if s.fault != nil {
		return nil, s.fault
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "https://"+address+pathAndQuery, nil)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		r.Header[name] = values
	}
	transport.SetAuthProxyHeaders(r, user.Name, user.UID, user.Groups, user.Extra)
	r.Header.Set("Via", s.via)
	resp, err := s.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, largestReply+1))
	if err != nil {
		return nil, err
	}
	if len(body) > largestReply {
		return nil, errTooLarge
	}
	return &reply{resp.StatusCode, resp.Header.Get("Content-Type"), resp.Header.Get("ETag"), body}, nil
}

// root returns the path of the version.
func (s *Service) root() string { return "/apis/" + s.gv.Group + "/" + s.gv.Version }

// setCondition returns the status with the condition, and whether that changes it. The time is that of the last change of
// whether the version is available.
func setCondition(o *registrationv1.APIService, c registrationv1.APIServiceCondition) (*registrationv1.APIService, bool) {
	if old := apiregistration.Available(o); old != nil {
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		if *old == c {
			return o, false
		}
		fresh := o.DeepCopy()
		*apiregistration.Available(fresh) = c
		return fresh, true
	}
	fresh := o.DeepCopy()
	fresh.Status.Conditions = append(fresh.Status.Conditions, c)
	return fresh, true
}
