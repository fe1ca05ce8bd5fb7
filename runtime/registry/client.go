package registry

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

var (
	// ErrNotFound is returned if no host of the registry has the manifest or blob.
	ErrNotFound = errors.New("not found")
	// ErrDenied is returned if the registry refuses the credentials, or wants some and there are none.
	ErrDenied = errors.New("access denied")
)

// parallel is how many connections to a host are kept for the next request.
const parallel = 8

// Options configures a [Client]. The zero value has no configuration of hosts.
type Options struct {
	// Dirs are directories in the layout of containerd's certs.d: HOST/hosts.toml. The first one that has a directory for
	// the host, and then the first one that has one called _default, is used. They are read at each pull, and need not exist.
	Dirs      []string
	UserAgent string
	Stall     time.Duration // the longest pause within a response; 0 means a minute
	Log       *slog.Logger  // nil means slog.Default
}

// A Client reads from registries. It is safe for concurrent use.
type Client struct{ opts Options }

// New returns a client.
func New(o Options) *Client {
	o.Stall = cmp.Or(o.Stall, time.Minute)
	o.UserAgent = cmp.Or(o.UserAgent, "sampan")
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Client{o}
}

// Credentials are those of one user, as CRI's AuthConfig has them.
type Credentials struct {
	Username, Password string
	Auth               string // base64 of USERNAME:PASSWORD; instead of these
	ServerAddress      string // of the only registry that the credentials are for; empty means any
	IdentityToken      string // exchanged for an access token
	RegistryToken      string // sent as it is
}

// forHost returns the credentials if they are for a registry's host, and otherwise none.
func (c Credentials) forHost(address string) Credentials {
	if server, ok := c.server(); c.ServerAddress != "" && (!ok || server != address) {
		return Credentials{}
	}
	return c
}

// server returns the host of ServerAddress.
func (c Credentials) server() (string, bool) {
	text := c.ServerAddress
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return "", false
	}
	if u.Host == "docker.io" || u.Host == "index.docker.io" {
		return "registry-1.docker.io", true
	}
	return u.Host, true
}

// empty reports whether there are no credentials.
func (c Credentials) empty() bool {
	c.ServerAddress = ""
	return c == Credentials{}
}

func (c Credentials) authenticator() (authn.Authenticator, error) {
	if c.Auth != "" && c.Username == "" {
		plain, err := base64.StdEncoding.DecodeString(c.Auth)
		user, password, ok := strings.Cut(strings.Trim(string(plain), "\x00"), ":")
		if err != nil || !ok {
			return nil, errors.New("credentials: auth must be base64 of USERNAME:PASSWORD")
		}
		c.Username, c.Password = user, password
	}
	c.Auth, c.ServerAddress = "", ""
	if c == (Credentials{}) {
		return authn.Anonymous, nil
	}
	return authn.FromConfig(authn.AuthConfig{
		Username: c.Username, Password: c.Password, IdentityToken: c.IdentityToken, RegistryToken: c.RegistryToken,
	}), nil
}

// A Repository is one repository of a registry. It is safe for concurrent use. Close it in the end.
type Repository struct {
	client      *Client
	registry    string
	path        string
	credentials Credentials
	endpoints   []*endpoint
	ignored     string // the keys of the configuration that have no meaning, as the end of an error; empty if there are none
}

// Repository returns the repository with a name such as docker.io/library/nginx. It reads the configuration of the
// registry, and sends nothing yet.
func (c *Client) Repository(full string, credentials Credentials) (*Repository, error) {
	registry, path, ok := strings.Cut(full, "/")
	if !ok {
		return nil, fmt.Errorf("repository %q: must be REGISTRY/PATH", full)
	}
	found, err := configure(c.opts.Dirs, registry)
	if err != nil {
		return nil, err
	}
	r := &Repository{client: c, registry: registry, path: path, credentials: credentials}
	if len(found.ignored) > 0 {
		keys := clip(strings.Join(found.ignored, ", "))
		c.opts.Log.Warn("unknown keys are ignored", "file", found.file, "keys", keys)
		r.ignored = fmt.Sprintf("; unknown keys in %s are ignored: %s", found.file, keys)
	}
	for i := range found.hosts {
		w, err := newWire(&found.hosts[i], c.opts.Stall, c.opts.Log)
		if err != nil {
			r.Close()
			return nil, err
		}
		r.endpoints = append(r.endpoints, &endpoint{host: &found.hosts[i], wire: w, turn: make(chan struct{}, 1)})
	}
	return r, nil
}

// Close closes the connections.
func (r *Repository) Close() {
	for _, e := range r.endpoints {
		e.wire.base.CloseIdleConnections()
	}
}

// An endpoint is a host with the state of the authentication.
type endpoint struct {
	host *host
	wire *wire
	turn chan struct{} // holds one while a caller connects

	mu     sync.Mutex
	client *http.Client // guarded by mu; nil until connected
	scheme string       // guarded by mu; that the host speaks
}

