package client

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion/queryparams"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/sampan-io/sampan/internal/run"
)

const (
	mediaJSON     = "application/json"
	mediaProtobuf = "application/vnd.kubernetes.protobuf"

	mediaMetadata     = mediaJSON + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	mediaMetadataList = mediaJSON + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

	// busyTries and busyPause bound how often and how long a request waits for a
	// server that says that it is busy: the server's request is honoured,
	// but a mistaken header must not hang a caller for hours.
	busyTries = 10
	busyPause = 30 * time.Second

	// maxStatus is the most that is read of the body of a failed request.
	maxStatus = 1 << 20
)

// RESTOptions configures a [REST]. The zero value works.
type RESTOptions struct {
	// Dynamic makes every object that comes out an *unstructured.Unstructured,
	// whatever its kind, exactly as the server wrote it. Objects that go in may be of any type.
	Dynamic bool

	// Metadata makes every object that comes out a *metav1.PartialObjectMetadata, and asks servers for no more. Servers that do
	// not know this form send whole objects, of which the rest is dropped. Only then does the metadata have the kind of the object.
	Metadata bool

	// UserAgent is the name in the server's logs; empty means the configuration's, or
	// "sampan".
	UserAgent string

	// Warn is called with the warnings that a server adds to an answer (an unknown field, a
	// deprecated version). It may be called from several goroutines. Nil means that they are
	// dropped.
	Warn func(text string)
}

// REST is the [Interface] to any Kubernetes API server over HTTP(S). Built-in kinds
// travel as protobuf and come out as Go types that carry their kind; other kinds
// travel as JSON and come out unstructured. A server that does not take protobuf
// is spoken to in JSON.
//
// A request that the server puts off (429, or 5xx with Retry-After) is repeated
// when the server asks for it, all but an eviction. Failures to get an answer are [*UnreachableError]
// or [*CertificateError].
type REST struct {
	config      *rest.Config
	base        *url.URL
	http        *http.Client
	timeout     time.Duration // of requests that end by themselves; 0 means none
	certificate *x509.Certificate
	dynamic     bool
	metadata    bool
	warn        func(string)
	jsonOnly    atomic.Bool // the server refused a protobuf body
}

var _ Interface = (*REST)(nil)

// NewREST returns a client for the server and user that cfg names. It makes no
// request.
func NewREST(cfg *rest.Config, opts RESTOptions) (*REST, error) {
	cfg = rest.CopyConfig(cfg)
	if opts.UserAgent != "" {
		cfg.UserAgent = opts.UserAgent
	}
	if cfg.UserAgent == "" {
		cfg.UserAgent = "sampan"
	}
	c := &REST{config: cfg, timeout: cfg.Timeout, dynamic: opts.Dynamic, metadata: opts.Metadata, warn: opts.Warn}
	tls := cfg.CAFile != "" || len(cfg.CAData) != 0 ||
		cfg.CertFile != "" || len(cfg.CertData) != 0 || cfg.Insecure
	host := cfg.Host
	if host == "" {
		host = "localhost"
	}
	base, _, err := rest.DefaultServerURL(host, "", schema.GroupVersion{}, tls)
	if err != nil {
		return nil, fmt.Errorf("client: server address %q: %w", cfg.Host, err)
	}
	c.base = base
	plain := rest.CopyConfig(cfg)
	plain.Timeout = 0 // it would end watches, too; see do
	if c.http, err = rest.HTTPClientFor(plain); err != nil {
		return nil, fmt.Errorf("client: credentials for %s: %w", c.base, err)
	}
	c.certificate = clientCertificate(cfg)
	return c, nil
}

// clientCertificate returns the certificate that the client shows, to explain
// failures, or nil.
func clientCertificate(cfg *rest.Config) *x509.Certificate {
	data := cfg.CertData
	if len(data) == 0 && cfg.CertFile != "" {
		data, _ = os.ReadFile(cfg.CertFile) // the transport reports its faults
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil
	}
	return cert
}

