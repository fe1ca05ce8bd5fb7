package monitoring

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sampan-io/sampan/internal/run"
)

// Options says where metrics are served.
type Options struct {
	Address           string // without a certificate it must be an address of loopback
	CertFile, KeyFile string

	Log *slog.Logger
}

// Listen listens, and returns the task that serves /metrics, /livez, /healthz and /readyz. Its errors name the flags
// --metrics-bind-address, --tls-cert-file and --tls-private-key-file.
func Listen(ctx context.Context, o Options, metrics prometheus.Collector) (run.Task, error) {
	var secure *tls.Config
	if o.CertFile != "" || o.KeyFile != "" {
		pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return run.Task{}, fmt.Errorf("--tls-cert-file and --tls-private-key-file: %w", err)
		}
		secure = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}}
	}
	host, _, err := net.SplitHostPort(o.Address)
	if err != nil {
		return run.Task{}, fmt.Errorf("--metrics-bind-address=%s: %w", o.Address, err)
	}
	if ip := net.ParseIP(host); secure == nil && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return run.Task{}, fmt.Errorf("--metrics-bind-address=%s: want an address of loopback, or --tls-cert-file and --tls-private-key-file", o.Address)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", o.Address)
	if err != nil {
		return run.Task{}, fmt.Errorf("--metrics-bind-address: %w", err)
	}
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	o.Log.Info("serving metrics", "address", l.Addr(), "for", "monitoring")
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	ok := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }
	mux.HandleFunc("GET /livez", ok)
	mux.HandleFunc("GET /healthz", ok)
	mux.HandleFunc("GET /readyz", ok) // one that waits to lead is ready to
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute}
	return run.Task{Name: "metrics", Run: func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { _ = server.Close() })
		defer stop()
		if err := server.Serve(l); ctx.Err() == nil {
			return err
		}
		return nil
	}}, nil
}
