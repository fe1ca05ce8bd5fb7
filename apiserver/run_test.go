package apiserver_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/httpserver"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/leaktest"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

// certificate returns a certificate for 127.0.0.1 and the pool that believes it.
func certificate(t testing.TB) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// listen returns a listener on a free port, a server's TLS configuration and a client for it.
func listen(t testing.TB) (net.Listener, *tls.Config, *http.Client) {
	t.Helper()
	cert, pool := certificate(t)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return l, &tls.Config{Certificates: []tls.Certificate{cert}}, &http.Client{Transport: transport}
}

func get(t *testing.T, c *http.Client, url string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-User", "boss")
	return c.Do(req)
}

func TestRunServesAndLeavesNothingBehind(t *testing.T) {
	defer leaktest.None(t, goleak.IgnoreCurrent())
	l, config, client := listen(t)
	defer client.CloseIdleConnections()
	st := memory(t, store.Options{})
	opts := options(t, st)
	opts.Listeners, opts.TLS = []net.Listener{l}, config
	s, err := apiserver.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	g := run.NewGroup(ctx, 0)
	ran := make(chan error, 1)
	g.Go(func(ctx context.Context) { ran <- s.Run(ctx) })
	<-s.Ready()
	url := "https://" + l.Addr().String()

	resp, err := get(t, client, url+"/readyz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 || resp.ProtoMajor != 2 || resp.TLS.Version != tls.VersionTLS13 {
		t.Errorf("%d over HTTP/%d and TLS %x, want 200 over HTTP/2 and TLS 1.3", resp.StatusCode, resp.ProtoMajor, resp.TLS.Version)
	}
	watch, err := get(t, client, url+configMaps+"?watch=1")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if rest, err := io.ReadAll(watch.Body); err != nil || len(rest) > 0 {
		t.Errorf("the watch ended with %q, %v; want a clean end", rest, err)
	}
	watch.Body.Close()
	if err := <-ran; err != nil {
		t.Errorf("Run = %v", err)
	}
	g.Stop()
	if resp, err := get(t, client, url+"/readyz"); err == nil {
		resp.Body.Close()
		t.Error("the port still answers after the end")
	}
}

func TestARequestInFlightIsFinishedAtTheEnd(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	slow := &watchdog{change: func(*admission.Attributes) error {
		close(entered)
		<-release
		return nil
	}}
	l, config, client := listen(t)
	opts := options(t, memory(t, store.Options{}))
	opts.Listeners, opts.TLS, opts.Admission = []net.Listener{l}, config, []admission.Plugin{slow}
	s, err := apiserver.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	g := run.NewGroup(t.Context(), 0)
	ran := make(chan error, 1)
	g.Go(func(context.Context) { ran <- s.Run(ctx) })
	answered := make(chan int, 1)
	g.Go(func(ctx context.Context) {
		req, err := http.NewRequestWithContext(ctx, "POST", "https://"+l.Addr().String()+configMaps, strings.NewReader(`{"metadata":{"name":"a"}}`))
		if err != nil {
			t.Error(err)
			return
		}
		req.Header.Set("X-User", "boss")
		resp, err := client.Do(req)
		if err != nil {
			t.Error(err)
			answered <- 0
			return
		}
		resp.Body.Close()
		answered <- resp.StatusCode
	})
	<-entered
	cancel()
	close(release)
	if code := <-answered; code != 201 {
		t.Errorf("the request was answered with %d, want 201", code)
	}
	if err := <-ran; err != nil {
		t.Errorf("Run = %v", err)
	}
	g.Wait()
}

func TestRunFailsWithItsListener(t *testing.T) {
	l, config, _ := listen(t)
	l.Close()
	opts := options(t, memory(t, store.Options{}))
	opts.Listeners, opts.TLS = []net.Listener{l}, config
	s, err := apiserver.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "serving 127.0.0.1:") {
		t.Errorf("Run = %v, want an error that names the address", err)
	}
}

// A holder makes writes wait until the channel is closed.
type holder chan struct{}