// Config returns the configuration, which must not be changed.
func (c *REST) Config() *rest.Config { return c.config }

// A request is one call of the API.
type request struct {
	verb   string // as error messages name it
	method string
	schema.GroupVersionResource
	namespace, name, subresource string

	query       url.Values
	object      runtime.Object // the body, if not nil
	body        []byte         // the body as it is, if object is nil
	contentType string         // of body
	endless     bool           // the answer goes on until the context ends
}

func (r *request) path() string {
	p := "/api/" + r.Version
	if r.Group != "" {
		p = "/apis/" + r.Group + "/" + r.Version
	}
	if r.namespace != "" {
		p += "/namespaces/" + url.PathEscape(r.namespace)
	}
	p += "/" + r.Resource
	if r.name != "" {
		p += "/" + url.PathEscape(r.name)
	}
	if r.subresource != "" {
		p += "/" + r.subresource // may have several segments (proxy/path)
	}
	return p
}

// check refuses names that would make the path that of something else.
func (r *request) check() error {
	if wrong := content.IsPathSegmentName(r.namespace); len(wrong) > 0 {
		return fmt.Errorf("invalid namespace %q: %v", r.namespace, wrong)
	}
	if wrong := content.IsPathSegmentName(r.name); len(wrong) > 0 {
		return fmt.Errorf("invalid resource name %q: %v", r.name, wrong)
	}
	return nil
}

// Get implements [Interface].
func (c *REST) Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name, subresource string) (runtime.Object, error) {
	if err := needName("get", gvr, name); err != nil {
		return nil, err
	}
	return c.object(ctx, &request{
		verb: "get", method: http.MethodGet, GroupVersionResource: gvr,
		namespace: namespace, name: name, subresource: subresource,
	})
}

// List implements [Interface].
func (c *REST) List(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error) {
	query, err := queryparams.Convert(&opts)
	if err != nil {
		return nil, metav1.ListMeta{}, fmt.Errorf("client: list options: %w", err)
	}
	query.Del("watch")
	var items []runtime.Object
	var meta metav1.ListMeta
	err = c.do(ctx, &request{
		verb: "list", method: http.MethodGet, GroupVersionResource: gvr, namespace: namespace, query: query,
	}, func(resp *http.Response) (err error) {
		items, meta, err = c.decodeList(resp)
		return err
	})
	return items, meta, err
}

// Watch implements [Interface].
func (c *REST) Watch(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) iter.Seq2[watch.Event, error] {
	return func(yield func(watch.Event, error) bool) {
		opts.Watch = true
		query, err := queryparams.Convert(&opts)
		if err != nil {
			yield(watch.Event{}, fmt.Errorf("client: watch options: %w", err))
			return
		}
		left := false
		err = c.do(ctx, &request{
			verb: "watch", method: http.MethodGet, GroupVersionResource: gvr, namespace: namespace, query: query, endless: true,
		}, func(resp *http.Response) error {
			for e, err := range c.decodeEvents(resp) {
				if err != nil {
					return err
				}
				if !yield(e, nil) {
					left = true
					return nil
				}
			}
			return ErrWatchEnded
		})
		if !left && err != nil {
			yield(watch.Event{}, err)
		}
	}
}

// Create implements [Interface].
func (c *REST) Create(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.CreateOptions, subresource string) (runtime.Object, error) {
	query, err := queryparams.Convert(&opts)
	if err != nil {
		return nil, fmt.Errorf("client: create options: %w", err)
	}
	return c.object(ctx, &request{
		verb: "create", method: http.MethodPost, GroupVersionResource: gvr,
		namespace: namespace, name: name, subresource: subresource, query: query, object: obj,
	})
}

// Update implements [Interface].
func (c *REST) Update(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.UpdateOptions, subresource string) (runtime.Object, error) {
	if err := needName("update", gvr, name); err != nil {
		return nil, err
	}
	query, err := queryparams.Convert(&opts)
	if err != nil {
		return nil, fmt.Errorf("client: update options: %w", err)
	}
	return c.object(ctx, &request{
		verb: "update", method: http.MethodPut, GroupVersionResource: gvr,
		namespace: namespace, name: name, subresource: subresource, query: query, object: obj,
	})
}

