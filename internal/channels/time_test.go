package channels_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sampan-io/sampan/internal/channels"
	"github.com/sampan-io/sampan/internal/run"
)

// A pipeResponse is the response to a request that came from a pipe.
type pipeResponse struct {
	http.ResponseWriter
	conn net.Conn
	in   *bufio.Reader
}

func (r pipeResponse) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return r.conn, bufio.NewReadWriter(r.in, bufio.NewWriter(r.conn)), nil
}

// piped serves one connection over a pipe, which has no buffer.
func piped(t testing.TB, g *run.Group, o channels.Options, protocol string, handle func(*channels.Conn)) *client {
	t.Helper()
	conn, end := net.Pipe()
	g.Go(func(context.Context) {
		in := bufio.NewReader(end)
		r, err := http.ReadRequest(in)
		if err != nil {
			t.Error(err)
			return
		}
		var sockets channels.Server
		if err := sockets.Serve(pipeResponse{conn: end, in: in}, r, o, handle); err != nil {
			t.Error(err)
		}
	})
	return connect(t, conn, protocol, nil)
}

const idle = 10 * time.Minute

func terminal() channels.Options {
	o := command(v4)
	o.Idle = idle
	return o
}

// TestClientThatGoesIsNoticed has a command that does not read its input, so nothing is read from the connection.
func TestClientThatGoesIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
		defer g.Wait()
		gone := make(chan struct{})
		c := piped(t, g, terminal(), v4, func(conn *channels.Conn) {
			<-conn.Done()
			close(gone)
		})
		c.send(message("\x00input"))
		for range 3 {
			c.receive(websocket.PingMessage)
		}
		if err := c.conn.Close(); err != nil {
			t.Error(err)
		}
		<-gone
	})
}

// TestPingsMayWaitForOutput has a client that sends pings while it does not read output for a minute.
func TestPingsMayWaitForOutput(t *testing.T) {
	const output, pings = 3 << 20, 5
	synctest.Test(t, func(t *testing.T) {
		g := run.NewGroup(t.Context(), 0)
		c := piped(t, g, terminal(), v4, func(c *channels.Conn) {
			if _, err := c.Channel(1).Write(make([]byte, output)); err != nil {
				t.Error(err)
			}
			if _, err := io.ReadFull(c.Channel(0), make([]byte, 1)); err != nil { // until the client has all pongs
				t.Error(err)
			}
		})
		g.Go(func(context.Context) {
			for range pings {
				c.send(frame{last | websocket.PingMessage, []byte("p")})
			}
		})
		time.Sleep(time.Minute)
		got, pongs := 0, 0
		for got < output || pongs < pings {
			opcode, content, err := c.next()
			if err != nil {
				t.Fatal(err)
			}
			switch opcode {
			case websocket.PongMessage:
				pongs++
			case websocket.BinaryMessage:
				got += len(content) - 1
			}
		}
		c.send(message("\x00x"))
		c.wantClose(websocket.CloseNormalClosure)
		g.Wait()
	})
}

// TestIdleConnectionEnds has clients that send nothing for longer and longer.
func TestIdleConnectionEnds(t *testing.T) {
	begun := frame{websocket.BinaryMessage, []byte("\x00a")}
	more := func(last byte, s string) frame { return frame{last, []byte(s)} }
	ping := frame{last | websocket.PingMessage, nil}
	for name, tt := range map[string]struct {
		sent []frame
		want string
		took time.Duration
	}{
		"nothing":          {nil, "", idle},
		"message":          {[]frame{message("\x00a")}, "a", idle - 1 + idle},
		"messages":         {[]frame{message("\x00a"), message("\x00b")}, "ab", 2*(idle-1) + idle},
		"parts":            {[]frame{begun, more(0, "b"), more(0, "c"), more(last, "d")}, "abcd", 4*(idle-1) + idle},
		"pings do not do":  {[]frame{ping, ping}, "", idle},
		"within a message": {[]frame{begun, ping}, "a", idle - 1 + idle},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := run.NewGroup(t.Context(), 0)
				var got string
				c := piped(t, g, terminal(), v4, func(c *channels.Conn) {
					b, err := io.ReadAll(c.Channel(0))
					if got = string(b); err != nil {
						t.Error(err)
					}
				})
				start := time.Now()
				sender := run.NewGroup(t.Context(), 0)
				sender.Go(func(ctx context.Context) {
					for _, f := range tt.sent {
						time.Sleep(idle - 1)
						if _, err := c.conn.Write(f.appendTo(nil, [4]byte{})); err != nil {
							return // the connection has ended
						}
					}
				})
				for {
					opcode, _, err := c.next()
					if err != nil {
						t.Fatal(err)
					}
					if opcode == websocket.CloseMessage {
						break
					}
				}
				took := time.Since(start)
				g.Wait()
				sender.Wait()
				if took != tt.took || got != tt.want {
					t.Errorf("%q came, and the connection ended after %v, want %q after %v", got, took, tt.want, tt.took)
				}
			})
		})
	}
}

// TestOutputThatIsNotTakenEnds has clients that take no output, or some of it.
func TestOutputThatIsNotTakenEnds(t *testing.T) {
	for name, limit := range map[string]time.Duration{"idle": 0, "limited": time.Second, "limited to longer": 2 * idle} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := run.NewGroup(t.Context(), 0)
				var took time.Duration
				c := piped(t, g, terminal(), v4, func(c *channels.Conn) {
					if _, err := c.Channel(1).Write([]byte("first")); err != nil {
						t.Error(err)
					}
					start := time.Now()
					writer := run.NewGroup(context.Background(), 0)
					writer.Go(func(context.Context) {
						if _, err := c.Channel(1).Write([]byte("second")); !errors.Is(err, os.ErrDeadlineExceeded) {
							t.Errorf("writing ended with %v", err)
						}
						took = time.Since(start)
					})
					synctest.Wait() // the second write is stuck
					if limit > 0 {
						c.LimitWrites(limit)
					}
					writer.Wait()
					if _, err := c.Channel(1).Write([]byte("third")); err == nil {
						t.Error("a message is written after one that was not")
					}
				})
				if got := c.receive(websocket.BinaryMessage); got != "\x01first" {
					t.Errorf("%q came", got)
				}
				g.Wait()
				want := idle
				if limit > 0 {
					want = min(idle, limit)
				}
				if took != want {
					t.Errorf("writing took %v, want %v", took, want)
				}
			})
		})
	}
}

// TestLimitHoldsForLaterWrites limits writes before they begin.
func TestLimitHoldsForLaterWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := run.NewGroup(t.Context(), 0)
		start := time.Now()
		c := piped(t, g, terminal(), v4, func(c *channels.Conn) {
			c.LimitWrites(time.Minute)
			if _, err := c.Channel(1).Write([]byte("in time")); err != nil {
				t.Error(err)
			}
			if _, err := c.Channel(1).Write([]byte(strings.Repeat("x", 100))); err == nil || time.Since(start) != time.Minute {
				t.Errorf("writing ended after %v with %v", time.Since(start), err)
			}
		})
		time.Sleep(time.Second)
		if got := c.receive(websocket.BinaryMessage); got != "\x01in time" {
			t.Errorf("%q came", got)
		}
		g.Wait()
	})
}
