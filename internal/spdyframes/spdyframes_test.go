package spdyframes_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"slices"
	"testing"

	"github.com/moby/spdystream/spdy"
	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/spdyframes"
)

// parts records each call of Write.
type parts [][]byte

func (p *parts) Write(b []byte) (int, error) {
	*p = append(*p, bytes.Clone(b))
	return len(b), nil
}

// TestFramesAreWrittenAtOnce has the library write frames.
func TestFramesAreWrittenAtOnce(t *testing.T) {
	var plain bytes.Buffer
	var joined parts
	w := io.MultiWriter(&plain, spdyframes.NewWriter(&joined))
	framer, err := spdy.NewFramer(w, nil)
	if err != nil {
		t.Fatal(err)
	}
	frames := []spdy.Frame{
		&spdy.DataFrame{StreamId: 1, Data: make([]byte, 40000)},
		&spdy.DataFrame{StreamId: 1, Flags: spdy.DataFlagFin},
		&spdy.DataFrame{StreamId: 0x123456, Data: []byte("x"), Flags: spdy.DataFlagFin},
	}
	for _, f := range frames {
		if err := framer.WriteFrame(f); err != nil {
			t.Fatal(err)
		}
	}
	if len(joined) != len(frames) {
		t.Errorf("%d frames were written in %d parts", len(frames), len(joined))
	}
	for _, f := range []spdy.Frame{
		&spdy.PingFrame{Id: 7},
		&spdy.SynReplyFrame{StreamId: 3, Headers: map[string][]string{"a": {"b"}}},
		&spdy.RstStreamFrame{StreamId: 3, Status: spdy.Cancel},
		&spdy.GoAwayFrame{LastGoodStreamId: 3},
	} {
		if err := framer.WriteFrame(f); err != nil {
			t.Fatal(err)
		}
	}
	if got := bytes.Join(joined, nil); !bytes.Equal(got, plain.Bytes()) {
		t.Errorf("%d bytes were written, want the %d of the frames", len(got), plain.Len())
	}
}

// TestBytesStayInOrder splits frames anywhere.
func TestBytesStayInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all bytes.Buffer
		framer, err := spdy.NewFramer(&all, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 5).Draw(t, "frames") {
			size := rapid.IntRange(0, 40).Draw(t, "size")
			if err := framer.WriteFrame(&spdy.DataFrame{StreamId: 5, Data: make([]byte, size)}); err != nil {
				t.Fatal(err)
			}
		}
		var got parts
		w := spdyframes.NewWriter(&got)
		for rest := all.Bytes(); len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "part")
			if wrote, err := w.Write(rest[:n]); wrote != n || err != nil {
				t.Fatalf("Write(%d bytes): %d, %v", n, wrote, err)
			}
			rest = rest[n:]
		}
		if !bytes.Equal(bytes.Join(got, nil), all.Bytes()) {
			t.Fatal("other bytes were written")
		}
	})
}

// TestReadFramesAreWrittenWhole reads frames in pieces that begin and end anywhere.
func TestReadFramesAreWrittenWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all bytes.Buffer
		framer, err := spdy.NewFramer(&all, nil)
		if err != nil {
			t.Fatal(err)
		}
		ends := map[int]bool{}
		for range rapid.IntRange(1, 5).Draw(t, "frames") {
			size := rapid.IntRange(0, 60<<10).Draw(t, "size")
			if err := framer.WriteFrame(&spdy.DataFrame{StreamId: 5, Data: make([]byte, size)}); err != nil {
				t.Fatal(err)
			}
			ends[all.Len()] = true
		}
		want := bytes.Clone(all.Bytes())
		var got parts
		w := spdyframes.NewWriter(&got)
		for all.Len() > 0 { // each is a message of a WebSocket, or all that a connection has
			piece := all.Next(rapid.IntRange(1, 100<<10).Draw(t, "message"))
			from := inParts(rapid.IntRange(1, 20<<10).Draw(t, "part"), bytes.NewReader(piece))
			if n, err := w.ReadFrom(from); n != int64(len(piece)) || err != nil {
				t.Fatalf("ReadFrom(%d bytes): %d, %v", len(piece), n, err)
			}
		}
		written := 0
		for _, p := range got {
			if written += len(p); !ends[written] {
				t.Fatalf("a part ends after %d bytes, within a frame", written)
			}
		}
		if !bytes.Equal(bytes.Join(got, nil), want) {
			t.Fatal("other bytes were written")
		}
	})
}

// TestLargeFrameIsNotHeldBack has a frame that is larger than what is held.
func TestLargeFrameIsNotHeldBack(t *testing.T) {
	var all bytes.Buffer
	framer, err := spdy.NewFramer(&all, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := framer.WriteFrame(&spdy.DataFrame{StreamId: 1, Data: make([]byte, 1<<20)}); err != nil {
		t.Fatal(err)
	}
	for name, write := range map[string]func(*spdyframes.Writer, []byte) error{
		"Write": func(w *spdyframes.Writer, p []byte) error { _, err := w.Write(p); return err },
		"ReadFrom": func(w *spdyframes.Writer, p []byte) error {
			_, err := w.ReadFrom(bytes.NewReader(p))
			return err
		},
	} {
		var got parts
		w := spdyframes.NewWriter(&got)
		for piece := range slices.Chunk(all.Bytes(), 10<<10) {
			if err := write(w, piece); err != nil {
				t.Fatal(err)
			}
		}
		if len(got) < 2 || !bytes.Equal(bytes.Join(got, nil), all.Bytes()) {
			t.Errorf("%s: %d parts, and the same bytes: %t", name, len(got), bytes.Equal(bytes.Join(got, nil), all.Bytes()))
		}
	}
}

// inParts reads at most n bytes at once.
func inParts(n int, r io.Reader) io.Reader { return &partReader{r, n} }

type partReader struct {
	io.Reader
	n int
}

func (s *partReader) Read(p []byte) (int, error) { return s.Reader.Read(p[:min(s.n, len(p))]) }

// TestFramesToSocket uses the writer with a connection, to which it writes without copying.
func TestFramesToSocket(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	g := run.NewGroup(t.Context(), 0)
	defer g.Stop()
	const size, count = 1 << 20, 8
	g.Go(func(context.Context) {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		framer, err := spdy.NewFramer(spdyframes.NewWriter(conn), nil)
		if err != nil {
			t.Error(err)
			return
		}
		for i := range count {
			if err := framer.WriteFrame(&spdy.DataFrame{StreamId: 1, Data: bytes.Repeat([]byte{byte(i)}, size)}); err != nil {
				t.Error(err)
			}
		}
	})
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	framer, err := spdy.NewFramer(io.Discard, conn)
	if err != nil {
		t.Fatal(err)
	}
	for i := range count {
		f, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if d, ok := f.(*spdy.DataFrame); !ok || !bytes.Equal(d.Data, bytes.Repeat([]byte{byte(i)}, size)) {
			t.Fatalf("frame %d is %T, or has other content", i, f)
		}
	}
}
