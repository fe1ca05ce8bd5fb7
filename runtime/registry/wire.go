package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/sampan-io/sampan/internal/h2"
	"github.com/sampan-io/sampan/internal/run"
)

const (
	dialTimeout  = 15 * time.Second
	tlsTimeout   = 10 * time.Second
	tries        = 5                // of one request
	longestPause = 30 * time.Second // before a try; a host that wants a longer pause gets an error
	small        = 1 << 20          // bytes of a response that is neither a document nor a blob
)

// content marks the context of a request whose response the caller bounds itself.
type content struct{}

// errStalled is the cause of a request that was cancelled because nothing came.
var errStalled = errors.New("the registry sent nothing for too long")

// errPlain is the error of a request over plain HTTP to a host for which that is not allowed.
var errPlain = errors.New("plain HTTP")

// A wire sends requests for one host, below the authentication: it refuses plain HTTP where that is not allowed, adds the
// configured headers, tries again what can succeed later, and bounds responses (G1, G2, G3).
type wire struct {
	host  *host
	base  *http.Transport
	stall time.Duration
	log   *slog.Logger
}

func newWire(h *host, stall time.Duration, log *slog.Logger) (*wire, error) {
	config, err := h.tls()
	if err != nil {
		return nil, err
	}
	limit := h.dial
	if limit == 0 {
		limit = dialTimeout
	}
	return &wire{host: h, stall: stall, log: log, base: h2.Client(&http.Transport{
		Proxy:       http.ProxyFromEnvironment,
		DialContext: (&net.Dialer{Timeout: limit, KeepAlive: dialTimeout}).DialContext, TLSClientConfig: config,
		TLSHandshakeTimeout: tlsTimeout, ResponseHeaderTimeout: stall,
		MaxIdleConnsPerHost: parallel, MaxResponseHeaderBytes: small,
		// A blob is compressed already, and its digest is that of the bytes as they are stored.
		DisableCompression: true, ReadBufferSize: 64 << 10,
	})}, nil
}

// RoundTrip implements [http.RoundTripper].
func (w *wire) RoundTrip(in *http.Request) (*http.Response, error) {
	own := in.URL.Host == w.host.address
	if in.URL.Scheme == "http" && !w.host.plain() {
		return nil, fmt.Errorf("%w to %s is refused: only loopback addresses and hosts configured with http:// may use it", errPlain, in.URL.Host)
	}
	if own && in.URL.Scheme == "https" && w.host.scheme == "http" {
		return nil, errors.New("configured for plain HTTP") // the authentication goes on with that
	}
	ctx, cancel := context.WithCancelCause(in.Context())
	out := in.Clone(ctx)
	send := w.try
	if own {
		for name, values := range w.host.header {
			out.Header[name] = values
		}
		if in.URL.Path == "/v2/" {
			send = w.challenge
		}
	}
	res, err := send(out)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		cancel(nil)
		return nil, err
	}
	body := &watched{ctx: ctx, cancel: cancel, body: res.Body, stall: w.stall, left: small}
	if in.Context().Value(content{}) != nil {
		body.left = -1
	}
	res.Body, res.Request = body, in
	return res, nil
}

// challenge sends the request that begins the authentication, to learn how the host authenticates clients. It asks the
// configured path of the API first. That path may be one of repositories, with nothing to answer the request: then it asks
// the usual path, /v2/. A host that answers neither needs no authentication. Clients that begin with the request for a
// manifest, such as containerd, can read from all of these hosts.
func (w *wire) challenge(req *http.Request) (*http.Response, error) {
	paths := []string{w.host.path + "/"}
	if usual := "/v2/"; paths[0] != usual {
		paths = append(paths, usual)
	}
	for _, path := range paths {
		out := req.Clone(req.Context())
		out.URL.Path = path
		res, err := w.try(out)
		if err != nil || res.StatusCode != http.StatusNotFound && res.StatusCode != http.StatusMethodNotAllowed {
			return res, err
		}
		_ = res.Body.Close()
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, Request: req,
	}, nil
}

// try sends a request until it has an answer that does not ask for patience.
func (w *wire) try(req *http.Request) (*http.Response, error) {
	for n := 1; ; n++ {
		res, err := w.base.RoundTrip(req)
		pause, again := patience(res, err, n)
		if !again || n >= tries || req.Body != nil && req.GetBody == nil {
			return res, err
		}
		if res != nil {
			_, _ = io.CopyN(io.Discard, res.Body, small) // so that the connection can be used again
			_ = res.Body.Close()
		}
		w.log.Debug("registry asks for patience", "host", req.URL.Host, "pause", pause, "err", err)
		if !run.Pause(req.Context(), pause) {
			return nil, context.Cause(req.Context())
		}
		if req.GetBody != nil {
			if req.Body, err = req.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

// patience reports whether to send a request again, and after which pause.
func patience(res *http.Response, err error, n int) (time.Duration, bool) {
	pause := run.Backoff{First: time.Second / 2, Max: longestPause}.Pause(n) // half a second
	if err != nil {
		return pause, broken(err)
	}
	switch res.StatusCode {
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout, http.StatusRequestTimeout:
	default:
		return 0, false
	}
	if asked, ok := retryAfter(res.Header.Get("Retry-After"), time.Now()); ok {
		return max(pause, asked), asked <= longestPause
	}
	return pause, true
}

// retryAfter reads the header of that name (RFC 9110, 10.2.3).
func retryAfter(value string, now time.Time) (time.Duration, bool) {
	if seconds, err := strconv.ParseInt(value, 10, 32); err == nil && seconds >= 0 {
		return time.Duration(seconds) * time.Second, true
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(now)), true
	}
	return 0, false
}

// broken reports whether a connection broke that stood, so that another one may do better.
func broken(err error) bool {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, errStalled) {
		return true
	}
	var op *net.OpError
	return errors.As(err, &op) && !unreachable(err)
}

// unreachable reports whether no connection could be made.
func unreachable(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// watched is the body of a response: it ends the request when nothing comes for too long, and after left bytes unless
// left is negative.
type watched struct {
	ctx    context.Context //nolint:containedctx // of the request
	cancel context.CancelCauseFunc
	body   io.ReadCloser
	stall  time.Duration
	left   int64
}

func (b *watched) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	if b.left > 0 {
		p = p[:min(int64(len(p)), b.left)]
	}
	timer := time.AfterFunc(b.stall, func() { b.cancel(errStalled) })
	n, err := b.body.Read(p)
	timer.Stop()
	if b.left > 0 {
		b.left -= int64(n)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		if cause := context.Cause(b.ctx); cause != nil {
			err = cause
		}
	}
	return n, err
}

func (b *watched) Close() error {
	err := b.body.Close()
	b.cancel(nil)
	return err
}
