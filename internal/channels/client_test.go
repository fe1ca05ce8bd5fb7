package channels_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/sampan-io/sampan/internal/channels"
	"github.com/sampan-io/sampan/internal/leaktest"
	"github.com/sampan-io/sampan/internal/lingering"
	"github.com/sampan-io/sampan/internal/run"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const (
	v4, v4Base64, v5 = "v4.channel.k8s.io", "v4.base64.channel.k8s.io", "v5.channel.k8s.io"

	// last is a bit of the first byte of a frame, the last one of its message. The opcode is in the same byte.
	last = 0x80
)

// A frame is one frame of a client.
type frame struct {
	first   byte // with the opcode
	content []byte
}

// message returns a message in one frame.
func message(content string) frame { return frame{last | websocket.BinaryMessage, []byte(content)} }

// appendTo appends the frame with a mask.
func (f frame) appendTo(b []byte, key [4]byte) []byte {
	b = append(appendHead(b, f.first, len(f.content)), key[:]...)
	for i, c := range f.content {
		b = append(b, c^key[i%4])
	}
	return b
}

// appendHead appends the head of a frame with a mask, without that.
func appendHead(b []byte, first byte, length int) []byte {
	b = append(b, first)
	switch {
	case length < 126:
		return append(b, 0x80|byte(length))
	case length < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(length))
	}
	return binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(length))
}

// A client is the other end of a connection. It does nothing by itself.
type client struct {
	t    testing.TB
	conn net.Conn
	in   *bufio.Reader
	res  *http.Response // to the request for the upgrade
}

// connect upgrades a connection, and sends early together with the request.
func connect(t testing.TB, conn net.Conn, protocol string, early []byte) *client {
	t.Helper()
	header := ""
	if protocol != "" {
		header = "Sec-WebSocket-Protocol: " + protocol + "\r\n"
	}
	request := fmt.Sprintf("GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n%s\r\n", header)
	if _, err := conn.Write(append([]byte(request), early...)); err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, conn: conn, in: bufio.NewReader(conn)}
	var err error
	if c.res, err = http.ReadResponse(c.in, nil); err != nil {
		t.Fatal(err)
	}
	return c
}

// send sends frames.
func (c *client) send(frames ...frame) {
	c.t.Helper()
	var all []byte
	for _, f := range frames {
		all = f.appendTo(all, [4]byte{1, 2, 3, 4})
	}
	c.write(all)
}

func (c *client) write(b []byte) {
	c.t.Helper()
	if _, err := c.conn.Write(b); err != nil {
		c.t.Error(err)
	}
}

// next returns the next frame of the server. A frame that is not the last one of its message, has extensions or a mask is an error.
func (c *client) next() (opcode int, content string, err error) {
	var head [8]byte
	if _, err := io.ReadFull(c.in, head[:2]); err != nil {
		return 0, "", err
	}
	opcode = int(head[0] &^ last)
	if head[0]&last == 0 || opcode > websocket.PongMessage || head[1] > 127 {
		return 0, "", fmt.Errorf("a frame that begins with %x", head[:2])
	}
	length := uint64(head[1])
	switch length {
	case 126:
		_, err = io.ReadFull(c.in, head[6:])
		length = binary.BigEndian.Uint64(append(make([]byte, 6), head[6:]...))
	case 127:
		_, err = io.ReadFull(c.in, head[:])
		length = binary.BigEndian.Uint64(head[:])
	}
	if err != nil {
		return 0, "", err
	}
	b := make([]byte, length)
	_, err = io.ReadFull(c.in, b)
	return opcode, string(b), err
}

// receive returns the next message, which has to be of this type.
func (c *client) receive(opcode int) string {
	c.t.Helper()
	got, content, err := c.next()
	if err != nil || got != opcode {
		c.t.Fatalf("got a frame of type %d with %q (%v), want type %d", got, content, err, opcode)
	}
	return content
}

// wantClose reads to the end, and checks the code with which the server closes the connection. It returns the reason.
func (c *client) wantClose(code int) string {
	c.t.Helper()
	for {
		opcode, content, err := c.next()
		if err != nil {
			c.t.Fatalf("no close frame: %v", err)
		}
		if opcode != websocket.CloseMessage {
			continue
		}
		if len(content) < 2 {
			c.t.Fatalf("a close frame with %q", content)
		}
		if got := binary.BigEndian.Uint16([]byte(content)); int(got) != code {
			c.t.Errorf("close code %d, want %d: %q", got, code, content[2:])
		}
		return content[2:]
	}
}

// Options of a command with input, output and sizes.
func command(protocols ...string) channels.Options {
	return channels.Options{
		Protocols: protocols, Idle: lingering.Limit,
		Kinds: []channels.Kind{channels.Read, channels.Write, channels.Unused, channels.Write, channels.Read},
	}
}

// serving serves connections over TCP until the test ends. The function that it returns makes one. It has to be closed before the
// test ends, which has a clean-up of its own for that.
func serving(t testing.TB, o channels.Options, handle func(*channels.Conn)) (dial func(testing.TB) net.Conn) {
	t.Helper()
	var sockets channels.Server
	g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The server does not wait for connections that were taken over.
		ended := make(chan struct{})
		defer close(ended)
		g.Go(func(context.Context) { <-ended })
		_ = sockets.Serve(lingering.Response(r.Context(), w), r, o, handle)
	}))
	t.Cleanup(func() { server.Close(); g.Wait() })
	return func(t testing.TB) net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
}

// received is what a handler read from channels 0 and 4.
type received [2]string

// recorder returns a handler that reads channels 0 and 4 to their ends, by WriteTo and Read, and what it read.
func recorder() (handle func(*channels.Conn), result <-chan received) {
	got := make(chan received, 1)
	return func(c *channels.Conn) {
		var all received
		g := run.NewGroup(context.Background(), 0)
		for i, from := range []io.Reader{c.Channel(0), struct{ io.Reader }{c.Channel(4)}} {
			g.Go(func(context.Context) {
				var b strings.Builder
				_, err := io.Copy(&b, from)
				if all[i] = b.String(); err != nil {
					all[i] += fmt.Sprint(" and ", err)
				}
			})
		}
		g.Wait()
		got <- all
	}, got
}