func (holder) Name() string { return "holder" }

func (h holder) Admit(context.Context, *admission.Attributes) error {
	<-h
	return nil
}

func TestTooManyRequestsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		g := serveInProcess(t, func(o *apiserver.Options) { o.MaxInFlight, o.Admission = 1, []admission.Plugin{holder(release)} })
		requests := run.NewGroup(t.Context(), 0)
		refused := make(chan *httptest.ResponseRecorder, 20)
		post := func(name, group string) {
			requests.Go(func(ctx context.Context) {
				if w := g.do(ctx, "POST", configMaps, `{"metadata":{"name":"`+name+`"}}`, "X-Group: "+group); w.Code != 201 {
					refused <- w
				}
			})
			synctest.Wait()
		}
		want := func(n int, text string) {
			t.Helper()
			for range n {
				w := <-refused
				if w.Code != 429 || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), "too many requests, please try again later (priority level "+text) {
					t.Errorf("%d %s, Retry-After %q", w.Code, w.Body, w.Header().Get("Retry-After"))
				}
			}
		}
		// The last level has one seat and no queue.
		post("a", "of none")
		post("b", "of none")
		want(1, "catch-all: concurrency-limit)")
		// Another level has one seat, borrows those of others, and queues.
		for i := range 10 {
			post(fmt.Sprint("c", i), "system:authenticated")
		}
		want(8, "global-default: time-out)")
		for _, group := range []string{"system:masters", "system:nodes", "system:serviceaccounts"} {
			if w := g.do(t.Context(), "GET", configMaps, "", "X-Group: "+group); w.Code != 200 {
				t.Errorf("a user of %s: %d", group, w.Code)
			}
		}
		if w := g.do(t.Context(), "GET", "/readyz", ""); w.Code != 200 {
			t.Errorf("health: %d", w.Code)
		}
		w := g.do(t.Context(), "GET", "/metrics", "", "X-Group: system:masters").Body.String()
		for _, line := range []string{
			`apiserver_flowcontrol_current_executing_requests{flow_schema="global-default",priority_level="global-default"} 2`,
			`apiserver_flowcontrol_rejected_requests_total{flow_schema="catch-all",priority_level="catch-all",reason="concurrency-limit"} 1`,
			`apiserver_flowcontrol_rejected_requests_total{flow_schema="global-default",priority_level="global-default",reason="time-out"} 8`,
			`apiserver_flowcontrol_nominal_limit_seats{priority_level="global-default"} 1`,
			`apiserver_flowcontrol_current_limit_seats{priority_level="global-default"} 2`,
		} {
			if !strings.Contains(w, line+"\n") {
				t.Errorf("the metrics lack %s", line)
			}
		}
		close(release)
		requests.Wait()
		g.stop()
	})
}

func TestNewRefusesMissingOptions(t *testing.T) {
	complete := options(t, memory(t, store.Options{}))
	for want, change := range map[string]func(*apiserver.Options){
		"Options.Store is nil":               func(o *apiserver.Options) { o.Store = nil },
		"Options.Catalog is nil":             func(o *apiserver.Options) { o.Catalog = nil },
		"Options.Authorizer is nil":          func(o *apiserver.Options) { o.Authorizer = nil },
		"Options.Listeners need Options.TLS": func(o *apiserver.Options) { o.Listeners = make([]net.Listener, 1) },
		"Options.Connect has no handler nodes/proxy": func(o *apiserver.Options) {
			o.Connect = map[catalog.Handler]httpserver.ConnectHandler{catalog.PodLog: o.Connect[catalog.PodLog]}
		},
		"Options.Issue has no handler serviceaccounts/": func(o *apiserver.Options) { o.Issue = nil },
	} {
		opts := complete
		change(&opts)
		if _, err := apiserver.New(opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New = %v, want %q", err, want)
		}
	}
	if _, err := apiserver.New(complete); err != nil {
		t.Errorf("New(complete) = %v", err)
	}
}