// connect begins to speak with the host: it finds out whether that speaks TLS and how it authenticates.
func (r *Repository) connect(ctx context.Context, e *endpoint) (*http.Client, string, error) {
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return nil, "", context.Cause(ctx)
	}
	e.mu.Lock()
	client, scheme := e.client, e.scheme
	e.mu.Unlock()
	if client != nil {
		return client, scheme, nil
	}
	auth, err := r.credentials.forHost(e.host.address).authenticator()
	if err != nil {
		return nil, "", err
	}
	var options []name.Option
	if e.host.plain() {
		options = append(options, name.Insecure)
	}
	reg, err := name.NewRegistry(e.host.address, options...)
	if err != nil {
		return nil, "", err
	}
	spoken := &observer{inner: transport.NewUserAgent(e.wire, r.client.opts.UserAgent), address: e.host.address}
	authenticated, err := transport.NewWithContext(ctx, reg, auth, spoken, []string{"repository:" + e.host.repository(r.path) + ":pull"})
	if err != nil {
		return nil, "", cmp.Or(spoken.failure(), err)
	}
	client = &http.Client{Transport: authenticated, CheckRedirect: redirect}
	scheme = spoken.scheme()
	e.mu.Lock()
	e.client, e.scheme = client, scheme
	e.mu.Unlock()
	return client, scheme, nil
}

// An observer remembers with which scheme a host answered, and why a request failed: over plain HTTP, because the authentication
// tries HTTPS first, and its error would hide this one; or over HTTPS, if plain HTTP is refused.
type observer struct {
	inner   http.RoundTripper
	address string

	mu      sync.Mutex
	last    string // guarded by mu
	plain   error  // guarded by mu
	secure  error  // guarded by mu
	refused bool   // guarded by mu
}

// RoundTrip implements [http.RoundTripper].
func (o *observer) RoundTrip(in *http.Request) (*http.Response, error) {
	res, err := o.inner.RoundTrip(in)
	if in.URL.Host == o.address {
		o.mu.Lock()
		defer o.mu.Unlock()
		switch {
		case err == nil:
			o.last = in.URL.Scheme
		case in.URL.Scheme == "https":
			o.secure = err
		case errors.Is(err, errPlain):
			o.refused = true
		default:
			o.plain = err
		}
	}
	return res, err
}

func (o *observer) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.refused {
		return o.secure
	}
	return o.plain
}

func (o *observer) scheme() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return cmp.Or(o.last, "https")
}

// redirect decides about a redirect: registries send clients elsewhere for blobs.
func redirect(req *http.Request, via []*http.Request) error {
	const most = 10
	first := via[0].URL
	switch {
	case len(via) >= most:
		return fmt.Errorf("more than %d redirects", most)
	case req.URL.Scheme != first.Scheme && req.URL.Scheme != "https":
		return fmt.Errorf("redirect from %s to plain HTTP at %s refused", first.Host, req.URL.Host)
	case req.URL.Host == first.Host:
		return nil
	}
	// The services of clouds that hand out credentials of machines are at such addresses.
	if ip, err := netip.ParseAddr(req.URL.Hostname()); err == nil &&
		(ip.IsLinkLocalUnicast() || ip.IsUnspecified() || ip.IsLoopback() && !loopback(first.Host)) {
		return fmt.Errorf("redirect from %s to the local address %s refused", first.Host, req.URL.Host)
	}
	req.Header.Del("Authorization")
	return nil
}

