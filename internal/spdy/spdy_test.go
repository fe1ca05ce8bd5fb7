package spdy_test

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/moby/spdystream"

	"github.com/sampan-io/sampan/internal/leaktest"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/spdy"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const idle = time.Hour

// pair returns both ends of a TCP connection.
func pair(t testing.TB) (client, server *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Close(), s.Close() })
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

// serve serves conn, and calls handle for each stream in a goroutine.
func serve(t testing.TB, conn net.Conn, handle func(*spdy.Stream)) *spdy.Conn {
	t.Helper()
	g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
	t.Cleanup(g.Wait)
	c := open(t, conn, func(s *spdy.Stream) error {
		g.Go(func(context.Context) { handle(s) })
		return nil
	})
	t.Cleanup(func() { _ = c.Close() })
	g.Go(func(ctx context.Context) { _ = c.Run(ctx) })
	return c
}

func open(t testing.TB, conn net.Conn, accept func(*spdy.Stream) error) *spdy.Conn {
	t.Helper()
	c, err := new(spdy.Server).New(conn, conn, spdy.Options{Accept: accept, Idle: idle})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// mobyClient returns a client of moby/spdystream, whose connection is closed at the end of the test.
func mobyClient(t testing.TB, conn net.Conn) *spdystream.Connection {
	t.Helper()
	c, err := spdystream.NewConnection(conn, false)
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
	g.Go(func(context.Context) { c.Serve(spdystream.NoOpStreamHandler) })
	t.Cleanup(func() {
		_ = conn.Close()
		g.Wait()
	})
	return c
}

func create(t testing.TB, c *spdystream.Connection, header http.Header) *spdystream.Stream {
	t.Helper()
	s, err := c.CreateStream(header, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestStreamsEchoEverything has many streams at once, which write pieces of random sizes and get all of them back.
func TestStreamsEchoEverything(t *testing.T) {
	client, server := pair(t)
	serve(t, server, func(s *spdy.Stream) {
		if _, err := io.Copy(s, struct{ io.Reader }{s}); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	c := mobyClient(t, client)
	g := run.NewGroup(t.Context(), 0)
	defer g.Wait()
	for range 20 {
		s := create(t, c, http.Header{"A": {"b"}})
		want := make([]byte, rand.N(1<<20))
		for i := range want {
			want[i] = byte(rand.Uint32())
		}
		g.Go(func(context.Context) {
			for left := want; len(left) > 0; {
				n := min(1+rand.N(200<<10), len(left))
				if _, err := s.Write(left[:n]); err != nil {
					t.Error(err)
				}
				left = left[n:]
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		g.Go(func(context.Context) {
			got, err := io.ReadAll(s)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes came back, want %d: %v", len(got), len(want), err)
			}
		})
	}
}
