package forward

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/catalog"
)

// Objects reads stored objects. One that does not exist is a NotFound status error.
type Objects interface {
	Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (catalog.Object, error)
	List(ctx context.Context, gvr schema.GroupVersionResource, namespace string, where fields.Set) ([]catalog.Object, error)
}

// A Kubelet is how the kubelet of a node is reached, over HTTPS.
type Kubelet struct {
	Host, Port string
	Transport  http.RoundTripper
	Verified   bool // the transport verifies that the kubelet is one of the cluster
}

// Options configures a [Forwarder]. Objects, Kubelet and Fail are required.
type Options struct {
	// Objects finds the endpoints of services.
	Objects Objects

	// Kubelet returns how the kubelet of a node is reached, or an API status error.
	Kubelet func(*corev1.Node) (Kubelet, error)

	// Fail answers a request with an error.
	Fail func(w http.ResponseWriter, r *http.Request, err error)

	// Refuse returns an error for an address that is not dialed, beside the addresses that never are. Nil means that there are none.
	Refuse func(context.Context, netip.Addr) error

	// Dial connects to targets. Nil means that of a net.Dialer that refuses addresses that are not allowed.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	Log *slog.Logger // nil means slog.Default
}

const (
	dialTimeout = 30 * time.Second // upstream's, for the connection; the TLS handshake has 10 s more
	mostHeaders = 1 << 20          // bytes of the header of an answer
)

// A Forwarder passes requests on. It is safe for concurrent use.
type Forwarder struct {
	opts      Options
	transport *http.Transport // to pods, and to ports of nodes other than the kubelet's
}

// New returns a forwarder.
func New(opts Options) (*Forwarder, error) {
	if opts.Objects == nil || opts.Kubelet == nil || opts.Fail == nil {
		return nil, errors.New("forward: Options needs Objects, Kubelet and Fail")
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	if opts.Dial == nil {
		opts.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second, ControlContext: opts.checkDialed}).DialContext
	}
	return &Forwarder{opts, &http.Transport{
		DialContext: opts.Dial,
		// Pods have certificates of their own, for other names than their address.
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: true}, // as upstream
		TLSHandshakeTimeout:    10 * time.Second,
		DisableKeepAlives:      true,
		DisableCompression:     true, // bytes are passed on as they are
		MaxResponseHeaderBytes: mostHeaders,
	}}, nil
}

var errNotAllowed = apierrors.NewBadRequest("address not allowed")

// allowed reports whether requests may be sent to an address.
func allowed(a netip.Addr) bool { return a.IsValid() && a.Unmap().IsGlobalUnicast() }

// checkDialed refuses connections to addresses that are not allowed, whatever name was resolved to them.
func (o *Options) checkDialed(ctx context.Context, _, address string, _ syscall.RawConn) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil || !allowed(a.Addr()) {
		return errNotAllowed
	}
	if o.Refuse == nil {
		return nil
	}
	return o.Refuse(ctx, a.Addr().Unmap())
}

// A Target is the rest of a path of the subresource proxy, beside the object.
type Target struct {
	Scheme string // "http", "https" or empty
	Port   string // a number, of a service also the name of a port; may be empty
	Path   string // what follows the subresource: empty or with a slash
}

// Pod passes r on to a pod: to its first container port if the target has none.
func (f *Forwarder) Pod(w http.ResponseWriter, r *http.Request, pod *corev1.Pod, t Target) {
	location, err := podLocation(pod, t)
	if err != nil {
		f.opts.Fail(w, r, err)
		return
	}
	f.pass(w, r, location, f.transport)
}

// Service passes r on to a ready pod of a service.
func (f *Forwarder) Service(w http.ResponseWriter, r *http.Request, svc *corev1.Service, t Target) {
	location, err := f.serviceLocation(r.Context(), svc, t)
	if err != nil {
		f.opts.Fail(w, r, err)
		return
	}
	f.pass(w, r, location, f.transport)
}

// Node passes r on to a node: to its kubelet if the target has no port, or the kubelet's.
func (f *Forwarder) Node(w http.ResponseWriter, r *http.Request, node *corev1.Node, t Target) {
	location, transport, err := f.nodeLocation(r.Context(), node, t)
	if err != nil {
		f.opts.Fail(w, r, err)
		return
	}
	if transport != f.transport {
		r = r.WithContext(r.Context()) // a copy: a kubelet gets no cookies
		r.Header = r.Header.Clone()
		r.Header.Del("Cookie")
	}
	f.pass(w, r, location, transport)
}

// locate returns the URL of a target at host, with or without a port.
func locate(t Target, host string) *url.URL {
	u := &url.URL{Scheme: t.Scheme, Host: host, Path: utilnet.JoinPreservingTrailingSlash("", t.Path)}
	if u.Scheme == "" {
		u.Scheme = "http"
	}
	return u
}