// get requests a part of the repository from a host.
func (r *Repository) get(ctx context.Context, e *endpoint, kind, what string, header http.Header) (*http.Response, error) {
	client, scheme, err := r.connect(ctx, e)
	if err != nil {
		return nil, r.explain(e, err)
	}
	u := url.URL{Scheme: scheme, Host: e.host.address, Path: e.host.path + "/" + e.host.repository(r.path) + "/" + kind + "/" + what}
	if e.host.mirror {
		u.RawQuery = url.Values{"ns": {r.registry}}.Encode() // as containerd does, for mirrors of several registries
	}
	req, err := http.NewRequestWithContext(context.WithValue(ctx, content{}, true), http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header = header
	res, err := client.Do(req)
	if err != nil {
		return nil, r.explain(e, err)
	}
	if err := transport.CheckError(res, http.StatusOK, http.StatusPartialContent); err != nil {
		_ = res.Body.Close()
		return nil, r.explain(e, err)
	}
	return res, nil
}

// explain turns an error into one that a user understands and that has no secrets.
func (r *Repository) explain(e *endpoint, err error) error {
	at := e.host.address
	var said *transport.Error
	if errors.As(err, &said) {
		text := clip(diagnosis(said))
		switch said.StatusCode {
		case http.StatusNotFound:
			return fmt.Errorf("%s: %w%s", at, ErrNotFound, text)
		case http.StatusUnauthorized, http.StatusForbidden:
			return fmt.Errorf("%s: %w%s; %s", at, ErrDenied, text, r.sent(e.host))
		}
		return fmt.Errorf("%s: the registry answered %d %s%s", at, said.StatusCode, http.StatusText(said.StatusCode), text)
	}
	// The URL of a redirect may have a signature in it.
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	var record tls.RecordHeaderError
	noTLS := errors.As(err, &record)
	if noTLS && string(record.RecordHeader[:]) == "HTTP/" { // only clients of net/http have that error
		err = http.ErrSchemeMismatch
	}
	switch noTLS = noTLS || errors.Is(err, http.ErrSchemeMismatch); {
	case !noTLS || e.host.file == "":
		return fmt.Errorf("%s: %w", at, err)
	case e.host.mirror:
		return fmt.Errorf("%s: %w; if it should be used without TLS, write its URL with http:// in %s", at, err, e.host.file)
	}
	return fmt.Errorf("%s: %w; if it should be used without TLS, write server = \"http://%s\" in %s", at, err, at, e.host.file)
}

// sent says whether a host that denied access got credentials.
func (r *Repository) sent(h *host) string {
	switch server, ok := r.credentials.server(); {
	case !r.credentials.forHost(h.address).empty() || h.header.Get("Authorization") != "":
		return "credentials were sent"
	case r.credentials.empty():
		return "no credentials were sent"
	case ok:
		return "no credentials were sent, because the given ones are for " + clip(server)
	default:
		return "no credentials were sent, because the address of their server is invalid"
	}
}

// diagnosis returns the errors that a registry lists in its answer. An answer of another form is not repeated: it may be
// that of a server to which the registry has redirected the node.
func diagnosis(e *transport.Error) string {
	var b strings.Builder
	for _, d := range e.Errors {
		b.WriteString(": " + string(d.Code))
		if d.Message != "" {
			b.WriteString(": " + d.Message)
		}
	}
	return b.String()
}

// clip bounds a text of a registry and removes control characters.
func clip(s string) string {
	s = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f { // DEL
			return ' '
		}
		return c
	}, s)
	const most = 300
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// acceptable are the media types of manifests and indexes. Those of schema 1 are not among them: a registry that has
// nothing else answers with them all the same.
const acceptable = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, " +
	"application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json, */*;q=0.1"

// Manifest returns the manifest or index with a tag or digest and its media type, at most most bytes. The errors are
// [ErrNotFound], [ErrDenied] and others.
func (r *Repository) Manifest(ctx context.Context, reference string, most int64) (data []byte, mediaType string, err error) {
	byDigest := strings.Contains(reference, ":")
	err = r.each(ctx, func(h *host) bool { return h.pull && byDigest || h.resolve }, func(e *endpoint) error {
		data, mediaType, err = r.manifest(ctx, e, reference, most)
		return err
	})
	return data, mediaType, err
}

func (r *Repository) manifest(ctx context.Context, e *endpoint, reference string, most int64) ([]byte, string, error) {
	for n := 1; ; n++ {
		res, err := r.get(ctx, e, "manifests", reference, http.Header{"Accept": {acceptable}})
		if err != nil {
			return nil, "", err
		}
		data, err := io.ReadAll(io.LimitReader(res.Body, most+1))
		_ = res.Body.Close()
		if err != nil {
			if n < tries && ctx.Err() == nil && broken(err) {
				continue
			}
			return nil, "", r.explain(e, err)
		}
		if int64(len(data)) > most {
			return nil, "", fmt.Errorf("%s: the manifest of %s has more than %d bytes", e.host.address, reference, most)
		}
		sum := sha256.Sum256(data)
		if want := res.Header.Get("Docker-Content-Digest"); strings.HasPrefix(want, "sha256:") && want != "sha256:"+hex.EncodeToString(sum[:]) {
			return nil, "", fmt.Errorf("%s: the manifest of %s has the digest sha256:%x, but the registry says %s", e.host.address, reference, sum, clip(want))
		}
		media, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";")
		return data, strings.TrimSpace(media), nil
	}
}

// each calls f for each host that fits, until one succeeds.
func (r *Repository) each(ctx context.Context, fits func(*host) bool, f func(*endpoint) error) error {
	var last error
	for _, e := range r.endpoints {
		if !fits(e.host) {
			continue
		}
		err := f(e)
		var local *localError
		if err == nil || errors.As(err, &local) {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if last != nil {
			err = fmt.Errorf("%w; before that: %v", err, last) //nolint:errorlint // the registry itself is the last one, and its error counts
		}
		last = err
	}
	if last == nil {
		last = fmt.Errorf("no configured host of registry %s has the needed capability (resolve, pull)", r.registry)
	}
	return fmt.Errorf("%w%s", last, r.ignored)
}
