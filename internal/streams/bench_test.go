package streams

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	framing "github.com/moby/spdystream/spdy"

	"github.com/sampan-io/sampan/internal/run"
)

// BenchmarkForward has a forwarded connection over SPDY. The pod sends without end, or sends a byte back.
func BenchmarkForward(b *testing.B) {
	b.Run("much", func(b *testing.B) {
		_, in := forwardOne(b, func(pod net.Conn) {
			for piece := make([]byte, 256<<10); ; {
				if _, err := pod.Write(piece); err != nil {
					return
				}
			}
		})
		const size = 64 << 10
		b.SetBytes(size)
		for b.Loop() {
			if _, err := io.CopyN(io.Discard, in, size); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("one byte and back", func(b *testing.B) {
		out, in := forwardOne(b, func(pod net.Conn) { _, _ = io.Copy(struct{ io.Writer }{pod}, struct{ io.Reader }{pod}) })
		frame := []byte{0, 0, 0, 3, 0, 0, 0, 1, 'x'}
		for b.Loop() {
			if _, err := out.Write(frame); err != nil {
				b.Fatal(err)
			}
			if err := readData(in); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// readData reads up to the end of the next frame with data.
func readData(in io.Reader) error {
	for {
		var head [8]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return err
		}
		if _, err := io.CopyN(io.Discard, in, int64(binary.BigEndian.Uint32(head[4:])&0xffffff)); err != nil {
			return err
		}
		if head[0]&0x80 == 0 {
			return nil
		}
	}
}

// forwardOne opens a forwarded connection to a pod, of which handle is the server.
func forwardOne(b *testing.B, handle func(net.Conn)) (out io.Writer, in io.Reader) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	g := run.NewGroup(context.WithoutCancel(b.Context()), 0)
	b.Cleanup(g.Wait)
	g.Go(func(context.Context) {
		conn, err := l.Accept()
		if err == nil {
			handle(conn)
			_ = conn.Close()
		}
	})
	s := &Server{Log: slog.New(slog.DiscardHandler)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.ServePorts(w, r, Ports{Pod: "pod", Dial: dialer(l.Addr().(*net.TCPAddr))})
	}))
	b.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		b.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = conn.Close(), l.Close() })
	req := &http.Request{Method: http.MethodPost, URL: u, Header: http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {spdyPorts},
	}}
	if err := req.Write(conn); err != nil {
		b.Fatal(err)
	}
	from := bufio.NewReaderSize(conn, 64<<10)
	if res, err := http.ReadResponse(from, req); err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		b.Fatal(res, err)
	}
	framer, err := framing.NewFramer(conn, from)
	if err != nil {
		b.Fatal(err)
	}
	for i, header := range pairHeaders("80", "1") {
		if err := framer.WriteFrame(&framing.SynStreamFrame{StreamId: framing.StreamId(2*i + 1), Headers: header}); err != nil {
			b.Fatal(err)
		}
	}
	return conn, from
}
