package server

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/internal/inprocess"
	"github.com/sampan-io/sampan/internal/run"
)

// TestUpgradedConnectionIsPassedOn has a runtime that answers with what it has read when that ends.
func TestUpgradedConnectionIsPassedOn(t *testing.T) {
	runtime := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refused" {
			http.Error(w, "not now", http.StatusTeapot)
			return
		}
		conn, in, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		// The first word comes with the head.
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: words\r\n\r\nfirst ")
		text, err := io.ReadAll(in)
		if err != nil || r.Header.Get("Authorization") != "" {
			t.Errorf("%v, headers %v", err, r.Header)
		}
		fmt.Fprintf(conn, "%d %s", len(text), text[len(text)-4:])
	}))
	defer runtime.Close()
	to, err := url.Parse(runtime.URL + "/")
	if err != nil {
		t.Fatal(err)
	}
	k := New(Options{Log: slog.New(slog.DiscardHandler)})
	inside, outside := inprocess.New(), listenLoopback(t)
	front := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			k.pass(w, r, to.JoinPath(r.URL.Path))
		}),
		BaseContext: func(l net.Listener) context.Context {
			if l == net.Listener(inside) {
				return context.WithValue(t.Context(), fromAPIServer{}, true)
			}
			return t.Context()
		},
	}
	g := run.NewGroup(t.Context(), 0)
	defer g.Wait()
	defer front.Close()
	for name, l := range map[string]net.Listener{"unix": inside, "tcp": outside} {
		g.Go(func(context.Context) { _ = front.Serve(l) })
		t.Run(name, func(t *testing.T) {
			dial := func() net.Conn {
				dial := inside.Dial
				if name == "tcp" {
					dial = func(ctx context.Context) (net.Conn, error) {
						return (&net.Dialer{}).DialContext(ctx, "tcp", outside.Addr().String())
					}
				}
				conn, err := dial(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return conn
			}
			ask := func(conn net.Conn, path string) (*http.Response, *bufio.Reader) {
				fmt.Fprintf(conn, "POST /%s HTTP/1.1\r\nHost: n1\r\nConnection: Upgrade\r\nUpgrade: words\r\nAuthorization: Bearer x\r\n\r\n", path)
				in := bufio.NewReader(conn)
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				return resp, in
			}
			conn := dial()
			defer conn.Close()
			resp, in := ask(conn, "stream")
			if resp.StatusCode != http.StatusSwitchingProtocols {
				text, _ := io.ReadAll(resp.Body) // for the message
				t.Fatalf("%d %s", resp.StatusCode, text)
			}
			const size = 3 << 20 // more than the sockets hold
			if _, err := io.WriteString(conn, strings.Repeat("x", size-4)+"last"); err != nil {
				t.Fatal(err)
			}
			if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if text, err := io.ReadAll(in); err != nil || string(text) != fmt.Sprintf("first %d last", size) {
				t.Errorf("%q, %v", text, err)
			}
			refused := dial()
			defer refused.Close()
			resp, _ = ask(refused, "refused")
			if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusTeapot || string(text) != "not now\n" {
				t.Errorf("a refusal: %d %q, %v", resp.StatusCode, text, err)
			}
		})
	}
}

// TestUpgradeWithEarlyBytesIsRefused has a client in this process that does not wait for the answer before it writes: what the server
// has read of it would not reach the runtime.
func TestUpgradeWithEarlyBytesIsRefused(t *testing.T) {
	runtime := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "words")
		w.WriteHeader(http.StatusSwitchingProtocols)
	}))
	defer runtime.Close()
	to, err := url.Parse(runtime.URL)
	if err != nil {
		t.Fatal(err)
	}
	var logged, faults bytes.Buffer
	k := New(Options{Log: slog.New(slog.NewTextHandler(&logged, nil))})
	inside, handled := inprocess.New(), make(chan struct{})
	front := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(handled)
			k.pass(w, r, to)
		}),
		BaseContext: func(net.Listener) context.Context { return context.WithValue(t.Context(), fromAPIServer{}, true) },
		ErrorLog:    log.New(&faults, "", 0),
	}
	g := run.NewGroup(t.Context(), 0)
	g.Go(func(context.Context) { _ = front.Serve(inside) })
	conn, err := inside.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: n1\r\nConnection: Upgrade\r\nUpgrade: words\r\n\r\nearly"); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(conn); err != nil || len(answer) > 0 {
		t.Errorf("answer %q, %v; want a connection that is closed", answer, err)
	}
	<-handled
	_ = front.Close()
	g.Wait()
	if !strings.Contains(logged.String(), "the client sent 5 bytes before it had the answer to its upgrade") || faults.Len() > 0 {
		t.Errorf("log %q, faults of the server %q; want one about 5 bytes, and no faults", logged.String(), faults.String())
	}
}

func listenLoopback(t *testing.T) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}
