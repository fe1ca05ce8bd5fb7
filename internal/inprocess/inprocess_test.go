package inprocess_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/sampan-io/sampan/internal/inprocess"
	"github.com/sampan-io/sampan/internal/run"
)

func TestListenerServesHTTP(t *testing.T) {
	l := inprocess.New()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) })}
	g := run.NewGroup(t.Context(), 0)
	g.Go(func(context.Context) { _ = server.Serve(l) })
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) }}
	c := http.Client{Transport: transport}
	for _, path := range []string{"/a", "/b"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://node"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || string(body) != path {
			t.Errorf("%q, %v, want %q", body, err, path)
		}
	}
	transport.CloseIdleConnections()
	_ = server.Close()
	g.Stop()
	if _, err := l.Dial(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("dialing a closed listener: %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accepting from a closed listener: %v", err)
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("enough")
	cancel(reason)
	if _, err := inprocess.New().Dial(ctx); !errors.Is(err, reason) {
		t.Errorf("%v, want %v", err, reason)
	}
}
