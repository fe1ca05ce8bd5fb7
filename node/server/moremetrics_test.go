package server

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sampan-io/sampan/node/criclient"
	"github.com/sampan-io/sampan/node/stats"
)

// failingMetrics is a runtime whose metrics cannot be read.
type failingMetrics struct {
	criclient.Runtime
	err error
}

func (r failingMetrics) Metrics(context.Context) (stats.RuntimeMetrics, error) {
	return stats.RuntimeMetrics{}, r.err
}

func TestFailureOfRuntimeMetricsIsLogged(t *testing.T) {
	for name, tt := range map[string]struct {
		gone bool // the client
		err  error
		want string // level in the log; "" means nothing
	}{
		"an old runtime":         {false, status.Error(codes.Unimplemented, "unknown method"), "DEBUG"},
		"a failure":              {false, status.Error(codes.Internal, "broken"), "WARN"},
		"no connection":          {false, errors.New("broken pipe"), "WARN"},
		"success":                {false, nil, ""},
		"a client that has gone": {true, context.Canceled, ""},
	} {
		var logged bytes.Buffer
		k := New(Options{Runtime: failingMetrics{err: tt.err}, Log: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		ctx, cancel := context.WithCancel(t.Context())
		if tt.gone {
			cancel()
		}
		k.moreMetrics(ctx)
		cancel()
		if got := logged.String(); (got == "") != (tt.want == "") || tt.want != "" && !strings.Contains(got, "level="+tt.want) {
			t.Errorf("%s: log %q, want level %q", name, got, tt.want)
		}
	}
}
