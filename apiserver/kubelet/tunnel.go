package kubelet

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/spdyframes"
	"github.com/sampan-io/sampan/internal/upgrade"
)

const (
	// tunnelPrefix begins the WebSocket protocols that carry SPDY; the protocol of its streams follows.
	tunnelPrefix = "SPDY/3.1+"
	tunnelSuffix = ".k8s.io"

	closingLimit = 10 * time.Second
)

// tunnel takes the bytes of SPDY out of the messages of a WebSocket, and passes them on.
func (c *Client) tunnel(w http.ResponseWriter, r *http.Request, to *url.URL, transport http.RoundTripper) {
	var protocols []string
	for _, p := range websocket.Subprotocols(r) {
		if rest, ok := strings.CutPrefix(p, tunnelPrefix); ok && strings.HasSuffix(p, tunnelSuffix) {
			protocols = append(protocols, rest)
		}
	}
	resp, node, err := openSPDY(r.Context(), to, transport, protocols)
	if err != nil {
		c.unreached(r, to, err)
		refuse(w, notDialed(err))
		return
	}
	if node == nil {
		defer resp.Body.Close()
		copyRefusal(w, resp)
		return
	}
	defer node.Close()
	upgrader := websocket.Upgrader{
		ReadBufferSize: upgrade.Piece, WriteBufferSize: upgrade.Piece,
		CheckOrigin:  func(*http.Request) bool { return true }, // clients are known by credentials, not by cookies
		Subprotocols: []string{tunnelPrefix + resp.Header.Get(httpstream.HeaderProtocolVersion)},
	}
	client, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // it has answered
	}
	defer client.Close()
	stop := context.AfterFunc(r.Context(), func() {
		_ = client.Close()
		_ = node.Close()
	})
	defer stop()
	g := run.NewGroup(r.Context(), 0)
	g.Go(func(context.Context) {
		_ = messagesTo(spdyframes.NewWriter(node), client)
		_ = node.Close()
	})
	err = messagesFrom(client, node)
	if errors.Is(err, io.EOF) {
		_ = client.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(closingLimit))
	}
	_ = client.Close()
	_ = node.Close()
	g.Stop()
}

// copyRefusal forwards a node's answer that is not an upgrade.
func copyRefusal(w http.ResponseWriter, resp *http.Response) {
	if t := resp.Header.Get("Content-Type"); t != "" {
		w.Header().Set("Content-Type", t)
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, io.LimitReader(resp.Body, longestRefusal)) // a client that has gone needs no answer
}

// messagesTo writes the frames in all binary messages to the node.
func messagesTo(node *spdyframes.Writer, client *websocket.Conn) error {
	for {
		kind, message, err := client.NextReader()
		if err != nil {
			return err
		}
		if kind != websocket.BinaryMessage {
			return errors.New("want binary messages")
		}
		if _, err := node.ReadFrom(message); err != nil {
			return err
		}
	}
}

// messagesFrom writes what comes from the node as messages. An end of the node's stream is [io.EOF].
func messagesFrom(client *websocket.Conn, node io.Reader) error {
	piece := make([]byte, upgrade.Piece)
	for {
		n, err := node.Read(piece)
		if n > 0 {
			if werr := client.WriteMessage(websocket.BinaryMessage, piece[:n]); werr != nil {
				return werr
			}
		}
		if err != nil {
			return err
		}
	}
}