// Patch implements [Interface].
func (c *REST) Patch(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, kind types.PatchType, patch []byte, opts metav1.PatchOptions, subresource string) (runtime.Object, error) {
	if err := needName("patch", gvr, name); err != nil {
		return nil, err
	}
	query, err := queryparams.Convert(&opts)
	if err != nil {
		return nil, fmt.Errorf("client: patch options: %w", err)
	}
	return c.object(ctx, &request{
		verb: "patch", method: http.MethodPatch, GroupVersionResource: gvr,
		namespace: namespace, name: name, subresource: subresource, query: query, body: patch, contentType: string(kind),
	})
}

// Delete implements [Interface].
func (c *REST) Delete(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, opts metav1.DeleteOptions) error {
	if err := needName("delete", gvr, name); err != nil {
		return err
	}
	// The kind of the options is known to every group, so the resource's own
	// version is the one that its server surely understands.
	opts.SetGroupVersionKind(gvr.GroupVersion().WithKind("DeleteOptions"))
	body, err := marshalJSON(&opts)
	if err != nil {
		return err
	}
	return c.do(ctx, &request{
		verb: "delete", method: http.MethodDelete, GroupVersionResource: gvr,
		namespace: namespace, name: name, body: body, contentType: mediaJSON,
	}, func(resp *http.Response) error {
		_, err := io.Copy(io.Discard, resp.Body) // so that the connection can be used again
		return err
	})
}

// Stream makes a raw request and returns the body of a successful answer, which
// the caller must close; ctx ends it, too. The path is absolute on the server
// ("/api/v1/namespaces/default/pods/web/log") and not escaped. A failure is an
// API status error. The body may be sent more than once if it is an io.Seeker;
// otherwise a busy server's request to come again later is an error.
func (c *REST) Stream(ctx context.Context, method, urlPath string, query url.Values, body io.Reader) (io.ReadCloser, error) {
	u := *c.base
	u.Path = path.Join("/", u.Path, urlPath)
	u.RawQuery = query.Encode()
	for try := 1; ; try++ {
		req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
		if err != nil {
			return nil, fmt.Errorf("client: %s %s: %w", method, urlPath, err)
		}
		resp, err := c.http.Do(req)
		if err != nil {
			return nil, c.unreachable(ctx, err)
		}
		if resp.StatusCode < 300 {
			return resp.Body, nil
		}
		err = c.failure(resp, &request{verb: strings.ToLower(method)})
		again, rewind := busy(resp, try), body == nil
		if s, ok := body.(io.Seeker); ok && again >= 0 {
			_, seekErr := s.Seek(0, io.SeekStart)
			rewind = seekErr == nil
		}
		if again < 0 || !rewind {
			return nil, err
		}
		if !run.Pause(ctx, again) {
			return nil, context.Cause(ctx)
		}
	}
}

// object makes a request whose answer is one object.
func (c *REST) object(ctx context.Context, r *request) (obj runtime.Object, err error) {
	err = c.do(ctx, r, func(resp *http.Response) error {
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return c.unreachable(ctx, err)
		}
		obj, err = c.decode(mediaType(resp), body, schema.GroupVersionKind{})
		if err != nil {
			return fmt.Errorf("client: answer to %s %s: %w", r.method, r.path(), err)
		}
		return nil
	})
	return obj, err
}

