package httpserver

import (
	"context"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sampan-io/sampan/apiserver/operation"
)

// requestTimeout is how long a request is executed that names no shorter time, as upstream's --request-timeout.
const requestTimeout = time.Minute

// longRunning reports whether requests for a subresource go on for as long as the client wants, and have no time limit, as upstream.
func longRunning(subresource string) bool {
	switch subresource {
	case "attach", "exec", "proxy", "log", "portforward":
		return true
	}
	return false
}

// limitTime gives a request the time limit that its parameter timeout names, or requestTimeout, as upstream: zero, or more
// than that, means requestTimeout. A time that cannot be read is refused, except of requests that go on for as long as
// their client wants. Reading one object takes no limit unless the request names one. The caller calls end at last.
func (x *exchange) limitTime(p *path) (end func(), err error) {
	none := func() {}
	text := ""
	if strings.Contains(x.r.URL.RawQuery, "timeout=") {
		text = x.r.URL.Query().Get("timeout")
	}
	read := x.r.Method == http.MethodGet || x.r.Method == http.MethodHead
	if text == "" && read && (p.name != "" || p.resource == "") {
		return none, nil
	}
	if p.resource == "" && (strings.HasPrefix(x.r.URL.Path, "/debug/pprof/") || strings.HasPrefix(x.r.URL.Path, "/sampan/")) || p.resource != "" && (longRunning(p.subresource) || verbOf(x.r, p) == operation.VerbWatch || x.blocks()) {
		return none, nil
	}
	limit := requestTimeout
	if text != "" {
		named, err := time.ParseDuration(text)
		if err != nil {
			return nil, apierrors.NewBadRequest("invalid timeout specified in the request URL - " + err.Error())
		}
		if named > 0 {
			limit = min(limit, named)
		}
	}
	ctx, cancel := context.WithTimeout(x.r.Context(), limit)
	x.r = x.r.WithContext(ctx)
	return cancel, nil
}
