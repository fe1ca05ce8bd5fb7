package httpserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/store"
)

// A check is one part of the server's health.
type check struct {
	name string
	err  error // nil if it is fine
}

// checks returns the checks of the endpoints, by the names that kube-apiserver has for them. The
// check etcd is about the store: it fails if the store takes no writes. A full disk fails it
// except in /livez, because a restart would not help. The checks of /readyz fail until the
// listeners are served, and during the stop.
func (s *Server) checks(ctx context.Context, endpoint string) []check {
	unwritable := s.opts.Store.Refused()
	if unwritable == nil && endpoint != "livez" {
		unwritable = s.opts.Store.Full()
	}
	out := []check{{name: "ping"}, {name: "etcd", err: unwritable}}
	if endpoint != "livez" {
		for _, c := range s.opts.Checks {
			out = append(out, check{name: c.Name, err: c.Run(ctx)})
		}
	}
	if endpoint != "readyz" {
		return out
	}
	serving := check{name: "serving"}
	select {
	case <-s.ready:
	default:
		if len(s.opts.Listeners) > 0 {
			serving.err = errors.New("the listeners are not ready yet")
		}
	}
	shutdown := check{name: "shutdown"}
	if s.stopping.Load() {
		shutdown.err = errors.New("process is shutting down")
	}
	return append(out, serving, shutdown)
}

// serveHealth answers /livez, /readyz and /healthz with all checks, in detail with ?verbose and
// without the checks in ?exclude=, and a single check below them ("/readyz/ping"). The text is
// that of kube-apiserver.
func (s *Server) serveHealth(x *exchange) {
	endpoint, one, single := strings.Cut(strings.TrimPrefix(x.r.URL.Path, "/"), "/")
	checks := s.checks(x.r.Context(), endpoint)
	h := x.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h["Cache-Control"] = noCache
	if single {
		if endpoint == "readyz" && one == quotaCheck {
			checks = append(checks, s.quotaCheck())
		}
		s.serveCheck(x, endpoint, checks, one)
		return
	}
	for i := range checks {
		s.slis.observe(endpoint, &checks[i])
	}
	query := x.r.URL.Query()
	text, failed := summary(checks, sets.New(query["exclude"]...))
	switch {
	case failed != nil:
		s.opts.Log.DebugContext(x.r.Context(), "health check failed", "check", endpoint, "err", failed)
		x.WriteHeader(http.StatusInternalServerError)
		x.writeText(text + endpoint + " check failed\n")
	case query.Has("verbose"):
		x.writeText(text + endpoint + " check passed\n")
	default:
		x.writeText("ok")
	}
}

// quotaCheck is the name of a check that is answered alone, at /readyz/store-quota. It fails while writes are refused for the
// quota of the store. /readyz does not contain it: reads, deletions and smaller writes go on, and a user with rights in one
// namespace could otherwise take the server out of a load balancer.
const quotaCheck = "store-quota"

func (s *Server) quotaCheck() check {
	c := check{name: quotaCheck}
	if over := s.opts.Store.OverQuota(); over != nil {
		c.err = fmt.Errorf("the objects in memory take %s of the quota of %s, and a write that needs %s more was refused; %s",
			store.Bytes(over.Used), store.Bytes(over.Quota), store.Bytes(over.Needs), operation.QuotaAdvice)
	}
	return c
}

// serveCheck answers with one check. Unlike the endpoints themselves it shows the reason of a
// failure, because it needs authorization.
func (s *Server) serveCheck(x *exchange, endpoint string, checks []check, name string) {
	i := slices.IndexFunc(checks, func(c check) bool { return c.name == name })
	if i >= 0 {
		s.slis.observe(endpoint, &checks[i])
	}
	switch {
	case i < 0:
		x.notFoundPage()
	case checks[i].err != nil:
		x.WriteHeader(http.StatusInternalServerError)
		x.writeText(fmt.Sprintf("internal server error: %v\n", checks[i].err))
	default:
		x.writeText("ok")
	}
}

// summary lists the checks, without reasons, and returns the faults of the checks that are not
// excluded.
func summary(checks []check, excluded sets.Set[string]) (text string, failed error) {
	var b strings.Builder
	for _, c := range checks {
		switch {
		case excluded.Has(c.name):
			excluded.Delete(c.name)
			fmt.Fprintf(&b, "[+]%s excluded: ok\n", c.name)
		case c.err != nil:
			fmt.Fprintf(&b, "[-]%s failed: reason withheld\n", c.name)
			failed = errors.Join(failed, fmt.Errorf("%s: %w", c.name, c.err))
		default:
			fmt.Fprintf(&b, "[+]%s ok\n", c.name)
		}
	}
	if unknown := sets.List(excluded); len(unknown) > 0 {
		for i, name := range unknown {
			unknown[i] = strconv.Quote(name)
		}
		fmt.Fprintf(&b, "warn: some health checks cannot be excluded: no matches for %s\n", strings.Join(unknown, ","))
	}
	return b.String(), failed
}
