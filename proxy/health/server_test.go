package health_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/proxy"
	"github.com/sampan-io/sampan/proxy/health"
)

// get returns code, weight and body of an answer.
func get(t *testing.T, url string) (int, string, string) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(r.Body)
	_ = r.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, r.Header.Get("X-Load-Balancing-Endpoint-Weight"), string(body)
}

// journal is a log of which a test can wait for lines.
type journal chan string

func (j journal) Write(line []byte) (int, error) {
	j <- string(line)
	return len(line), nil
}

// await blocks until a line has all parts; the test's timeout is the limit.
func (j journal) await(parts ...string) {
	for line := range j {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			return
		}
	}
}

// free returns a port on which no server listens, and the listener that holds it until then.
func free(t *testing.T) (uint16, net.Listener) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return uint16(l.Addr().(*net.TCPAddr).Port), l
}

func TestHealthCheckNodePorts(t *testing.T) {
	said := make(journal, 100) // more than it says
	s := health.NewServer(health.Options{
		Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, Log: slog.New(slog.NewTextHandler(said, nil)),
	})
	var healthy atomic.Bool
	healthy.Store(true)
	s.Judge(healthy.Load)
	g := run.NewGroup(t.Context(), 0)
	g.Go(func(ctx context.Context) { _ = s.Run(ctx) })
	<-s.Ready()
	name := types.NamespacedName{Namespace: "shop", Name: "web"}
	number, holder := free(t)
	check := func(wantCode, wantLocal int, wantHealthy bool) {
		t.Helper()
		code, weight, body := get(t, fmt.Sprintf("http://127.0.0.1:%d/anything", number))
		want := fmt.Sprintf("{\n\t\"service\": {\n\t\t\"namespace\": \"shop\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": %d,\n\t\"serviceProxyHealthy\": %v\n}\n", wantLocal, wantHealthy)
		if code != wantCode || weight != fmt.Sprint(wantLocal) || body != want {
			t.Errorf("got %d, weight %q, body %s; want %d, %d, %s", code, weight, body, wantCode, wantLocal, want)
		}
	}
	listens := func() {
		t.Helper()
		said.await("listens", fmt.Sprintf("address=127.0.0.1:%d ", number))
	}
	// Another server has the port at first.
	s.Set(name, &proxy.Health{Service: name, Port: number, Local: 2})
	said.await("retrying", fmt.Sprintf("port=%d ", number))
	_ = holder.Close()
	listens()
	check(http.StatusOK, 2, true)
	s.Set(name, &proxy.Health{Service: name, Port: number, Local: 0})
	check(http.StatusServiceUnavailable, 0, true)
	s.Set(name, &proxy.Health{Service: name, Port: number, Local: 1})
	healthy.Store(false)
	check(http.StatusServiceUnavailable, 1, false)
	healthy.Store(true)

	// Another port, at once.
	first := number
	number, holder = free(t)
	_ = holder.Close()
	s.Set(name, &proxy.Health{Service: name, Port: number, Local: 1})
	listens()
	check(http.StatusOK, 1, true)
	closed := func(port uint16) {
		t.Helper()
		if c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = c.Close()
			t.Errorf("port %d is open still", port)
		}
	}
	closed(first)
	s.Set(name, nil)
	closed(number)
	s.Set(name, &proxy.Health{Service: name, Port: number, Local: 1})
	listens()
	check(http.StatusOK, 1, true)
	g.Stop()
	closed(number)
}

type subject struct {
	healthy, eligible bool
	updated           time.Time
}

func (s subject) Healthy() bool      { return s.healthy }
func (s subject) Eligible() bool     { return s.eligible }
func (s subject) Updated() time.Time { return s.updated }

func TestTheProxysOwnHealth(t *testing.T) {
	updated := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		healthy, eligible bool
		healthz, livez    int
	}{
		{true, true, 200, 200},
		{true, false, 503, 200},
		{false, true, 503, 503},
	} {
		h := health.Handler(subject{tt.healthy, tt.eligible, updated})
		ask := func(path string, want int, parts ...string) {
			t.Helper()
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			if w.Code != want {
				t.Errorf("%s of %+v: %d, want %d", path, tt, w.Code, want)
			}
			for _, part := range parts {
				if !strings.Contains(w.Body.String(), part) {
					t.Errorf("%s says %s, want %s in it", path, w.Body, part)
				}
			}
		}
		ask("/healthz", tt.healthz, `"lastUpdated": "2026-01-02 03:04:05 +0000 UTC"`, `"currentTime": "`, fmt.Sprintf(`"nodeEligible": %v`, tt.eligible))
		ask("/livez", tt.livez, `"lastUpdated": "2026-01-02`)
	}
}

// TestServingEnds has it end before it has begun, and afterwards.
func TestServingEnds(t *testing.T) {
	for _, before := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		_, l := free(t)
		if before {
			cancel()
		}
		ended := make(chan error)
		go func() { ended <- health.Serve(ctx, l, http.NotFoundHandler()) }()
		if !before {
			r, err := http.Get("http://" + l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			_ = r.Body.Close()
			cancel()
		}
		if err := <-ended; err != nil {
			t.Errorf("Serve = %v", err)
		}
		if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
			_ = c.Close()
			t.Error("it listens when all is over")
		}
		cancel()
	}
}

type judged struct{ healthy, eligible bool }

func (s judged) Healthy() bool    { return s.healthy }
func (s judged) Eligible() bool   { return s.eligible }
func (judged) Updated() time.Time { return time.Time{} }

// Pages has the paths and words of kube-proxy.
func TestPages(t *testing.T) {
	for _, c := range []struct {
		userspace bool
		s         judged
		path      string
		code      int
		body      string
	}{
		{false, judged{true, true}, "/proxyMode", http.StatusOK, "nftables"},
		{true, judged{true, true}, "/proxyMode", http.StatusOK, "userspace"},
		{false, judged{true, true}, "/metrics", http.StatusOK, "go_goroutines"},
		{false, judged{true, true}, "/healthz", http.StatusOK, "nodeEligible"},
		{false, judged{true, false}, "/healthz", http.StatusServiceUnavailable, "nodeEligible"},
		{false, judged{true, false}, "/livez", http.StatusOK, "lastUpdated"},
		{false, judged{false, true}, "/livez", http.StatusServiceUnavailable, "lastUpdated"},
	} {
		w := httptest.NewRecorder()
		health.Pages(c.s, c.userspace).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, c.path, nil))
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.body) {
			t.Errorf("%s: %d %.200s, want %d and %q", c.path, w.Code, w.Body, c.code, c.body)
		}
	}
}
