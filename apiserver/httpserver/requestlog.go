package httpserver

import (
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// A RequestLog says which requests have a line in the log.
type RequestLog string

// The requests that can be logged. Requests of components in the same process are none.
const (
	LogNone   RequestLog = ""       // no requests
	LogErrors RequestLog = "errors" // requests that were answered with 429, or with a fault of the server
	LogWrites RequestLog = "writes" // these, and all that may change objects
	LogAll    RequestLog = "all"
)

// logs reports whether a request has a line.
func (l RequestLog) logs(x *exchange) bool {
	switch l {
	case LogNone:
		return false
	case LogErrors, LogWrites:
		return x.code >= http.StatusInternalServerError || x.code == http.StatusTooManyRequests || l == LogWrites && x.writes
	}
	return true
}

// mostLogged bounds the strings of a line that clients choose.
const mostLogged = 256

// logRequest writes the line of a request that has been answered, if it has one.
func (s *Server) logRequest(x *exchange, took time.Duration) {
	if !s.opts.RequestLog.logs(x) {
		return
	}
	cut := func(text string) string {
		if len(text) > mostLogged {
			return text[:mostLogged] + "…"
		}
		return text
	}
	attrs := make([]slog.Attr, 0, 16)
	add := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, cut(value)))
		}
	}
	if x.user != nil {
		add("user", x.user.Name)
	}
	p := parsePath(x.r.URL.Path)
	if add("verb", strings.ToLower(x.subject.verb)); p.resource == "" {
		add("path", x.r.URL.Path)
	} else {
		add("group", p.group)
		add("version", p.version)
		add("resource", p.resource)
		add("subresource", p.subresource)
		add("namespace", p.namespace)
		add("name", p.name)
	}
	attrs = append(attrs, slog.Int("code", x.code), slog.Duration("latency", took), slog.Int("bytes", x.size))
	if x.seat.waited > time.Millisecond {
		attrs = append(attrs, slog.Duration("queued", x.seat.waited))
	}
	add("auditID", x.id[0])
	add("client", host(x.r.RemoteAddr))
	add("userAgent", x.r.UserAgent())
	s.opts.Log.LogAttrs(x.r.Context(), slog.LevelInfo, "request", attrs...)
}
