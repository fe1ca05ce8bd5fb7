package streams

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sampan-io/sampan/internal/lingering"
	"github.com/sampan-io/sampan/internal/spdy"
	"github.com/sampan-io/sampan/internal/upgrade"
)

const (
	// tunnelPrefix begins the WebSocket protocols that carry SPDY; the protocol of its streams follows.
	tunnelPrefix = "SPDY/3.1+"
)

// servePortsTunnel is [servePortsSPDY] for a client with a WebSocket.
func (s *Server) servePortsTunnel(w http.ResponseWriter, r *http.Request, service portService) error {
	return servePairs(r.Context(), service, func(accept func(*spdy.Stream) error) (*spdy.Conn, error) {
		t, err := s.openTunnel(w, r)
		if err != nil {
			return nil, err
		}
		return s.spdy.New(t, t, spdy.Options{Accept: accept, Idle: lingering.Limit})
	})
}

// openTunnel opens a WebSocket whose messages carry SPDY (KEP-4006). An error has been answered.
func (s *Server) openTunnel(w http.ResponseWriter, r *http.Request) (*tunnel, error) {
	const protocol = tunnelPrefix + spdyPorts
	if asked := websocket.Subprotocols(r); !slices.Contains(asked, protocol) {
		err := fmt.Errorf("unable to negotiate protocol: client supports %v, server supports [%s]", asked, protocol)
		http.Error(w, err.Error(), http.StatusForbidden)
		return nil, err
	}
	upgrader := websocket.Upgrader{
		WriteBufferSize: upgrade.FourRecords, WriteBufferPool: &s.tunnels,
		CheckOrigin:  func(*http.Request) bool { return true }, // clients are known by credentials, not by cookies
		Subprotocols: []string{protocol},
	}
	socket, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return nil, err
	}
	t := &tunnel{Conn: socket.NetConn(), socket: socket}
	socket.SetPingHandler(t.pong)
	return t, nil
}

// A tunnel is what the messages of a WebSocket carry, as a connection. One goroutine may read and one may write at a time.
type tunnel struct {
	net.Conn // below the WebSocket
	socket   *websocket.Conn
	message  io.Reader // nil if none is being read
}

// Read implements [net.Conn].
func (t *tunnel) Read(p []byte) (int, error) {
	for {
		if t.message == nil {
			kind, message, err := t.socket.NextReader()
			if websocket.IsCloseError(err, websocket.CloseNormalClosure, websocket.CloseNoStatusReceived) {
				err = io.EOF
			}
			if err != nil {
				return 0, err
			}
			if kind != websocket.BinaryMessage {
				return 0, errors.New("a message of text, want bytes")
			}
			t.message = message
		}
		n, err := t.message.Read(p)
		if n > 0 || err == nil {
			return n, nil
		}
		t.message = nil
		if !errors.Is(err, io.EOF) {
			return 0, err
		}
	}
}

// Write implements [net.Conn].
func (t *tunnel) Write(p []byte) (int, error) {
	if err := t.socket.WriteMessage(websocket.BinaryMessage, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// pong answers a ping. It waits for writing: a time limit of its own would break a connection that is slow. If it can't be written,
// what the client has sent is read nevertheless.
func (t *tunnel) pong(text string) error {
	_ = t.socket.WriteControl(websocket.PongMessage, []byte(text), time.Now().Add(lingering.Limit))
	return nil
}

// Close implements [net.Conn].
func (t *tunnel) Close() error {
	// A client that is gone needs no message.
	_ = t.socket.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(lingering.Limit))
	return t.socket.Close()
}

// isTunnel reports whether a client asks for SPDY in a WebSocket.
func isTunnel(r *http.Request) bool {
	return slices.ContainsFunc(websocket.Subprotocols(r), func(p string) bool { return strings.HasPrefix(p, tunnelPrefix) })
}
