package aggregation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/transport"

	"github.com/sampan-io/sampan/apiserver/audit"
	"github.com/sampan-io/sampan/apiserver/auth"
)

// requestTimeout is how long a request may take that does not go on for as long as the client wants, as upstream's.
const requestTimeout = 60 * time.Second

// A Call is one request for a version that another server serves. It was authorized.
type Call struct {
	User *auth.User

	// Long says that the answer goes on for as long as the client wants: a watch, a log, another protocol.
	Long bool

	// Fail answers with an error in the form that the client wants, before anything is written.
	Fail func(error)

	Log *slog.Logger
}

// ServeCall passes a request on to a server of the version, and its answer back as it comes.
func (s *Service) ServeCall(w http.ResponseWriter, r *http.Request, c Call) {
	if strings.Contains(strings.Join(r.Header.Values("Via"), ","), s.via) {
		http.Error(w, "the request has come back from the server that it was passed on to", http.StatusLoopDetected)
		return
	}
	if !s.available.Load() {
		http.Error(w, "service unavailable", http.StatusServiceUnavailable)
		return
	}
	if s.fault != nil {
		http.Error(w, s.fault.Error(), http.StatusInternalServerError)
		return
	}
	address, err := s.choose()
	if err != nil {
		c.Log.DebugContext(r.Context(), "no server for an APIService", "apiservice", s.name, "err", err)
		http.Error(w, "service unavailable", http.StatusServiceUnavailable)
		return
	}
	if !c.Long {
		defer s.requests.Add(-1)
		if s.requests.Add(1) > mostRequests {
			c.Fail(apierrors.NewTooManyRequests("too many requests for "+s.name+" are waiting for its server", 1))
			return
		}
		ctx, cancel := context.WithTimeoutCause(r.Context(), requestTimeout, errTimeout)
		defer cancel()
		r = r.WithContext(ctx)
	}
	s.pass(w, r, c, address)
}

var errTimeout = errors.New("the server of the APIService has not answered in time")

// pass passes a request on to one server.
func (s *Service) pass(w http.ResponseWriter, r *http.Request, c Call, address string) {
	upgrade := IsUpgrade(r)
	to := &url.URL{Scheme: "https", Host: address, Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.Query().Encode()}
	proxy := &httputil.ReverseProxy{
		Transport:     s.transport,
		FlushInterval: -1, // at once
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL, p.Out.Host = to, ""
			auth.DropCredentials(p.Out.Header)
			p.Out.Header["X-Forwarded-For"] = r.Header["X-Forwarded-For"]
			p.SetXForwarded()
			p.Out.Header.Del("X-Forwarded-Host") // clients reach this server by names that the other does not know
			p.Out.Header.Add("Via", s.via)
			if id := w.Header().Get(audit.HeaderID); id != "" {
				p.Out.Header.Set(audit.HeaderID, id) // the audit events of both servers have one ID
			}
			transport.SetAuthProxyHeaders(p.Out, c.User.Name, c.User.UID, c.User.Groups, c.User.Extra)
		},
		ModifyResponse: func(resp *http.Response) error {
			resp.Header.Del(audit.HeaderID) // the answer has it already
			if resp.StatusCode >= 300 && resp.StatusCode <= 399 && resp.Header.Get("Location") != "" {
				refuseRedirect(resp)
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			c.Log.DebugContext(r.Context(), "request not passed on", "apiservice", s.name, "to", address, "err", err)
			if errors.Is(context.Cause(r.Context()), errTimeout) {
				c.Fail(apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0))
				return
			}
			http.Error(w, fmt.Sprintf("error trying to reach service: %v", err), http.StatusServiceUnavailable)
		},
		ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug),
	}
	if upgrade {
		proxy.Transport = s.upgrades
	}
	proxy.ServeHTTP(w, r)
}

// refuseRedirect replaces an answer that would send the client, with its credentials, to another server.
func refuseRedirect(resp *http.Response) {
	const message = "the backend attempted to redirect this request, which is not permitted"
	_ = resp.Body.Close() // nothing of it is wanted
	resp.StatusCode, resp.Status = http.StatusBadGateway, http.StatusText(http.StatusBadGateway)
	resp.Header = http.Header{"Content-Type": {"text/plain; charset=utf-8"}}
	resp.Body, resp.ContentLength = io.NopCloser(strings.NewReader(message)), int64(len(message))
}

// IsUpgrade reports whether a request asks for another protocol on its connection.
func IsUpgrade(r *http.Request) bool {
	return slices.ContainsFunc(r.Header.Values("Connection"), func(v string) bool {
		return strings.Contains(strings.ToLower(v), "upgrade")
	})
}
