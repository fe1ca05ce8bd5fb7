package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/channels"
)

// A Lookup reads stored objects. One that does not exist is a NotFound status
// error.
type Lookup interface {
	Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (catalog.Object, error)
}

// Options configures a [Client]. TLS and Objects are required.
type Options struct {
	// TLS has the certificate that the API server shows to nodes
	// (GetClientCertificate, so that it can be renewed) and the authority that it
	// knows them by.
	TLS *tls.Config

	// RootCAs returns the authority that nodes are known by, if it may change. Nil means that of TLS.
	RootCAs func() *x509.CertPool

	// Foreign reports whether an administrator has said that the certificate of a node's kubelet is not verified, see
	// docs/decisions/0023. Nil means that all are.
	Foreign func(*corev1.Node) bool

	// ServerName returns the name that the certificate of a node's kubelet must be for. Nil means the address of the
	// node, which the node itself writes: one node could then write that of another, and answer for it.
	ServerName func(*corev1.Node) string

	// Absent reports whether a node has no kubelet: requests to it are refused, and nothing is dialed. Nil means that
	// all have one.
	Absent func(*corev1.Node) bool

	// Local returns how to connect to the kubelet of a node that is in this process, or nil if it is not. Such a
	// connection needs no TLS: the kubelet knows that it comes from the API server. Nil means that there are none.
	Local func(*corev1.Node) func(context.Context) (net.Conn, error)

	// Objects finds the node of a pod.
	Objects Lookup

	DialTimeout time.Duration // for the connection and the TLS handshake each; 0 means 10 seconds
	Log         *slog.Logger  // nil means slog.Default
}

// A Client reaches nodes. It is safe for concurrent use.
type Client struct {
	opts Options
	own  *http.Transport // verifies the node
	// foreign does not verify the node.
	foreign *http.Transport
	sockets channels.Server
}

// New returns a client.
func New(opts Options) (*Client, error) {
	if opts.TLS == nil || opts.Objects == nil {
		return nil, errors.New("kubelet: Options needs TLS and Objects")
	}
	if opts.DialTimeout == 0 {
		opts.DialTimeout = 10 * time.Second
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	if opts.Local == nil {
		opts.Local = func(*corev1.Node) func(context.Context) (net.Conn, error) { return nil }
	}
	if opts.Foreign == nil {
		opts.Foreign = func(*corev1.Node) bool { return false }
	}
	verify, skip := opts.TLS.Clone(), opts.TLS.Clone()
	skip.InsecureSkipVerify = true
	return &Client{opts: opts, own: newTransport(opts, verify), foreign: newTransport(opts, skip)}, nil
}

func newTransport(opts Options, config *tls.Config) *http.Transport {
	dialer := &net.Dialer{Timeout: opts.DialTimeout, KeepAlive: 30 * time.Second}
	t := &http.Transport{
		DialContext:         dialer.DialContext,
		TLSClientConfig:     config,
		TLSHandshakeTimeout: opts.DialTimeout,
		DisableKeepAlives:   true,
		DisableCompression:  true, // bytes are passed on as they are
	}
	if opts.RootCAs != nil && !config.InsecureSkipVerify {
		t.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			current := config.Clone()
			current.RootCAs = opts.RootCAs()
			ctx, cancel := context.WithTimeout(ctx, 2*opts.DialTimeout)
			defer cancel()
			return (&tls.Dialer{NetDialer: dialer, Config: current}).DialContext(ctx, network, address)
		}
	}
	return t
}

// to returns the transport to the kubelet of a node.
func (c *Client) to(node *corev1.Node) *http.Transport {
	if dial := c.opts.Local(node); dial != nil {
		return c.localTransport(dial)
	}
	if c.opts.Foreign(node) {
		return c.foreign
	}
	if c.opts.ServerName != nil {
		verify := c.opts.TLS.Clone()
		verify.ServerName = c.opts.ServerName(node)
		return newTransport(c.opts, verify)
	}
	return c.own
}

