package kubelet

import (
	"io"
	"net/http"
	"strings"

	"k8s.io/streaming/pkg/httpstream"

	"github.com/sampan-io/sampan/internal/spdyframes"
	"github.com/sampan-io/sampan/internal/upgrade"
)

// passing returns upgrades whose bodies move the bytes in large pieces, and those of SPDY in whole frames.
type passing struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (p passing) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := p.RoundTripper.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		return resp, err
	}
	if conn, ok := resp.Body.(io.ReadWriteCloser); ok {
		body := &upgrade.Conn{ReadWriteCloser: conn}
		if strings.HasPrefix(strings.ToUpper(resp.Header.Get(httpstream.HeaderUpgrade)), "SPDY/") {
			body.Out = spdyframes.NewWriter(conn)
		}
		resp.Body = body
	}
	return resp, nil
}

// headBuffer has room for the head of a frame. A frame is read at once.
const headBuffer = 16

// A wideChannel writes large messages to a channel of a WebSocket, and has as many bytes more admitted from the node.
type wideChannel struct {
	io.Writer
	held *window
}

// Write implements [io.Writer].
func (w wideChannel) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.held.release(n)
	return n, err
}

// ReadFrom implements [io.ReaderFrom].
func (w wideChannel) ReadFrom(r io.Reader) (int64, error) {
	return upgrade.Copy(struct{ io.Writer }{w}, r, upgrade.Frame)
}
