package kubelet

import (
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ServeProxy passes r on to the kubelet of the node, with the given path, and the
// answer back. Connection upgrades are passed on, too.
func (c *Client) ServeProxy(w http.ResponseWriter, r *http.Request, node *corev1.Node, path string) {
	host, err := hostPort(node)
	if err != nil {
		refuse(w, err)
		return
	}
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	proxy := &httputil.ReverseProxy{
		Transport:     c.to(node),
		FlushInterval: -1, // at once
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL = &url.URL{Scheme: "https", Host: host, Path: path, RawQuery: p.In.URL.RawQuery}
			p.Out.Host = host
			dropIdentity(p.Out.Header)
			p.SetXForwarded()
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			c.opts.Log.WarnContext(r.Context(), "cannot reach a node", "node", node.Name, "address", host, "err", err)
			refuse(w, unreachable(err))
		},
		ErrorLog: slog.NewLogLogger(c.opts.Log.Handler(), slog.LevelDebug),
	}
	proxy.ServeHTTP(w, r)
}

// dropIdentity removes everything by which the user said who it is: a node must
// not get to know it, and must take the request as the API server's.
func dropIdentity(h http.Header) {
	h.Del("Authorization")
	h.Del("Cookie")
	for name := range h {
		if strings.HasPrefix(name, "Impersonate-") || strings.HasPrefix(name, "X-Remote-") {
			h.Del(name)
		}
	}
	if protocols := h.Values("Sec-Websocket-Protocol"); len(protocols) > 0 {
		// Browsers hand over their token as a protocol.
		var kept []string
		for p := range strings.SplitSeq(strings.Join(protocols, ","), ",") {
			if p = strings.TrimSpace(p); !strings.HasPrefix(p, "base64url.bearer.authorization.k8s.io.") {
				kept = append(kept, p)
			}
		}
		h.Set("Sec-Websocket-Protocol", strings.Join(kept, ", "))
	}
}
