package monitoring

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/sampan-io/sampan/internal/run"
)

func TestListenServesMetricsAndHealth(t *testing.T) {
	var log bytes.Buffer
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "boats_total", Help: "Boats."})
	task, err := Listen(t.Context(), Options{Address: "127.0.0.1:0", Log: slog.New(slog.NewTextHandler(&log, nil))}, counter)
	if err != nil {
		t.Fatal(err)
	}
	group := run.NewGroup(t.Context(), 0)
	group.Go(func(ctx context.Context) {
		if err := task.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer group.Stop()
	address := regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(log.String())[1]
	for path, want := range map[string]string{"/metrics": "boats_total 0", "/livez": "ok", "/readyz": "ok", "/healthz": "ok"} {
		resp, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("GET %s: %s, %v, no %q", path, resp.Status, err, want)
		}
	}
}

func TestListenRefusesAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"0.0.0.0:0":   "--metrics-bind-address=0.0.0.0:0: want an address of loopback",
		"example:0":   "want an address of loopback",
		"127.0.0.1":   "missing port",
		"127.0.0.1:x": "--metrics-bind-address: ",
	} {
		if _, err := Listen(t.Context(), Options{Address: address, Log: slog.New(slog.DiscardHandler)}, collectors.NewGoCollector()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Listen on %s = %v, want %q", address, err, want)
		}
	}
	_, err := Listen(t.Context(), Options{Address: "0.0.0.0:0", CertFile: "none", Log: slog.New(slog.DiscardHandler)}, collectors.NewGoCollector())
	if err == nil || !strings.Contains(err.Error(), "--tls-cert-file and --tls-private-key-file: ") {
		t.Errorf("Listen = %v", err)
	}
}
