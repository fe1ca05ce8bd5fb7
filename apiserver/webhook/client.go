package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/internal/h2"
)

// Limits of calls.
const (
	// MaxAnswer is the largest answer of a call, if the caller names no other limit: a patch of the largest object that the API server
	// accepts (3 MiB), in base64, with room for the rest.
	MaxAnswer = 8 << 20

	maxHeaders   = 64 << 10         // bytes of an answer's header
	maxErrorText = 2048             // bytes of an answer that is an error, in its message; as in client-go
	callTimeout  = 30 * time.Second // of a call whose context has no deadline; as in upstream
	dialTimeout  = 30 * time.Second
	idleTimeout  = 90 * time.Second // after which unused connections are closed; as in net/http
	maxCalls     = 128              // calls of one client at once; more wait until their deadline
	maxIdle      = 25               // connections kept for each address; as in client-go
	defaultPort  = 443              // of a service reference
	serverSuffix = ".svc"           // of the name that a service's certificate is for
)

// A Service names the service of the cluster that a webhook is behind.
type Service struct {
	Namespace, Name string
	Path            string // of the URL; may be empty
	Port            int32  // 0 means 443
}

// A Config says where a webhook is: at a URL or behind a service, of which one is set.
type Config struct {
	URL     string
	Service *Service

	// CABundle has the certificates, in PEM, of which one must have signed that of the webhook. Empty means the
	// certificates of the system.
	CABundle []byte
}

// A Resolver finds the address ("10.0.0.1:8443") that serves a port of a service.
type Resolver interface {
	Resolve(ctx context.Context, namespace, name string, port int32) (string, error)
}

// Options are common to the clients of an API server. The zero value works for URLs.
type Options struct {
	Services Resolver // nil means that no service can be reached

	// Refuse returns an error for an address of a service that is not dialed, beside the addresses that never are. Nil means that there
	// are none.
	Refuse func(context.Context, netip.Addr) error

	// Dial connects to an address. Nil means that of a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// A Client calls one webhook. It is safe for concurrent use.
type Client struct {
	url       *url.URL
	http      *http.Client
	transport *http.Transport
	calls     chan struct{} // has an item for each call under way
}

// New returns the client of a webhook, or an error that names the fault of its configuration. It does not connect.
func New(c Config, opts Options) (*Client, error) {
	if opts.Dial == nil {
		d := net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout}
		if c.Service != nil {
			d.ControlContext = opts.checkDialed
		}
		opts.Dial = d.DialContext
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(c.CABundle) > 0 {
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(c.CABundle) {
			return nil, errors.New("unable to load root certificates: unable to parse bytes as PEM block")
		}
	}
	client := &Client{calls: make(chan struct{}, maxCalls)}
	client.transport = h2.Client(&http.Transport{
		DialContext: opts.Dial, TLSClientConfig: secure, TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: maxIdle, MaxConnsPerHost: maxCalls, IdleConnTimeout: idleTimeout, MaxResponseHeaderBytes: maxHeaders,
		// A small answer that becomes large is a way to fill the memory.
		DisableCompression: true,
	})
	client.http = &http.Client{
		Transport: client.transport,
		// A webhook could send requests elsewhere, with the data of the cluster.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if err := client.locate(&c, opts.Services, secure); err != nil {
		client.transport.CloseIdleConnections()
		return nil, err
	}
	return client, nil
}

// checkDialed keeps the clients of services from the addresses of the machine's own loopback and links, and from the ones that
// Refuse names: users choose the addresses of a service, by its endpoints or its external name.
func (o *Options) checkDialed(ctx context.Context, _, address string, _ syscall.RawConn) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil || !a.Addr().Unmap().IsGlobalUnicast() {
		return errors.New("address not allowed")
	}
	if o.Refuse == nil {
		return nil
	}
	return o.Refuse(ctx, a.Addr().Unmap())
}

