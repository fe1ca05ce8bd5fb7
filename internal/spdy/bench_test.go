package spdy_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/moby/spdystream"
	mobyspdy "github.com/moby/spdystream/spdy"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/spdy"
	"github.com/sampan-io/sampan/internal/spdyframes"
	"github.com/sampan-io/sampan/internal/upgrade"
)

// BenchmarkConnection moves frames between a client that does nothing else, and a server of this package or of moby/spdystream, which
// the runtime had before, with what it needs in front of it. ns/op and allocs/op are those of one frame, on both sides.
func BenchmarkConnection(b *testing.B) {
	for _, server := range []struct {
		name  string
		serve func(b *testing.B, conn net.Conn, handle func(io.ReadWriter))
	}{
		{"ours", func(b *testing.B, conn net.Conn, handle func(io.ReadWriter)) {
			serve(b, conn, func(s *spdy.Stream) { handle(s) })
		}},
		{"moby", mobyServer},
	} {
		for _, size := range []int{32 << 10, upgrade.Frame, 100} {
			b.Run(name("to", server.name, size), func(b *testing.B) { benchmarkTo(b, size, server.serve) })
			b.Run(name("from", server.name, size), func(b *testing.B) { benchmarkFrom(b, size, server.serve) })
		}
	}
}

func name(direction, server string, size int) string {
	return direction + "/" + server + "/" + map[int]string{32 << 10: "32KiB", upgrade.Frame: "64KiB", 100: "100B"}[size]
}

// A mobyConn is a connection for moby/spdystream.
type mobyConn struct {
	net.Conn
	in  io.Reader
	out io.Writer
}

func (c mobyConn) Read(p []byte) (int, error)  { return c.in.Read(p) }
func (c mobyConn) Write(p []byte) (int, error) { return c.out.Write(p) }

func mobyServer(b *testing.B, conn net.Conn, handle func(io.ReadWriter)) {
	frames, err := spdyframes.NewReader(bufio.NewReaderSize(conn, 64<<10), 32<<10)
	if err != nil {
		b.Fatal(err)
	}
	c, err := spdystream.NewConnection(mobyConn{conn, bufio.NewReaderSize(frames, 16), spdyframes.NewWriter(conn)}, true)
	if err != nil {
		b.Fatal(err)
	}
	g := run.NewGroup(context.WithoutCancel(b.Context()), 0)
	g.Go(func(context.Context) {
		c.Serve(func(s *spdystream.Stream) {
			_ = s.SendReply(http.Header{}, false)
			g.Go(func(context.Context) { handle(s) })
		})
	})
	b.Cleanup(func() {
		_ = conn.Close()
		g.Wait()
	})
}

// opened connects to a server and opens a stream.
func opened(b *testing.B, serve func(*testing.B, net.Conn, func(io.ReadWriter)), handle func(io.ReadWriter)) (net.Conn, *mobyspdy.Framer) {
	client, server := pair(b)
	b.Cleanup(func() { _ = client.Close() })
	serve(b, server, handle)
	framer, err := mobyspdy.NewFramer(client, client)
	if err != nil {
		b.Fatal(err)
	}
	if err := framer.WriteFrame(&mobyspdy.SynStreamFrame{StreamId: 1, Headers: http.Header{"a": {"b"}}}); err != nil {
		b.Fatal(err)
	}
	if _, err := framer.ReadFrame(); err != nil {
		b.Fatal(err)
	}
	return client, framer
}

// benchmarkTo has the client write frames, and the server copy their content as it does to a pod.
func benchmarkTo(b *testing.B, size int, serve func(*testing.B, net.Conn, func(io.ReadWriter))) {
	pod, other := pair(b)
	done := make(chan error, 1)
	client, _ := opened(b, serve, func(s io.ReadWriter) {
		_, err := io.Copy(struct{ io.Writer }{other}, s)
		done <- err
		_ = other.CloseWrite()
	})
	g := run.NewGroup(b.Context(), 0)
	g.Go(func(context.Context) {
		if n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{pod}, make([]byte, 64<<10)); n != int64(b.N)*int64(size) {
			b.Error(n, err)
		}
	})
	frame := append([]byte{0, 0, 0, 1, 0, byte(size >> 16), byte(size >> 8), byte(size)}, make([]byte, size)...)
	end := []byte{0, 0, 0, 1, 1, 0, 0, 0}
	start(b, size)
	for range b.N {
		if _, err := client.Write(frame); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := client.Write(end); err != nil {
		b.Fatal(err)
	}
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	g.Wait()
	b.StopTimer()
}

// benchmarkFrom has the server write frames.
func benchmarkFrom(b *testing.B, size int, serve func(*testing.B, net.Conn, func(io.ReadWriter))) {
	begin := make(chan struct{})
	client, _ := opened(b, serve, func(s io.ReadWriter) {
		<-begin
		content := make([]byte, size)
		for range b.N {
			if _, err := s.Write(content); err != nil {
				b.Error(err)
				return
			}
		}
	})
	start(b, size)
	close(begin)
	if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(client, int64(b.N)*int64(8+size)), make([]byte, 64<<10)); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
}

func start(b *testing.B, size int) {
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
}
