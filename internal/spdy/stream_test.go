package spdy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	framing "github.com/moby/spdystream/spdy"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/spdy"
)

// A rawClient sends and receives frames.
type rawClient struct {
	testing.TB
	conn   net.Conn
	framer *framing.Framer
}

func newRawClient(t testing.TB, conn net.Conn) *rawClient {
	t.Helper()
	framer, err := framing.NewFramer(conn, conn)
	if err != nil {
		t.Fatal(err)
	}
	return &rawClient{t, conn, framer}
}

func (c *rawClient) send(frames ...framing.Frame) {
	c.Helper()
	for _, f := range frames {
		if err := c.framer.WriteFrame(f); err != nil {
			c.Fatal(err)
		}
	}
}

// receive returns the next frame, nil at the end of the connection.
func (c *rawClient) receive() framing.Frame {
	c.Helper()
	f, err := c.framer.ReadFrame()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		c.Fatal(err)
	}
	return f
}

// expect receives a frame of one type.
func expect[F framing.Frame](c *rawClient) F {
	c.Helper()
	f := c.receive()
	want, ok := f.(F)
	if !ok {
		c.Fatalf("received %T %+v, want %T", f, f, want)
	}
	return want
}

// open opens a stream.
func (c *rawClient) open(id framing.StreamId) {
	c.Helper()
	c.send(syn(id))
	if reply := expect[*framing.SynReplyFrame](c); reply.StreamId != id {
		c.Fatalf("the reply is for stream %d, want %d", reply.StreamId, id)
	}
}

func syn(id framing.StreamId) *framing.SynStreamFrame {
	return &framing.SynStreamFrame{StreamId: id, Headers: http.Header{"Streamtype": {"data"}}}
}

func data(id framing.StreamId, text string) *framing.DataFrame {
	return &framing.DataFrame{StreamId: id, Data: []byte(text)}
}

func fin(id framing.StreamId) *framing.DataFrame {
	return &framing.DataFrame{StreamId: id, Flags: framing.DataFlagFin}
}

// accepting serves a connection whose streams it sends to a channel.
func accepting(t testing.TB) (*rawClient, *spdy.Conn, <-chan *spdy.Stream) {
	t.Helper()
	client, server := pair(t)
	streams := make(chan *spdy.Stream, 2000)
	c := open(t, server, func(s *spdy.Stream) error { streams <- s; return nil })
	g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
	t.Cleanup(g.Wait)
	t.Cleanup(func() { _, _ = client.Close(), c.Close() })
	g.Go(func(ctx context.Context) { _ = c.Run(ctx) })
	return newRawClient(t, client), c, streams
}

func TestHeadersAreCanonical(t *testing.T) {
	conn, server := pair(t)
	got := make(chan string, 1)
	c := open(t, server, func(s *spdy.Stream) error {
		got <- fmt.Sprint(s.ID(), s.Header().Get("streamType"))
		return nil
	})
	g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
	t.Cleanup(g.Wait)
	t.Cleanup(func() { _, _ = conn.Close(), c.Close() })
	g.Go(func(ctx context.Context) { _ = c.Run(ctx) })
	newRawClient(t, conn).open(1)
	if got := <-got; got != "1data" {
		t.Errorf("number and type: %s", got)
	}
}

func TestSidesEndByThemselves(t *testing.T) {
	client, _, streams := accepting(t)
	client.open(1)
	s := <-streams
	client.send(data(1, "question"), fin(1))
	if got, err := io.ReadAll(s); err != nil || string(got) != "question" {
		t.Errorf("read %q: %v", got, err)
	}
	if _, err := io.WriteString(s, "answer"); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if f := expect[*framing.DataFrame](client); string(f.Data) != "answer" || f.Flags != 0 {
		t.Errorf("received %+v", f)
	}
	if f := expect[*framing.DataFrame](client); len(f.Data) > 0 || f.Flags != framing.DataFlagFin {
		t.Errorf("received %+v", f)
	}
	if _, err := s.Write([]byte("x")); err == nil {
		t.Error("a stream that was closed for writing is written to")
	}

	client.open(3)
	s = <-streams
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	expect[*framing.DataFrame](client)
	client.send(data(3, "more"), fin(3))
	var got bytes.Buffer
	if _, err := s.WriteTo(&got); err != nil || got.String() != "more" {
		t.Errorf("read %q: %v", got.String(), err)
	}
}

func TestStreamOfOneDirection(t *testing.T) {
	client, _, streams := accepting(t)
	oneWay, ended := syn(1), syn(3)
	oneWay.CFHeader.Flags = framing.ControlFlagUnidirectional
	ended.CFHeader.Flags = framing.ControlFlagFin
	client.send(oneWay, data(1, "text"), fin(1), ended)
	expect[*framing.SynReplyFrame](client)
	expect[*framing.SynReplyFrame](client)
	s := <-streams
	if got, err := io.ReadAll(s); err != nil || string(got) != "text" {
		t.Errorf("read %q: %v", got, err)
	}
	if _, err := s.Write([]byte("x")); err == nil {
		t.Error("a stream that the client has opened in one direction is written to")
	}
	s = <-streams
	if got, err := io.ReadAll(s); err != nil || len(got) > 0 {
		t.Errorf("read %q of a stream that began with its end: %v", got, err)
	}
	if _, err := s.Write([]byte("x")); err != nil {
		t.Error(err)
	}
}

