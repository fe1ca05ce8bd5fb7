package cli_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/internal/changes"
)

// TestPastOfOtherServersIsNoPresent reads earlier states from a server that ignores the parameter: the present is not
// taken for the past.
func TestPastOfOtherServersIsNoPresent(t *testing.T) {
	w, url := serve(t, configMaps(1)...)
	for _, path := range []string{"/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/configmaps/c0"} {
		w.extra[path] = func(rw http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			q.Del("at")
			r.URL.RawQuery = q.Encode()
			w.resource(rw, r)
		}
	}
	c := newTerminal(t, url)
	const why = "the server does not know earlier states of these objects, as clusters of `sampan up --history=24h` do\n"
	for _, args := range []string{"get cm", "get cm -o yaml", "get cm/c0", "get cm/c0 -o json"} {
		c.want(1, "", "error: --at: "+why, append(strings.Fields(args), "--at=10m")...)
	}
	c.want(2, "", "error: --from: "+why, "diff", "cm/c0", "--from=10m")
	if got := c.run("history"); got.code != 1 || !strings.Contains(got.err, "does not serve the history") {
		t.Errorf("%+v", got)
	}
}

// TestHistoryNeedsTheEnd has the answer end before its last line.
func TestHistoryNeedsTheEnd(t *testing.T) {
	w, url := serve(t)
	lines := []string{
		`{"from":5,"since":"2026-11-29T04:00:00Z","revision":9,"omitted":["secrets"]}`,
		`{"revision":6,"time":"2026-11-29T04:00:01Z","user":"u","agent":"a","operation":"changed","version":"v1","resource":"pods","kind":"Pod",` +
			`"namespace":"n","name":"p","fields":[{"path":".a","before":1,"after":2},{"path":".b","after":"<x>"},{"path":".c","before":true}],"more":3}`,
		`{"revision":7,"operation":"deleted","group":"apps","version":"v1","resource":"deployments","kind":"Deployment","name":"d"}`,
		`{"end":true,"earlier":4}`,
	}
	sent := len(lines)
	w.extra[changes.Path] = func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(rw, strings.Join(lines[:sent], "\n"))
	}
	c := newTerminal(t, url)
	out := `2026-11-29T04:00:01Z  6  n pod/p  changed  u (a)
    ~ .a: 1 -> 2
    + .b: "<x>"
    - .c: true
    … and 3 more fields
(no time)  7  deployment.apps/d  deleted  (unknown)
`
	const omitted = "Changes of types that you may not list are not shown: secrets.\n"
	c.want(0, out, "4 earlier changes are not shown: pass --limit or --since.\n"+omitted, "history", "-A")
	lines[3] = `{"end":true}`
	c.want(0, out, "Earlier changes are not kept: the history begins at 2026-11-29T04:00:00Z.\n"+omitted, "history", "-A")
	sent--
	if got := c.run("history", "-A"); got.code != 1 || !strings.Contains(got.err, "reading the history: the server ended the answer too early") {
		t.Errorf("without the end: %+v", got)
	}
	c.want(1, "", "error: -o yaml: must be json, with one change per line, or nothing\n", "history", "-o", "yaml")
	c.want(1, "", "error: --limit: must be >= 1, got -1\n", "history", "--limit=-1")
}
