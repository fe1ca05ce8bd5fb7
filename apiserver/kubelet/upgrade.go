package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	constants "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// bearerProtocol begins the WebSocket protocol in which browsers send their token.
const bearerProtocol = "base64url.bearer.authorization.k8s.io."

// upgradeHeaders are the headers of an upgrade that a node gets. It gets no others, so none that name the user.
var upgradeHeaders = []string{
	"Connection", "Upgrade", httpstream.HeaderProtocolVersion, httpstream.HeaderAcceptedProtocolVersions,
	"Sec-Websocket-Key", "Sec-Websocket-Version", "Sec-Websocket-Extensions", wsstream.WebSocketProtocolHeader, "Origin", "User-Agent",
}

// pass passes a connection on byte by byte.
func (c *Client) pass(w http.ResponseWriter, r *http.Request, to *url.URL, transport http.RoundTripper) {
	c.proxy(to, transport).ServeHTTP(w, r)
}

// passAsV4 passes a connection with the WebSocket protocol v5.channel.k8s.io on byte by byte, to a node that may
// support v4 only. The versions differ only in a message that ends the client's input, so the connection must have no
// input. An error of the node becomes a Status in the error channel, as in [Client.translate].
func (c *Client) passAsV4(w http.ResponseWriter, r *http.Request, to *url.URL, transport http.RoundTripper, s streams) {
	proxy := c.proxy(to, transport)
	rewrite := proxy.Rewrite
	proxy.Rewrite = func(p *httputil.ProxyRequest) {
		rewrite(p)
		p.Out.Header.Set(wsstream.WebSocketProtocolHeader, constants.StreamProtocolV4Name)
	}
	proxy.ModifyResponse = func(resp *http.Response) error {
		if resp.StatusCode != http.StatusSwitchingProtocols {
			return refusal(resp)
		}
		resp.Header.Set(wsstream.WebSocketProtocolHeader, constants.StreamProtocolV5Name)
		return nil
	}
	proxy.ErrorHandler = func(_ http.ResponseWriter, _ *http.Request, err error) { // the request in it is the one to the node
		c.translate(w, r, s, func(context.Context, remotecommand.StreamOptions) error { return err })
	}
	proxy.ServeHTTP(w, r)
}

// proxy returns a proxy for upgrades.
func (c *Client) proxy(to *url.URL, transport http.RoundTripper) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport: passing{transport},
		Rewrite: func(p *httputil.ProxyRequest) {
			header := http.Header{}
			for _, name := range upgradeHeaders {
				if values := p.Out.Header.Values(name); len(values) > 0 {
					header[http.CanonicalHeaderKey(name)] = values
				}
			}
			dropToken(header)
			p.Out.Header, p.Out.URL, p.Out.Host = header, to, ""
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			c.unreached(r, to, err)
			refuse(w, notDialed(err))
		},
		ErrorLog: slog.NewLogLogger(c.opts.Log.Handler(), slog.LevelDebug),
	}
}

// dropToken removes the token of a browser.
func dropToken(h http.Header) {
	protocols := h.Values(wsstream.WebSocketProtocolHeader)
	if len(protocols) == 0 {
		return
	}
	var kept []string
	for p := range strings.SplitSeq(strings.Join(protocols, ","), ",") {
		if p = strings.TrimSpace(p); !strings.HasPrefix(p, bearerProtocol) {
			kept = append(kept, p)
		}
	}
	h.Set(wsstream.WebSocketProtocolHeader, strings.Join(kept, ", "))
}

// unreached logs that a node could not be reached, unless the client has gone.
func (c *Client) unreached(r *http.Request, to *url.URL, err error) {
	if r.Context().Err() == nil {
		c.opts.Log.WarnContext(r.Context(), "cannot reach a node", "address", to.Host, "err", err)
	}
}

// notDialed is the answer when a node did not answer a request for a stream, with upstream's words.
func notDialed(err error) error {
	if s := apierrors.APIStatus(nil); errors.As(err, &s) {
		return err
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: fmt.Sprintf("error dialing backend: %v", err),
	}}
}

// openSPDY asks a node for a connection over SPDY that begins with one of these protocols. If the node refuses the
// upgrade, the caller closes the body of its answer, otherwise the connection.
func openSPDY(ctx context.Context, to *url.URL, transport http.RoundTripper, protocols []string) (*http.Response, *nodeConn, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), nil)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set(httpstream.HeaderConnection, httpstream.HeaderUpgrade)
	req.Header.Set(httpstream.HeaderUpgrade, spdy.HeaderSpdy31)
	for _, p := range protocols {
		req.Header.Add(httpstream.HeaderProtocolVersion, p)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, nil, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return resp, nil, nil
	}
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if !ok || !strings.EqualFold(resp.Header.Get(httpstream.HeaderUpgrade), spdy.HeaderSpdy31) {
		_ = resp.Body.Close()
		return nil, nil, fmt.Errorf("the node upgraded the connection to %q instead of %s", resp.Header.Get(httpstream.HeaderUpgrade), spdy.HeaderSpdy31)
	}
	return resp, &nodeConn{conn}, nil
}

// A nodeConn is the connection behind the body of an upgrade, for libraries that want a [net.Conn]. It has no
// deadlines.
type nodeConn struct{ io.ReadWriteCloser }

type streamAddr struct{}

func (streamAddr) Network() string { return "tcp" }
func (streamAddr) String() string  { return "node" }

func (*nodeConn) LocalAddr() net.Addr              { return streamAddr{} }
func (*nodeConn) RemoteAddr() net.Addr             { return streamAddr{} }
func (*nodeConn) SetDeadline(time.Time) error      { return http.ErrNotSupported }
func (*nodeConn) SetReadDeadline(time.Time) error  { return http.ErrNotSupported }
func (*nodeConn) SetWriteDeadline(time.Time) error { return http.ErrNotSupported }
