package kubelet

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"golang.org/x/net/websocket"

	"github.com/sampan-io/sampan/internal/run"
)

// Subprotocols of answers in messages, as upstream has them. Without one, messages are binary.
const (
	binaryProtocol = "binary.k8s.io"
	base64Protocol = "base64.binary.k8s.io"
)

// messageLimit is how long a client may take to read one message.
const messageLimit = 5 * time.Minute

// serveMessages answers with the bytes read, as messages of a WebSocket (RFC 6455), the first of them empty. It returns
// when that ends or the client goes, and closes the reader then. Messages of the client have no meaning.
func serveMessages(w http.ResponseWriter, r *http.Request, from io.ReadCloser) {
	defer from.Close()
	websocket.Server{Handshake: chooseMessages, Handler: func(socket *websocket.Conn) {
		g := run.NewGroup(r.Context(), 0)
		g.Go(func(context.Context) {
			_, _ = io.Copy(io.Discard, socket)
			_ = from.Close() // the client has gone, or sendMessages has ended
		})
		sendMessages(socket, from)
		_ = socket.Close() // ends the reading
		g.Stop()
	}}.ServeHTTP(w, r)
}

// chooseMessages chooses the first subprotocol of the client that there is.
func chooseMessages(c *websocket.Config, _ *http.Request) error {
	if len(c.Protocol) == 0 {
		return nil
	}
	for _, p := range c.Protocol {
		if p == binaryProtocol || p == base64Protocol {
			c.Protocol = []string{p}
			return nil
		}
	}
	return fmt.Errorf("requested protocol(s) are not supported: %q; supports %q", c.Protocol, []string{binaryProtocol, base64Protocol})
}

// sendMessages sends the bytes read, each part as it comes.
func sendMessages(socket *websocket.Conn, from io.Reader) {
	encode := slices.Equal(socket.Config().Protocol, []string{base64Protocol})
	buf := make([]byte, 32<<10)
	for n, err := 0, error(nil); ; n, err = from.Read(buf) {
		if n > 0 || err == nil {
			var message any = buf[:n]
			if encode {
				message = base64.StdEncoding.EncodeToString(buf[:n])
			}
			if socket.SetWriteDeadline(time.Now().Add(messageLimit)) != nil || websocket.Message.Send(socket, message) != nil {
				return // the client has gone, as it may
			}
		}
		if err != nil {
			return
		}
	}
}