// pass passes r on to a location.
func (f *Forwarder) pass(w http.ResponseWriter, r *http.Request, to *url.URL, transport http.RoundTripper) {
	upgrade := isUpgrade(r)
	if to.Path == "" && !upgrade && (r.Method == http.MethodGet || r.Method == http.MethodHead) && !strings.HasSuffix(r.URL.Path, "/") {
		// Links of the root are relative to it.
		u := url.URL{Path: r.URL.Path + "/", RawQuery: r.URL.RawQuery}
		w.Header().Set("Location", u.String())
		w.WriteHeader(http.StatusMovedPermanently)
		return
	}
	if strings.HasSuffix(r.URL.Path, "/") && !strings.HasSuffix(to.Path, "/") {
		to.Path += "/"
	}
	to.RawQuery = r.URL.RawQuery
	l := links{prefix: strings.TrimSuffix(r.URL.Path, to.Path), front: r.Host, target: to.Host}
	proxy := &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1, // at once
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL = to
			p.Out.Host = r.Host
			p.Out.Header["X-Forwarded-For"] = forwardedFor(r)
			p.Out.Header.Set("X-Forwarded-Uri", l.uri(to))
			auth.DropCredentials(p.Out.Header)
		},
		ModifyResponse: func(resp *http.Response) error {
			for _, name := range []string{"Credentials", "Headers", "Methods", "Origin"} {
				resp.Header.Del("Access-Control-Allow-" + name)
			}
			if resp.StatusCode == http.StatusSwitchingProtocols {
				return nil
			}
			return l.rewrite(resp, r.Method == http.MethodHead)
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			f.opts.Log.DebugContext(r.Context(), "request not passed on", "to", to.Host, "err", err)
			f.opts.Fail(w, r, unreachable(err, upgrade))
		},
		ErrorLog: slog.NewLogLogger(f.opts.Log.Handler(), slog.LevelDebug),
	}
	proxy.ServeHTTP(w, r)
}

// unreachable is the answer if a target did not answer.
func unreachable(err error, upgrade bool) error {
	if s := apierrors.APIStatus(nil); errors.As(err, &s) {
		return err
	}
	if upgrade {
		return fmt.Errorf("error dialing backend: %w", err)
	}
	return apierrors.NewServiceUnavailable(fmt.Sprintf("error trying to reach service: %v", err))
}

// isUpgrade reports whether a request asks for another protocol on its connection.
func isUpgrade(r *http.Request) bool {
	for _, v := range r.Header.Values("Connection") {
		if strings.Contains(strings.ToLower(v), "upgrade") {
			return true
		}
	}
	return false
}

// forwardedFor returns the addresses that the request came from, with that of the client at the end.
func forwardedFor(r *http.Request) []string {
	all := r.Header.Values("X-Forwarded-For")
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		all = append(all[:len(all):len(all)], host)
	}
	return []string{strings.Join(all, ", ")}
}

// links turns links of a target into links to the proxy.
type links struct {
	prefix string // the path of the proxy
	front  string // the host that the client asked for
	target string // host and port
}

// uri returns the path that the client asked for.
func (l *links) uri(to *url.URL) string {
	uri := path.Join(l.prefix, to.EscapedPath())
	if strings.HasSuffix(to.Path, "/") {
		uri += "/"
	}
	return uri
}

// link returns a link as the client should see it: those to the target itself get the prefix.
func (l *links) link(u *url.URL) string {
	if u.Host != "" && u.Host != l.target && u.Host != l.front || !strings.HasPrefix(u.Path, "/") {
		return u.String()
	}
	if u.Host != l.front {
		u.Scheme, u.Host = "", ""
	}
	if !strings.HasPrefix(u.Path, l.prefix) {
		slash := strings.HasSuffix(u.Path, "/")
		if u.Path = path.Join(l.prefix, u.Path); slash {
			u.Path += "/"
		}
	}
	return u.String()
}

// rewrite changes the links of an answer.
func (l *links) rewrite(resp *http.Response, empty bool) error {
	if to := resp.Header.Get("Location"); to != "" {
		u, err := url.Parse(to)
		if err != nil {
			return apierrors.NewInternalError(fmt.Errorf("error trying to parse Location header: %w", err))
		}
		resp.Header.Set("Location", l.link(u))
		return nil
	}
	mediaType, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	encoding := resp.Header.Get("Content-Encoding")
	if strings.TrimSpace(mediaType) != "text/html" || empty || encoding != "" && encoding != "gzip" {
		return nil
	}
	resp.Body = newPage(resp.Body, encoding == "gzip", l.link)
	resp.Header.Del("Content-Encoding") // it is unpacked
	resp.Header.Del("Content-Length")
	resp.ContentLength = -1
	return nil
}
