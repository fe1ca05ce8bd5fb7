package standalone

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/internal/run"
)

// TestWaitingProxyReportsIt reads the pages of a proxy that has not reached the API server yet.
func TestWaitingProxyReportsIt(t *testing.T) {
	o := Options{HealthzAddress: "127.0.0.1:0", MetricsAddress: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler)}
	listeners, err := o.listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(t.Context(), 0)
	for _, d := range listeners {
		g.Go(func(ctx context.Context) { d.serve(ctx, o.Log) })
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, d := range listeners {
		for page, want := range map[string]struct {
			code int
			body string
		}{
			"/healthz": {http.StatusServiceUnavailable, `"nodeEligible":false`},
			"/livez":   {http.StatusOK, `"lastUpdated":"0001-01-01 00:00:00 +0000 UTC"`},
			"/metrics": {http.StatusServiceUnavailable, "the service proxy waits for the API server\n"},
		} {
			r, err := c.Get("http://" + d.listener.Addr().String() + page)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(r.Body)
			_ = r.Body.Close()
			if err != nil || r.StatusCode != want.code || !strings.Contains(strings.ReplaceAll(string(body), ": ", ":"), want.body) {
				t.Errorf("%s: %s answers %d %s, %v, want %d and %s", d.flag, page, r.StatusCode, body, err, want.code, want.body)
			}
		}
	}
	g.Stop()
	for _, d := range listeners {
		if r, err := c.Get("http://" + d.listener.Addr().String() + "/livez"); err == nil {
			_ = r.Body.Close()
			t.Errorf("%s: answers when all is over", d.flag)
		}
	}
}
