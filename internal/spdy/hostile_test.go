//go:build !libraryspdy

package spdy_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	framing "github.com/moby/spdystream/spdy"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/spdy"
)

// control returns a control frame of any kind.
func control(kind byte, length int, content ...byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0x80, 3, 0, kind}, uint32(length)), content...)
}

func TestWrongFramesEndConnection(t *testing.T) {
	for name, wrong := range map[string][]byte{
		"data of stream 0":      make([]byte, 8),
		"unknown control frame": control(42, 4, 1, 2, 3, 4),
		"long control frame":    control(byte(framing.TypePing), 1<<24-1),
		"ping with more":        control(byte(framing.TypePing), 8, 0, 0, 0, 1, 0, 0, 0, 1),
		"stream with nothing":   control(byte(framing.TypeSynStream), 0),
		"ping with less":        control(byte(framing.TypePing), 3, 0, 0, 0),
		"headers not in zlib":   control(byte(framing.TypeSynStream), 20, append([]byte{0, 0, 0, 3}, make([]byte, 16)...)...),
		"no headers":            control(byte(framing.TypeSynStream), 10, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0),
	} {
		t.Run(name, func(t *testing.T) {
			client, server := pair(t)
			c := open(t, server, func(*spdy.Stream) error { return nil })
			g := run.NewGroup(t.Context(), 0)
			g.Go(func(ctx context.Context) {
				if err := c.Run(ctx); err == nil || errors.Is(err, io.EOF) {
					t.Errorf("the connection ended with %v", err)
				}
			})
			raw := newRawClient(t, client)
			raw.open(1)
			_, _ = client.Write(wrong)
			_, _ = io.Copy(io.Discard, client) // until the server closes
			g.Wait()
		})
	}
}

// TestUselessFramesAreIgnored has frames that do not matter, and then a stream.
func TestUselessFramesAreIgnored(t *testing.T) {
	client, _, streams := accepting(t)
	client.open(1)
	s := <-streams
	client.send(
		&framing.SettingsFrame{FlagIdValues: []framing.SettingsFlagIdValue{{Id: 1, Value: 2}}},
		&framing.WindowUpdateFrame{StreamId: 1, DeltaWindowSize: 7},
		&framing.SynReplyFrame{StreamId: 1, Headers: http.Header{"a": {"b"}}},
		&framing.HeadersFrame{StreamId: 1, Headers: http.Header{"a": {"b"}}},
		&framing.HeadersFrame{StreamId: 99, Headers: http.Header{"a": {"b"}}},
		&framing.RstStreamFrame{StreamId: 99, Status: framing.Cancel},
		&framing.PingFrame{Id: 2}, // an answer to none
		data(99, "of no stream"), fin(99),
		data(1, "text"),
	)
	_, _ = client.conn.Write(control(10, 3, 1, 2, 3)) // CREDENTIAL
	client.send(
		&framing.HeadersFrame{StreamId: 1, Headers: http.Header{}, CFHeader: framing.ControlFrameHeader{Flags: framing.ControlFlagFin}},
		data(1, "after the end"), fin(1),
	)
	client.open(3)
	if got, err := io.ReadAll(s); err != nil || string(got) != "text" {
		t.Errorf("read %q: %v", got, err)
	}
}

func TestStreamsAreRefused(t *testing.T) {
	client, _, streams := accepting(t)
	client.open(5)
	<-streams
	large := syn(7)
	large.Headers.Set("a", strings.Repeat("x", 4090))
	for _, test := range []struct {
		frame *framing.SynStreamFrame
		want  framing.RstStreamStatus
	}{
		{syn(5), framing.ProtocolError},
		{syn(3), framing.ProtocolError},
		{syn(6), framing.ProtocolError},
		{syn(0x80000001), framing.ProtocolError},
		{large, framing.RefusedStream},
	} {
		client.send(test.frame)
		if f := expect[*framing.RstStreamFrame](client); f.StreamId != test.frame.StreamId || f.Status != test.want {
			t.Errorf("stream %d: received %+v, want status %d", test.frame.StreamId, f, test.want)
		}
	}
	client.open(9)
	if s := <-streams; s.ID() != 9 {
		t.Errorf("stream %d was accepted", s.ID())
	}
}

// TestOpenStreamsAreBounded has a client that resets each stream at once: each counts until the server has noticed.
func TestOpenStreamsAreBounded(t *testing.T) {
	client, _, streams := accepting(t)
	const most = 1000
	for i := range most {
		id := framing.StreamId(2*i + 1)
		client.open(id)
		client.send(&framing.RstStreamFrame{StreamId: id, Status: framing.Cancel})
	}
	client.send(syn(2*most + 1))
	if f := expect[*framing.RstStreamFrame](client); f.Status != framing.RefusedStream {
		t.Errorf("received %+v", f)
	}
	_ = (<-streams).Close()
	s := <-streams
	if err := s.Reset(); err != nil {
		t.Error(err)
	}
	client.open(2*most + 3)
	client.open(2*most + 5)
	client.send(syn(2*most + 7))
	if f := expect[*framing.RstStreamFrame](client); f.Status != framing.RefusedStream {
		t.Errorf("received %+v", f)
	}
}

