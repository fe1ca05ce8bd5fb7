package kubelet

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"k8s.io/streaming/pkg/httpstream"

	"github.com/sampan-io/sampan/internal/spdyframes"
)

const (
	fourRecords = 64 << 10 // bytes, of TLS

	// pieceOfStream is how many bytes are moved at once. The head of a WebSocket message of this size has 4 bytes.
	pieceOfStream = fourRecords - 4
)

// passing returns upgrades whose bodies move the bytes in large pieces. [io.Copy] would move half as much at once.
type passing struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (p passing) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := p.RoundTripper.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		return resp, err
	}
	if conn, ok := resp.Body.(io.ReadWriteCloser); ok {
		body := &passed{conn, conn}
		if strings.HasPrefix(strings.ToUpper(resp.Header.Get(httpstream.HeaderUpgrade)), "SPDY/") {
			body.to = spdyframes.NewWriter(conn)
		}
		resp.Body = body
	}
	return resp, nil
}

// A passed is the connection to a node after an upgrade. [io.Copy] prefers the methods WriteTo and ReadFrom to its own buffer.
type passed struct {
	io.ReadWriteCloser
	to io.Writer // writes to the connection
}

// Write implements [io.Writer].
func (p *passed) Write(b []byte) (int, error) { return p.to.Write(b) }

// WriteTo implements [io.WriterTo].
func (p *passed) WriteTo(w io.Writer) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{p.ReadWriteCloser}, make([]byte, pieceOfStream))
}

// ReadFrom implements [io.ReaderFrom].
func (p *passed) ReadFrom(r io.Reader) (int64, error) {
	if frames, ok := p.to.(*spdyframes.Writer); ok {
		return frames.ReadFrom(r)
	}
	return io.CopyBuffer(struct{ io.Writer }{p.to}, struct{ io.Reader }{r}, make([]byte, pieceOfStream))
}

// CloseWrite closes the connection for writing.
func (p *passed) CloseWrite() error {
	if c, ok := p.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return fmt.Errorf("CloseWrite: %w", http.ErrNotSupported)
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
	return conn, bufio.NewReadWriter(buffers.Reader, bufio.NewWriterSize(conn, fourRecords)), nil
}

// A wideChannel writes large messages to a channel of a WebSocket.
type wideChannel struct{ io.Writer }

// ReadFrom implements [io.ReaderFrom].
func (w wideChannel) ReadFrom(r io.Reader) (int64, error) {
	const number = 1 // byte of each message, that of the channel
	return io.CopyBuffer(struct{ io.Writer }{w.Writer}, struct{ io.Reader }{r}, make([]byte, pieceOfStream-number))
}
