package lingering_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sampan-io/sampan/internal/lingering"
	"github.com/sampan-io/sampan/internal/run"
)

const (
	small  = 32 << 10 // bytes, of the client's buffer
	length = 8 * small
)

// pairs returns both ends of connections of which the client has a small buffer.
func pairs(t *testing.T) map[string]func() (client, server net.Conn) {
	t.Helper()
	certificates := httptest.NewTLSServer(nil)
	t.Cleanup(certificates.Close)
	plain := func() (client, server net.Conn) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
			t.Fatal(err)
		}
		if server, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		if err := client.(*net.TCPConn).SetReadBuffer(small); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = client.Close(), server.Close() })
		return client, server
	}
	return map[string]func() (client, server net.Conn){
		"TCP": plain,
		"TLS": func() (net.Conn, net.Conn) {
			c, s := plain()
			config := certificates.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
			config.ServerName = "example.com"
			client := tls.Client(c, config)
			server := tls.Server(s, certificates.TLS)
			g := run.NewGroup(t.Context(), 0)
			defer g.Wait()
			g.Go(func(context.Context) { _ = server.Handshake() })
			if err := client.Handshake(); err != nil {
				_ = server.Close()
				t.Fatal(err)
			}
			return client, server
		},
	}
}

// TestCloseLosesNothing checks that a client gets all bytes even if it sends others, which the server does not read,
// before it has read them.
func TestCloseLosesNothing(t *testing.T) {
	for name, pair := range pairs(t) {
		t.Run(name, func(t *testing.T) {
			client, server := pair()
			want := bytes.Repeat([]byte("0123456789abcdef"), length/16)
			if _, err := server.Write(want); err != nil {
				t.Fatal(err)
			}
			if _, err := client.Write([]byte("ping")); err != nil {
				t.Fatal(err)
			}
			g := run.NewGroup(t.Context(), 0)
			defer g.Wait()
			g.Go(func(ctx context.Context) {
				if err := lingering.Close(ctx, server); err != nil {
					t.Error(err)
				}
			})
			got, err := io.ReadAll(client)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes came, want %d: %v", len(got), len(want), err)
			}
			_ = client.Close()
		})
	}
}

// TestCloseEndsWithContext has a client that does not close its end.
func TestCloseEndsWithContext(t *testing.T) {
	for name, pair := range pairs(t) {
		t.Run(name, func(t *testing.T) {
			_, server := pair()
			ctx, cancel := context.WithCancel(t.Context())
			g := run.NewGroup(t.Context(), 0)
			defer g.Wait()
			g.Go(func(context.Context) { _ = lingering.Close(ctx, server) })
			cancel()
		})
	}
}

// TestCloseEndsBlockedWrites has a client that does not read, and a goroutine that still writes to it.
func TestCloseEndsBlockedWrites(t *testing.T) {
	for name, pair := range pairs(t) {
		t.Run(name, func(t *testing.T) {
			_, server := pair()
			ctx, cancel := context.WithCancel(t.Context())
			g := run.NewGroup(t.Context(), 0)
			defer g.Wait()
			g.Go(func(context.Context) {
				for piece := make([]byte, length); ; { // until the socket is full, and then until it is closed
					if _, err := server.Write(piece); err != nil {
						return
					}
					cancel()
				}
			})
			<-ctx.Done()
			if err := lingering.Close(ctx, server); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestResponseLingers checks the connection that a handler takes over.
func TestResponseLingers(t *testing.T) {
	want := make([]byte, length)
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(lingering.Response(r.Context(), w)).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		if _, err := conn.Write(want); err != nil {
			t.Error(err)
		}
	}))
	defer s.Close()
	client, err := tls.Dial("tcp", s.Listener.Addr().String(), s.Client().Transport.(*http.Transport).TLSClientConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	const request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	for range 2 { // the handler does not read the second one
		if _, err := io.WriteString(client, request); err != nil {
			t.Fatal(err)
		}
	}
	got, err := io.ReadAll(client)
	if err != nil || len(got) != len(want) {
		t.Errorf("%d bytes came, want %d: %v", len(got), len(want), err)
	}
}