// do makes a request and hands a successful answer to read, after which the
// body is closed. It is the one place where requests are repeated.
func (c *REST) do(ctx context.Context, r *request, read func(*http.Response) error) error {
	outer := ctx
	ctx, cancel := c.limited(ctx, 0, r.endless)
	defer cancel()
	for try := 1; ; try++ {
		resp, protobuf, err := c.send(ctx, r)
		if err != nil {
			return err
		}
		if resp.StatusCode < 300 {
			defer resp.Body.Close()
			err := read(resp)
			if err != nil && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
		err = c.failure(resp, r)
		if protobuf && (resp.StatusCode == http.StatusUnsupportedMediaType || resp.StatusCode == http.StatusNotAcceptable) {
			c.jsonOnly.Store(true)
			continue
		}
		if resp.StatusCode == http.StatusUnauthorized {
			if expired := c.ownCertificate(err); expired != nil {
				return expired
			}
		}
		again := busy(resp, try)
		if again < 0 || r.subresource == "eviction" { // there it is the answer: a budget has no room
			return err
		}
		if !run.Pause(ctx, again) {
			return context.Cause(outer)
		}
	}
}

// send makes one attempt. It reports whether protobuf was spoken or asked for.
func (c *REST) send(ctx context.Context, r *request) (resp *http.Response, protobuf bool, err error) {
	if err := r.check(); err != nil {
		return nil, false, err
	}
	// Some servers have protobuf of kinds for which there is no Go type here.
	protobuf = !c.dynamic && !c.metadata && !c.jsonOnly.Load() && Scheme().IsVersionRegistered(r.GroupVersion())
	body, contentType := r.body, r.contentType
	if r.object != nil {
		if body, contentType, err = encode(r.object, protobuf); err != nil {
			return nil, false, err
		}
	}
	u := *c.base
	u.Path = strings.TrimRight(u.Path, "/") + r.path()
	if p, err := url.PathUnescape(u.Path); err == nil {
		u.RawPath, u.Path = u.Path, p
	}
	u.RawQuery = r.query.Encode()
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), reader)
	if err != nil {
		return nil, false, fmt.Errorf("client: %s %s: %w", r.method, r.path(), err)
	}
	if body != nil {
		req.Header.Set("Content-Type", contentType)
	}
	accept := mediaJSON
	switch {
	case c.metadata && r.verb == "list":
		accept = mediaMetadataList + "," + mediaJSON
	case c.metadata:
		accept = mediaMetadata + "," + mediaJSON
	case protobuf:
		accept = mediaProtobuf + "," + mediaJSON
	}
	req.Header.Set("Accept", accept)
	resp, err = c.http.Do(req)
	if err != nil {
		return nil, false, c.unreachable(ctx, err)
	}
	c.passWarnings(resp)
	return resp, protobuf, nil
}

// passWarnings calls Warn with the warnings of an answer.
func (c *REST) passWarnings(resp *http.Response) {
	if c.warn == nil {
		return
	}
	warnings, _ := utilnet.ParseWarningHeaders(resp.Header.Values("Warning")) // what cannot be read is not for people
	for _, w := range warnings {
		if w.Code == 299 {
			c.warn(w.Text)
		}
	}
}

// failure turns an unsuccessful answer into an API status error and closes it.
func (c *REST) failure(resp *http.Response, r *request) error {
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxStatus))
	if obj, err := c.decode(mediaType(resp), body, schema.GroupVersionKind{}); err == nil {
		if err := statusError(obj); err != nil {
			return err
		}
	}
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	return apierrors.NewGenericServerResponse(resp.StatusCode, r.verb, r.GroupResource(), r.name,
		strings.TrimSpace(string(body)), seconds, true)
}

// busy returns how long to wait before a request is made again, or less than 0
// if it should not be.
func busy(resp *http.Response, try int) time.Duration {
	after := resp.Header.Get("Retry-After")
	if try >= busyTries || resp.StatusCode != http.StatusTooManyRequests && (resp.StatusCode < 500 || after == "") {
		return -1
	}
	seconds, err := strconv.Atoi(after)
	if err != nil || seconds < 0 {
		seconds = 1
	}
	return min(time.Duration(seconds)*time.Second, busyPause)
}

func needName(verb string, gvr schema.GroupVersionResource, name string) error {
	if name == "" {
		return errors.New("client: cannot " + verb + " " + gvr.Resource + " without a name")
	}
	return nil
}
