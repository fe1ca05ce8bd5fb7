package httpserver

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"iter"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/websocket"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/internal/run"
)

// frameLength is the size of the length in front of an event in protobuf. Messages have lengths of their own.
const frameLength = 4

// messages is a watch over a WebSocket (RFC 6455): a message for each event, text for JSON and binary for protobuf. What the client
// sends has no meaning.
type messages struct {
	server *Server
	x      *exchange
	events *events
	sent   prometheus.Counter
	leave  context.CancelFunc // ends the changes
}

// serve answers with changes until they end or the client has gone.
func (m *messages) serve(ctx context.Context, changes iter.Seq2[operation.Change, error]) {
	m.x.seat.release() // the pace of an answer does not measure another protocol
	m.x.Header().Set("Content-Type", m.events.media.Encoding.WatchContentType())
	websocket.Server{Handshake: firstProtocol, Handler: func(socket *websocket.Conn) {
		g := run.NewGroup(ctx, 0)
		g.Go(func(context.Context) {
			_, _ = io.Copy(io.Discard, socket)
			m.leave()
		})
		m.send(ctx, socket, changes)
		_ = socket.Close() // ends the reading
		g.Stop()
	}}.ServeHTTP(m.x, m.x.r)
}

// firstProtocol chooses the first subprotocol of the client, whatever it is, as the messages do not depend on it.
func firstProtocol(c *websocket.Config, _ *http.Request) error {
	c.Protocol = c.Protocol[:min(1, len(c.Protocol))]
	return nil
}

// send sends a message for each change.
func (m *messages) send(ctx context.Context, socket *websocket.Conn, changes iter.Seq2[operation.Change, error]) {
	var buf bytes.Buffer
	m.events.w = bufio.NewWriter(&buf)
	message := func(write func() error) error {
		buf.Reset()
		if err := run.Catch(write); err != nil {
			return err
		}
		if err := m.events.w.Flush(); err != nil {
			return err
		}
		if err := socket.SetWriteDeadline(time.Now().Add(stallTimeout)); err != nil {
			return err
		}
		if m.events.media.Encoding == codec.Protobuf {
			return websocket.Message.Send(socket, buf.Bytes()[frameLength:])
		}
		return websocket.Message.Send(socket, buf.String())
	}
	for c, err := range changes {
		if err != nil {
			failure := codec.Media{Encoding: m.events.media.Encoding}
			_ = message(func() error { return codec.WriteEvent(m.events.w, failure, watch.Error, asStatus(err)) }) // the client may have gone
			return
		}
		if c.Type == "" {
			continue // each message is sent at once
		}
		switch err := message(func() error { return m.events.write(ctx, c) }); {
		case err == nil:
			m.sent.Inc()
		case isPanic(err):
			m.server.panicked(ctx, m.x, c, err)
		default:
			return
		}
	}
}