func (c *Client) locate(config *Config, services Resolver, secure *tls.Config) error {
	if s := config.Service; s != nil {
		if services == nil {
			return errors.New("services cannot be reached")
		}
		port := s.Port
		if port == 0 {
			port = defaultPort
		}
		secure.ServerName = s.Name + "." + s.Namespace + serverSuffix
		host := net.JoinHostPort(secure.ServerName, strconv.Itoa(int(port)))
		at, err := url.Parse(s.Path)
		if err != nil {
			return err
		}
		c.url = &url.URL{Scheme: "https", Host: host, Path: rooted(at.Path), RawPath: at.RawPath}
		c.http.Transport = &toService{Service: *s, port: port, services: services, to: c.transport}
		return nil
	}
	if config.URL == "" {
		return errors.New("webhook configuration must have either service or URL")
	}
	u, err := url.Parse(config.URL)
	if err != nil {
		return fmt.Errorf("Unparsable URL: %v", err) //nolint:staticcheck,errorlint // the words of Kubernetes
	}
	if u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("the URL of a webhook must begin with https:// and name a host, got %q", config.URL)
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	u.Path = rooted(u.Path)
	c.url = u
	c.transport.Proxy = http.ProxyFromEnvironment
	return nil
}

// rooted returns the path of requests as upstream's client makes it: from the root, without empty elements, "." and "..",
// and without a slash at the end. envtest makes URLs with two slashes after the host.
func rooted(given string) string { return path.Join("/", given) }

// toService sends requests to an address of a service, chosen for each, and keeps connections by address.
type toService struct {
	Service
	port     int32
	services Resolver
	to       http.RoundTripper
}

func (t *toService) RoundTrip(r *http.Request) (*http.Response, error) {
	address, err := t.services.Resolve(r.Context(), t.Namespace, t.Name, t.port)
	if err != nil {
		return nil, err
	}
	out := r.Clone(r.Context())
	out.Host, out.URL.Host = r.URL.Host, address
	return t.to.RoundTrip(out)
}

// Close closes the connections that are not in use, and the others once their calls end. Calls that begin later work.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Call posts a review in JSON and returns the answer, of at most so many bytes (0 means [MaxAnswer]). It ends with its context, after 30 s if that has no deadline.
// If the webhook answers with an error, that is an API status error; other errors are those of the connection, and name the URL.
func (c *Client) Call(ctx context.Context, review []byte, most int64) ([]byte, error) {
	if most == 0 {
		most = MaxAnswer
	}
	deadline, limited := ctx.Deadline()
	if !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTimeout)
		defer cancel()
	}
	u := *c.url
	if limited {
		// The webhook learns how long it has, in whole seconds.
		u.RawQuery = url.Values{"timeout": {(time.Until(deadline) + time.Second - 1).Truncate(time.Second).String()}}.Encode()
	}
	select {
	case c.calls <- struct{}{}:
		defer func() { <-c.calls }()
	case <-ctx.Done():
		return nil, &url.Error{Op: "Post", URL: u.String(), Err: ctx.Err()}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(review))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, */*")
	r.Header.Set("User-Agent", "kube-apiserver-admission")
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	return read(answer, most)
}

// read returns the body of an answer, or the error that it is.
func read(answer *http.Response, most int64) ([]byte, error) {
	failed := answer.StatusCode < http.StatusOK || answer.StatusCode > http.StatusPartialContent
	body, err := io.ReadAll(io.LimitReader(answer.Body, most+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("unexpected error when reading response body. Please retry. Original error: %w", err)
	case failed:
		return nil, refused(answer, body)
	case int64(len(body)) > most:
		return nil, fmt.Errorf("the response has more than %d bytes", most)
	case len(body) == 0:
		return nil, fmt.Errorf("0-length response with status code: %d and content type: %s", answer.StatusCode, answer.Header.Get("Content-Type"))
	}
	return body, nil
}

// refused returns the error of an answer with an error code: the Status that it has, or what the code says.
func refused(answer *http.Response, body []byte) error {
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Kind == "Status" && status.Status != metav1.StatusSuccess && status.Status != "" {
		return &apierrors.StatusError{ErrStatus: status}
	}
	text := "unknown"
	if kind, _, _ := strings.Cut(answer.Header.Get("Content-Type"), ";"); kind == "" || strings.HasPrefix(kind, "text/") {
		text = strings.TrimSpace(string(body[:min(len(body), maxErrorText)]))
	}
	after, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
	return apierrors.NewGenericServerResponse(answer.StatusCode, http.MethodPost, schema.GroupResource{}, "", text, max(after, 0), true)
}
