//go:build !libraryspdy

package spdy_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	framing "github.com/moby/spdystream/spdy"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/spdy"
)

// TestContentWaitsForReply has streams that are written to before the client can know that they are open.
func TestContentWaitsForReply(t *testing.T) {
	client, server := pair(t)
	g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
	t.Cleanup(g.Wait)
	c := open(t, server, func(s *spdy.Stream) error {
		if s.ID() == 3 {
			return errors.New("refused")
		}
		done := make(chan struct{})
		g.Go(func(context.Context) {
			close(done)
			_, _ = io.WriteString(s, "early")
			_ = s.Close()
		})
		<-done
		return nil
	})
	t.Cleanup(func() { _ = client.Close() })
	g.Go(func(ctx context.Context) { _ = c.Run(ctx) })
	raw := newRawClient(t, client)
	raw.send(syn(1), syn(3), syn(5))
	seen := map[framing.StreamId]string{}
	for range 7 {
		switch f := raw.receive().(type) {
		case *framing.SynReplyFrame:
			seen[f.StreamId] += "reply "
		case *framing.DataFrame:
			seen[f.StreamId] += "data" + string(f.Data) + " "
		case *framing.RstStreamFrame:
			seen[f.StreamId] += "reset"
		}
	}
	if want := "reply dataearly data "; seen[1] != want || seen[5] != want || seen[3] != "reset" {
		t.Errorf("received %v", seen)
	}
}

// TestEndOfConnectionEndsStreams has clients that go, in several ways.
func TestEndOfConnectionEndsStreams(t *testing.T) {
	for name, end := range map[string]func(*rawClient){
		"closed":         func(c *rawClient) { _ = c.conn.Close() },
		"closed in head": func(c *rawClient) { _, _ = c.conn.Write([]byte{0, 0, 0}); _ = c.conn.Close() },
		"GOAWAY":         func(c *rawClient) { c.send(&framing.GoAwayFrame{LastGoodStreamId: 0}) },
		"wrong frame":    func(c *rawClient) { _, _ = c.conn.Write(make([]byte, 8)) },
	} {
		t.Run(name, func(t *testing.T) {
			client, c, streams := accepting(t)
			client.open(1)
			s := <-streams
			client.send(data(1, "last"))
			end(client)
			if got, err := io.ReadAll(s); err == nil || string(got) != "last" {
				t.Errorf("read %q: %v", got, err)
			}
			<-c.Done()
			if _, err := s.Write([]byte("x")); err == nil {
				t.Error("a stream is written to after the end of the connection")
			}
		})
	}
}

func TestIdleConnectionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end, server := net.Pipe()
		client := newRawClient(t, end)
		c := open(t, server, func(*spdy.Stream) error { return nil })
		g := run.NewGroup(t.Context(), 0)
		defer g.Wait()
		begun, ended := time.Now(), time.Duration(0)
		g.Go(func(ctx context.Context) {
			if err := c.Run(ctx); err == nil {
				t.Error("no error says that the connection was idle")
			}
			ended = time.Since(begun)
		})
		const pings = 3
		for range pings {
			time.Sleep(idle - time.Second)
			client.send(&framing.PingFrame{Id: 1})
			expect[*framing.PingFrame](client)
		}
		if f := client.receive(); f != nil {
			t.Errorf("received %+v", f)
		}
		g.Wait()
		if want := pings*(idle-time.Second) + idle; ended != want {
			t.Errorf("the connection ended after %v, want %v", ended, want)
		}
	})
}

// TestGoneClientIsNoticed has a client that goes while its connection is not read, because a stream is not.
func TestGoneClientIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end, server := net.Pipe()
		client := newRawClient(t, end)
		c := open(t, server, func(*spdy.Stream) error { return nil })
		g := run.NewGroup(t.Context(), 0)
		defer g.Wait()
		begun := time.Now()
		g.Go(func(ctx context.Context) {
			_ = c.Run(ctx)
			if passed := time.Since(begun); passed != 3*time.Minute {
				t.Errorf("the connection ended after %v", passed)
			}
		})
		client.open(1)
		g.Go(func(context.Context) {
			_, _ = end.Write(append([]byte{0, 0, 0, 1, 0, 4, 0, 0}, make([]byte, 4<<16)...))
		})
		for range 2 {
			if f := expect[*framing.PingFrame](client); f.Id%2 != 0 {
				t.Errorf("received %+v", f)
			}
		}
		_ = end.Close()
	})
}

// TestContextEndsConnection has a client that does not read.
func TestContextEndsConnection(t *testing.T) {
	client, server := pair(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the server stops")
	g := run.NewGroup(context.WithoutCancel(ctx), 0)
	defer g.Wait()
	c := open(t, server, func(s *spdy.Stream) error {
		g.Go(func(context.Context) {
			for piece := make([]byte, 1<<20); ; { // until the sockets are full
				if _, err := s.Write(piece); err != nil {
					return
				}
				cancel(why)
			}
		})
		return nil
	})
	newRawClient(t, client).send(syn(1))
	if err := c.Run(ctx); !errors.Is(err, why) {
		t.Errorf("the connection ended with %v", err)
	}
}

// A lingeringConn is closed when the client has closed it, too, or at a deadline.
type lingeringConn struct {
	net.Conn
	closing chan struct{}
}

func (c lingeringConn) Close() error {
	close(c.closing)
	_, _ = io.Copy(io.Discard, c.Conn)
	return c.Conn.Close()
}

// TestContextEndsClose has a client that does not close its end.
func TestContextEndsClose(t *testing.T) {
	client, server := pair(t)
	ctx, cancel := context.WithCancel(t.Context())
	g := run.NewGroup(context.WithoutCancel(ctx), 0)
	defer g.Wait()
	conn := lingeringConn{server, make(chan struct{})}
	c := open(t, conn, func(*spdy.Stream) error { return nil })
	g.Go(func(context.Context) {
		if err := c.Run(ctx); err != nil {
			t.Errorf("the connection ended with %v", err)
		}
	})
	newRawClient(t, client).open(1)
	g.Go(func(context.Context) { _ = c.Close() })
	<-conn.closing
	cancel()
}

// A halfClosedConn is a connection whose writes wait and then fail, and that counts deadlines.
type halfClosedConn struct {
	net.Conn
	writing   chan struct{} // gets an element for each write
	fail      chan struct{} // closed to have writes fail
	deadlines atomic.Int32
}

func (c *halfClosedConn) Write([]byte) (int, error) {
	c.writing <- struct{}{}
	<-c.fail
	return 0, syscall.EPIPE
}

func (c *halfClosedConn) SetDeadline(time.Time) error {
	c.deadlines.Add(1)
	return nil
}

// TestLateAnswerDoesNotStopClose has an answer that cannot be written because Close has closed the connection for writing. A deadline
// would stop the Close of a connection that waits for its client to read.
func TestLateAnswerDoesNotStopClose(t *testing.T) {
	client, server := pair(t)
	conn := &halfClosedConn{Conn: server, writing: make(chan struct{}, 2), fail: make(chan struct{})}
	c := open(t, conn, nil)
	g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
	g.Go(func(ctx context.Context) { _ = c.Run(ctx) })
	newRawClient(t, client).send(&framing.PingFrame{Id: 1})
	<-conn.writing
	g.Go(func(context.Context) { _ = c.Close() })
	<-c.Done()
	close(conn.fail)
	g.Wait()
	if n := conn.deadlines.Load(); n > 0 {
		t.Errorf("%d deadlines were set", n)
	}
}
