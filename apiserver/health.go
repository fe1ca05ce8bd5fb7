package apiserver

import (
	"fmt"
	"net/http"
	"strings"
)

// A check is one part of the server's health.
type check struct {
	name string
	fine bool
}

// checks are what /livez and /readyz look at. The server is ready from the moment its
// listeners are served until it is told to stop.
func (s *Server) checks(ready bool) []check {
	out := []check{{"ping", true}}
	if !ready {
		return out
	}
	serving := false
	select {
	case <-s.ready:
		serving = true
	default:
	}
	return append(out, check{"serving", serving || len(s.opts.Listeners) == 0}, check{"shutdown", !s.stopping.Load()})
}

// serveHealth answers /livez, /readyz and /healthz, in detail with ?verbose, and a
// single check below them ("/readyz/ping").
func (s *Server) serveHealth(x *exchange) {
	_, rest, _ := strings.Cut(x.r.URL.Path, "/")
	endpoint, one, _ := strings.Cut(rest, "/")
	var text strings.Builder
	fine, found := true, one == ""
	for _, c := range s.checks(endpoint == "readyz") {
		if one != "" && c.name != one {
			continue
		}
		found = true
		if c.fine {
			fmt.Fprintf(&text, "[+]%s ok\n", c.name)
		} else {
			fine = false
			fmt.Fprintf(&text, "[-]%s failed\n", c.name)
		}
	}
	if !found {
		x.notFoundPage()
		return
	}
	h := x.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h["Cache-Control"] = noCache
	switch {
	case !fine:
		x.WriteHeader(http.StatusInternalServerError)
		x.writeText(text.String() + endpoint + " check failed\n")
	case x.r.URL.RawQuery != "" && x.r.URL.Query().Has("verbose"):
		x.writeText(text.String() + endpoint + " check passed\n")
	default:
		x.writeText("ok")
	}
}