func TestClientResets(t *testing.T) {
	client, _, streams := accepting(t)
	client.open(1)
	s := <-streams
	client.send(data(1, "before"), &framing.RstStreamFrame{StreamId: 1, Status: framing.Cancel}, data(1, "after"))
	client.open(3)
	<-streams
	if got, err := io.ReadAll(s); !errors.Is(err, spdy.ErrReset) || string(got) != "before" {
		t.Errorf("read %q: %v", got, err)
	}
	if _, err := s.Write([]byte("x")); !errors.Is(err, spdy.ErrReset) {
		t.Errorf("Write: %v", err)
	}
	if err := s.Close(); !errors.Is(err, spdy.ErrReset) {
		t.Errorf("Close: %v", err)
	}
	if err := s.Reset(); err != nil {
		t.Errorf("Reset: %v", err)
	}
}

func TestServerResets(t *testing.T) {
	client, _, streams := accepting(t)
	client.open(1)
	s := <-streams
	client.send(data(1, "before"))
	if err := s.Reset(); err != nil {
		t.Error(err)
	}
	if f := expect[*framing.RstStreamFrame](client); f.StreamId != 1 || f.Status != framing.Cancel {
		t.Errorf("received %+v", f)
	}
	if n, err := s.Read(make([]byte, 10)); n > 0 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("Read: %d, %v", n, err)
	}
	if _, err := s.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Write: %v", err)
	}
	client.send(&framing.DataFrame{StreamId: 1, Data: make([]byte, 1<<20)}) // is discarded
	client.open(3)
}

// TestResetEndsWaiting has goroutines that wait to read from a stream and to write to it.
func TestResetEndsWaiting(t *testing.T) {
	client, _, streams := accepting(t)
	client.open(1)
	s := <-streams
	g := run.NewGroup(t.Context(), 0)
	begun := make(chan struct{}, 1)
	g.Go(func(context.Context) {
		if _, err := s.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Read: %v", err)
		}
	})
	g.Go(func(context.Context) {
		for piece := make([]byte, 1<<20); ; {
			if _, err := s.Write(piece); err != nil {
				return
			}
			select {
			case begun <- struct{}{}:
			default:
			}
		}
	})
	<-begun
	g.Go(func(context.Context) { _ = s.Reset() })
	reset := false
	for !reset {
		_, reset = client.receive().(*framing.RstStreamFrame)
	}
	g.Wait()
}

// TestResetReleasesBuffer resets streams in the middle of frames, more of them than may have buffers.
func TestResetReleasesBuffer(t *testing.T) {
	end, server := net.Pipe()
	streams := make(chan *spdy.Stream, 1)
	c := open(t, server, func(s *spdy.Stream) error { streams <- s; return nil })
	g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
	defer g.Wait()
	g.Go(func(ctx context.Context) { _ = c.Run(ctx) })
	client := newRawClient(t, end)
	defer end.Close()
	const half = 5000
	for i := range 20 {
		id := framing.StreamId(2*i + 1)
		client.open(id)
		s := <-streams
		for _, part := range [][]byte{{0, 0, 0, byte(id), 0, 0, 2 * half >> 8, 2 * half % 256}, make([]byte, half)} {
			if _, err := end.Write(part); err != nil { // returns when the server has read it
				t.Fatal(err)
			}
		}
		g.Go(func(context.Context) { _ = s.Reset() })
		expect[*framing.RstStreamFrame](client)
		if _, err := end.Write(make([]byte, half)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestResetWaitsForReply has streams that are reset as soon as the client can know that they are open.
func TestResetWaitsForReply(t *testing.T) {
	client, server := pair(t)
	serve(t, server, func(s *spdy.Stream) {
		if err := s.WaitOpen(); err != nil {
			t.Error(err)
		}
		if err := s.Reset(); err != nil {
			t.Error(err)
		}
	})
	raw := newRawClient(t, client)
	for i := range 100 {
		raw.open(framing.StreamId(2*i + 1))
		expect[*framing.RstStreamFrame](raw)
	}
}

// TestCloseLosesNothing closes a connection after much was written, to a client that reads later.
func TestCloseLosesNothing(t *testing.T) {
	client, c, streams := accepting(t)
	client.open(1)
	client.open(3)
	s := <-streams
	g := run.NewGroup(t.Context(), 0)
	defer g.Wait()
	const size = 8 << 20
	g.Go(func(context.Context) {
		if n, err := s.Write(make([]byte, size)); n != size || err != nil {
			t.Errorf("wrote %d bytes: %v", n, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := s.Write([]byte("x")); err == nil {
			t.Error("a closed connection is written to")
		}
	})
	got := 0
	for got < size {
		f := expect[*framing.DataFrame](client)
		if got += len(f.Data); f.Flags != 0 {
			t.Fatalf("the end of the stream after %d bytes", got)
		}
	}
	if f := expect[*framing.DataFrame](client); f.Flags != framing.DataFlagFin {
		t.Errorf("received %+v", f)
	}
	if f := expect[*framing.RstStreamFrame](client); f.StreamId != 3 {
		t.Errorf("received %+v", f)
	}
	if f := expect[*framing.GoAwayFrame](client); f.LastGoodStreamId != 3 || f.Status != framing.GoAwayOK {
		t.Errorf("received %+v", f)
	}
	if f := client.receive(); f != nil {
		t.Errorf("received %+v", f)
	}
	<-c.Done()
}