// allocated returns how much of the heap is in use.
func allocated() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// fill writes until the server does not read for a while, or everything is written.
func fill(t *testing.T, client *rawClient, next func() []byte) (wrote int) {
	t.Helper()
	for wrote < 64<<20 {
		_ = client.conn.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		n, err := client.conn.Write(next())
		wrote += n
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return wrote
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("the server has read %d bytes that nobody wanted", wrote)
	return 0
}

// TestUnreadStreamsHaveBoundedMemory has streams that are not read. Frames that came before are handled, and after the streams have been
// closed for reading, all others are, too.
func TestUnreadStreamsHaveBoundedMemory(t *testing.T) {
	for name, count := range map[string]int{"one": 1, "many": 500} {
		t.Run(name, func(t *testing.T) {
			client, _, streams := accepting(t)
			var all []*spdy.Stream
			for i := range count {
				client.open(framing.StreamId(2*i + 1))
				all = append(all, <-streams)
			}
			before := allocated()
			var frame bytes.Buffer
			i := 0
			fill(t, client, func() []byte {
				frame.Reset()
				framer, _ := framing.NewFramer(&frame, nil)
				_ = framer.WriteFrame(&framing.DataFrame{StreamId: framing.StreamId(2*(i%count) + 1), Data: make([]byte, 50<<10)})
				i++
				return frame.Bytes()
			})
			if more := allocated() - before; more > 4<<20 {
				t.Errorf("%d bytes were allocated for %d streams", more, count)
			}
			runtime.KeepAlive(all)
		})
	}
}

// TestFullStreamReadsOn has a stream that is read only after its buffer was full, and then not any more.
func TestFullStreamReadsOn(t *testing.T) {
	client, _, streams := accepting(t)
	client.open(1)
	s := <-streams
	g := run.NewGroup(t.Context(), 0)
	defer g.Wait()
	const size = 8 << 20
	want := make([]byte, size)
	for i := range want {
		want[i] = byte(i % 251)
	}
	g.Go(func(context.Context) {
		client.send(&framing.DataFrame{StreamId: 1, Data: want}, &framing.DataFrame{StreamId: 1, Data: want}, syn(3))
	})
	got := make([]byte, size)
	if _, err := io.ReadFull(s, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("read other bytes: %v", err)
	}
	s.CloseRead()
	if other := <-streams; other.ID() != 3 {
		t.Errorf("stream %d was accepted", other.ID())
	}
}

// TestPingsAreAnswered has a client that reads the answers only at the end, while the server cannot write anything else, either.
func TestPingsAreAnswered(t *testing.T) {
	client, _, streams := accepting(t)
	client.open(1)
	s := <-streams
	g := run.NewGroup(t.Context(), 0)
	defer g.Wait()
	const size = 16 << 20
	g.Go(func(context.Context) {
		if _, err := s.Write(make([]byte, size)); err != nil {
			t.Error(err)
		}
	})
	const pings = 1000
	for i := range pings {
		client.send(&framing.PingFrame{Id: uint32(2*i + 1)})
	}
	client.send(data(1, "text")) // is read although the server's own bytes are not
	if _, err := io.ReadFull(s, make([]byte, 4)); err != nil {
		t.Error(err)
	}
	for got, answers := 0, 0; got < size || answers < pings; {
		switch f := client.receive().(type) {
		case *framing.DataFrame:
			got += len(f.Data)
		case *framing.PingFrame:
			if f.Id != uint32(2*answers+1) {
				t.Fatalf("an answer to ping %d, want %d", f.Id, 2*answers+1)
			}
			answers++
		}
	}
}

// TestPingsHaveBoundedMemory has a client that sends pings and does not read.
func TestPingsHaveBoundedMemory(t *testing.T) {
	client, _, _ := accepting(t)
	client.open(1)
	before := allocated()
	pings := bytes.Repeat(control(byte(framing.TypePing), 4, 0, 0, 0, 1), 1000)
	fill(t, client, func() []byte { return pings })
	if more := allocated() - before; more > 1<<20 {
		t.Errorf("%d bytes were allocated", more)
	}
}

// TestFramesNeedNoMemory counts allocations in both directions.
func TestFramesNeedNoMemory(t *testing.T) {
	client, _, streams := accepting(t)
	client.open(1)
	s := <-streams
	frame := append([]byte{0, 0, 0, 1, 0, 0, 128, 0}, make([]byte, 32<<10)...)
	buf := make([]byte, 64<<10)
	const rounds = 1000
	exchange := func() {
		if _, err := client.conn.Write(frame); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(s, buf[:32<<10]); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write(buf[:32<<10]); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(client.conn, buf[:8+32<<10]); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(rounds, exchange); n > 0.5 {
		t.Errorf("%v allocations for a frame in each direction", n)
	}
}