// unverified is [Client.to] without a verification of the kubelet's certificate.
func (c *Client) unverified(node *corev1.Node) *http.Transport {
	if dial := c.opts.Local(node); dial != nil {
		return c.localTransport(dial)
	}
	return c.foreign
}

// localTransport returns a transport to a kubelet in this process. It keeps no connections, so it costs little to make
// one for each request.
func (c *Client) localTransport(dial func(context.Context) (net.Conn, error)) *http.Transport {
	return &http.Transport{
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, c.opts.DialTimeout)
			defer cancel()
			return dial(ctx)
		},
		DisableKeepAlives:  true,
		DisableCompression: true, // as in newTransport
	}
}

// addressTypes are the addresses of a node by which it is reached, best first.
var addressTypes = []corev1.NodeAddressType{
	corev1.NodeInternalIP, corev1.NodeInternalDNS, corev1.NodeHostName, corev1.NodeExternalIP, corev1.NodeExternalDNS,
}

// defaultPort is where a node listens that does not say.
const defaultPort = 10250

// hostPort returns where the kubelet of a node listens. Its error is an API status error.
func (c *Client) hostPort(node *corev1.Node) (string, error) {
	if c.opts.Absent != nil && c.opts.Absent(node) {
		return "", apierrors.NewServiceUnavailable(fmt.Sprintf("node %q is simulated without a kubelet: simulations of a file, or of more than 100 nodes, have no logs, exec, attach, port-forward or proxy", node.Name))
	}
	port := int(node.Status.DaemonEndpoints.KubeletEndpoint.Port)
	if port == 0 {
		port = defaultPort
	}
	for _, t := range addressTypes {
		for _, a := range node.Status.Addresses {
			if a.Type == t && a.Address != "" {
				return net.JoinHostPort(a.Address, strconv.Itoa(port)), nil
			}
		}
	}
	return "", apierrors.NewServiceUnavailable(fmt.Sprintf("node %q has no address at which its kubelet can be reached; known addresses: %v", node.Name, node.Status.Addresses))
}

// nodeOf returns the node of a pod, and where its kubelet listens. Its error is an API status error, or an internal one.
func (c *Client) nodeOf(ctx context.Context, pod *corev1.Pod) (*corev1.Node, string, error) {
	o, err := c.opts.Objects.Get(ctx, corev1.SchemeGroupVersion.WithResource("nodes"), "", pod.Spec.NodeName)
	if err != nil {
		return nil, "", err
	}
	node, ok := o.(*corev1.Node)
	if !ok {
		return nil, "", fmt.Errorf("nodes/%s is a %T", pod.Spec.NodeName, o)
	}
	host, err := c.hostPort(node)
	return node, host, err
}

// Reach returns where the kubelet of a node listens, the transport to it, and whether the transport verifies the
// kubelet's certificate. Its error is an API status error.
func (c *Client) Reach(node *corev1.Node) (host, port string, transport http.RoundTripper, verified bool, err error) {
	address, err := c.hostPort(node)
	if err != nil {
		return "", "", nil, false, err
	}
	if host, port, err = net.SplitHostPort(address); err != nil {
		return "", "", nil, false, apierrors.NewInternalError(err)
	}
	return host, port, c.to(node), c.opts.Local(node) != nil || !c.opts.Foreign(node), nil
}

// unreachable is the answer when a node could not be asked.
func unreachable(err error) error {
	return apierrors.NewServiceUnavailable(fmt.Sprintf("error trying to reach service: %v", err))
}

// refuse answers with an error.
func refuse(w http.ResponseWriter, err error) {
	var s apierrors.APIStatus
	if !errors.As(err, &s) {
		s = apierrors.NewInternalError(err)
	}
	status := s.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	data, err := json.Marshal(status)
	if err != nil {
		data = []byte("{}")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_, _ = w.Write(append(data, '\n')) // a client that has gone needs no answer
}
