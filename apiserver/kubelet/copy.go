package kubelet

import (
	"bufio"
	"io"
	"net"
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

// A wideResponse is a response whose connection, when it is taken over, has a buffer for one whole message: a smaller one would
// divide it into more records of TLS.
type wideResponse struct{ http.ResponseWriter }

// Hijack implements [http.Hijacker].
func (w wideResponse) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffers, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return conn, bufio.NewReadWriter(buffers.Reader, bufio.NewWriterSize(conn, upgrade.FourRecords)), nil
}

// A wideChannel writes large messages to a channel of a WebSocket.
type wideChannel struct{ io.Writer }

// ReadFrom implements [io.ReaderFrom].
func (w wideChannel) ReadFrom(r io.Reader) (int64, error) {
	const number = 1 // byte of each message, that of the channel
	return upgrade.Copy(w.Writer, r, upgrade.Piece-number)
}
